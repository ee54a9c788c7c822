"""/metrics, /health and /ready."""

from __future__ import annotations

import base64
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import tarantool
from tests.support.servers import Running

import penstock
from penstock.server import logins
from penstock.server.auth import new_token


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(f"{tmp_path}/tasks.db", http_port=0) as running:
        yield running


def url(server: Running, path: str) -> str:
    return f"http://127.0.0.1:{server.server.port('http_port')}{path}"


def get(server: Running, path: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url(server, path), headers=headers), timeout=90) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def raw(server: Running, request: bytes) -> bytes:
    """What is answered to anything, until the connection ends."""
    with socket.create_connection(("127.0.0.1", server.server.port("http_port")), 90) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while more := connection.recv(65536):
            answer += more
        return answer


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    assert found, f"{name} is not in\n{text}"
    return float(found[1])


def test_health_and_ready_answer(server: Running):
    assert get(server, "/health") == (200, "alive\n")
    assert get(server, "/ready") == (200, "ready\n")


def test_metrics_have_the_store_and_the_server(server: Running):
    with penstock.connect(server.server.settings.url) as queue:
        queue.create_tube("mail", "fifo")
    client = tarantool.Connection("127.0.0.1", server.server.port())
    for number in range(3):
        client.call("queue.tube.mail:put", (number,))
    task = client.call("queue.tube.mail:take", (0,)).data[0]
    client.call("queue.tube.mail:ack", (task[0],))
    status, text = get(server, "/metrics")
    assert status == 200
    assert value(text, "penstock_up") == 1
    assert value(text, 'penstock_tasks{state="ready",tube="mail"}') == 2
    assert value(text, 'penstock_events_total{event="put",tube="mail"}') == 3
    assert value(text, 'penstock_server_connections{door="iproto"}') == 1
    assert value(text, "penstock_server_accepted_total") == 1
    assert value(text, 'penstock_server_ops_total{verb="put"}') == 3
    assert value(text, 'penstock_server_ops_total{verb="ack"}') == 1
    assert value(text, "penstock_server_waiting") == 0
    assert value(text, "penstock_server_received_bytes_total") > 100
    assert value(text, "penstock_server_sent_bytes_total") > 100
    assert value(text, "penstock_server_grouped_ops_total") >= value(text, "penstock_server_groups_total") > 0
    client.close()


def test_calls_that_wait_are_counted(server: Running):
    with penstock.connect(server.server.settings.url) as queue:
        queue.create_tube("mail", "fifo")
    waiting = socket.create_connection(("127.0.0.1", server.server.port()), 90)
    client = tarantool.Connection("127.0.0.1", server.server.port())
    request = tarantool.request.RequestCall(client, "queue.tube.mail:take", (60,), False)
    waiting.recv(128)
    waiting.sendall(bytes(request))
    client.ping()
    while value(get(server, "/metrics")[1], "penstock_server_waiting") != 1:
        client.ping()
    waiting.close()
    while value(get(server, "/metrics")[1], "penstock_server_waiting") != 0:
        client.ping()
    client.close()


def test_a_store_that_does_not_answer_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from penstock.server import http_door as http

    monkeypatch.setattr(http, "STORE_PATIENCE", 0.05)
    with Running(f"{tmp_path}/tasks.db", http_port=0) as server:
        queue = penstock.connect(server.server.settings.url)
        tube = queue.create_tube("mail")
        with queue.transaction() as transaction:  # holds the store
            tube.put(1, transaction=transaction)
            status, text = get(server, "/ready")
            assert (status, get(server, "/health")) == (503, (200, "alive\n"))
            assert "the store has not answered within" in text
        queue.close()


def test_head_has_no_body(server: Running):
    answer = raw(server, b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK") and b"Content-Length: 6" in head and body == b""


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"GET /health\r\n\r\n", b"400"),
        (b"GET /health HTTP/2\r\n\r\n", b"400"),
        (b"\x00\xff\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n", b"400"),
        (b"", b"400"),
        (b"GET /metrics HTTP/1.1\r\nAuthorization: Basic !!\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n", b"400"),
        (b"GET /health?verbose=1 HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_what_is_no_request_gets_a_status_and_harms_nobody(server: Running, request_: bytes, status: bytes):
    try:
        answer = raw(server, request_)
    except ConnectionError:  # too much was sent to be read to its end
        assert len(request_) > 65536
    else:
        assert answer.startswith(b"HTTP/1.1 " + status), answer
    assert get(server, "/health") == (200, "alive\n")


@pytest.mark.parametrize("request_", [b"", b"GET /health HT"])
def test_who_connects_and_asks_nothing_is_let_go_without_a_word(
    server: Running, request_: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    from penstock.server import http_door as http

    monkeypatch.setattr(http, "PATIENCE", 0.05)
    with socket.create_connection(("127.0.0.1", server.server.port("http_port")), 90) as connection:
        connection.sendall(request_)
        assert connection.recv(65536) == b""
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_metrics_need_a_login_where_there_are_logins(tmp_path: Path):
    file = f"{tmp_path}/logins.toml"
    tokens = {name: new_token() for name in ("watcher", "shop")}
    rights = {"watcher": logins.new_right(["read"], ["*"]), "shop": logins.new_right(["put"], ["mail"])}
    logins.write_entries(file, {name: logins.new_entry(name, [rights[name]], tokens[name]) for name in tokens})

    def basic(name: str, secret: str) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(f'{name}:{secret}'.encode()).decode()}"}

    with Running(f"{tmp_path}/tasks.db", http_port=0, logins=file) as server:
        assert get(server, "/health")[0] == get(server, "/ready")[0] == 200
        assert get(server, "/metrics") == (401, "metrics need a login with the role read\n")
        assert get(server, "/metrics", **basic("watcher", "wrong"))[0] == 401
        status, text = get(server, "/metrics", **basic("shop", tokens["shop"]))
        assert status == 403 and "login 'shop' may not read statistics" in text
        assert get(server, "/metrics", **basic("watcher", tokens["watcher"]))[0] == 200
