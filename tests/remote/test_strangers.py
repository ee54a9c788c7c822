"""penstock:// URLs that lead to something else: the client is told so at once, and what to change."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.support.relay import Relay
from tests.support.servers import Running

import penstock
from penstock.engines.remote import iproto_link
from penstock.model.errors import EngineUnavailable
from penstock.server import http_door, logins
from penstock.server.auth import new_token
from penstock.server.settings import Limits
from penstock.server.tls import Tls

LONG = 3600.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gives up for want of time, so that an answer comes because something was noticed."""
    monkeypatch.setattr(iproto_link, "CONNECT_SECONDS", LONG)
    monkeypatch.setattr(iproto_link, "SILENT", 0.05)


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(tmp_path / "server.key")
    made.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    return Tls(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))


def complaint(url: str) -> str:
    """Why there is no connecting."""
    said: list[str] = []

    def connect() -> None:
        with pytest.raises(EngineUnavailable) as refused:
            penstock.connect(url)
        said.append(str(refused.value))

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(90)
    assert said, "it still waits"
    return said[0]


@pytest.mark.parametrize("door", ["port", "grpc_port", "http_port"])
def test_a_port_that_is_encrypted(tls: Tls, door: str) -> None:
    with Running("memory:", tls=tls, grpc_port=0, http_port=0, limits=Limits(login_seconds=LONG)) as running:
        text = complaint(f"penstock://127.0.0.1:{running.server.port(door)}")
    assert "add ?tls=on to the URL" in text and "port" in text


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_port_of_grpc(tls: Tls, tmp_path: Path, encrypted: bool) -> None:
    with Running("memory:", port=None, grpc_port=0, tls=tls if encrypted else None) as running:
        query = f"?tls=on&ca={tmp_path}/ca.pem" if encrypted else ""
        text = complaint(f"penstock://127.0.0.1:{running.server.port('grpc_port')}{query}")
    assert "gRPC has a port of its own and grpc:// URLs" in text if encrypted else "write grpc:// instead of" in text


def test_a_port_of_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "PATIENCE", LONG)
    with Running("memory:", http_port=0) as running:
        text = complaint(f"penstock://127.0.0.1:{running.server.port('http_port')}")
    assert "speaks HTTP" in text and "use its other port" in text


class Slow(Relay):
    """Lets nothing of the server through until the client has said something, and then a little at a time."""

    def __init__(self, port: int) -> None:
        super().__init__(port, piece=50)

    def serve(self, client: socket.socket) -> None:
        self.flowing.clear()
        super().serve(client)

    def said(self) -> None:
        self.flowing.set()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Any]:
    token = new_token()
    entry = logins.new_entry("ann", [logins.new_right(["admin"], ["*"])], token)
    logins.write_entries(f"{tmp_path}/logins.toml", {"ann": entry})
    with (
        Running("memory:") as running,
        Running("memory:", logins=f"{tmp_path}/logins.toml") as closed,
        Slow(running.server.port()) as one,
        Slow(closed.server.port()) as two,
    ):
        yield {"open": f"penstock://127.0.0.1:{one.port}", "login": f"penstock://ann:{token}@127.0.0.1:{two.port}"}


@pytest.mark.parametrize("which", ["open", "login"])
def test_a_server_that_greets_late_is_as_good_as_another(
    slow: Any, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iproto_link, "SILENT", 0.01)
    with penstock.connect(slow[which]) as q:
        q.create_tube("jobs").put(1)
        assert q.tube("jobs").take().data == 1
