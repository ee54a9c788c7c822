"""Logging in over Tarantool's protocol: what is refused before, what after, and how long one may take."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tarantool
from tests.cli.shell import Shell
from tests.server.raw import AUTH, EVAL, ID, PING, SELECT, Raw, call, frame
from tests.support.servers import Running

from penstock.server.settings import Limits


@pytest.fixture
def secret(tmp_path: Path) -> str:
    words = ("ann", "--role", "admin", "--tube", "*", "--file", "logins.toml")
    ran = Shell("tasks.db", tmp_path).inside("login", *words)
    assert ran.status == 0, ran.err
    return ran.out.strip()


@pytest.fixture
def server(tmp_path: Path, secret: str) -> Iterator[Running]:
    limits = Limits(login_seconds=600)
    with Running("memory:", logins=os.fspath(tmp_path / "logins.toml"), limits=limits) as running:
        yield running


@pytest.fixture
def raw(server: Running) -> Iterator[Raw]:
    with Raw(server.server.port()) as made:
        yield made


def scramble(raw: Raw, secret: str) -> bytes:
    salt = base64.b64decode(raw.greeting[64:])[:20]
    once = hashlib.sha1(secret.encode()).digest()
    mask = hashlib.sha1(salt + hashlib.sha1(once).digest()).digest()
    return bytes(left ^ right for left, right in zip(once, mask, strict=True))


def test_before_it_has_logged_in_a_client_can_only_say_who_it_is(raw: Raw, secret: str) -> None:
    assert raw.ask(frame(PING, 1)).code == 0
    assert raw.ask(frame(ID, 1, {0x54: 1, 0x55: []})).code == 0
    assert raw.ask(frame(SELECT, 1, {0x10: 281, 0x12: 1, 0x20: []})).data == []
    refused = {
        "Execute access to function 'queue.state' is denied for user 'guest'": call(1, "queue.state"),
        "Execute access to function 'penstock.hello' is denied for user 'guest'": call(1, "penstock.hello", 1, 0, b""),
        "Execute access to universe '' is denied for user 'guest'": frame(EVAL, 1, {0x27: "return 1", 0x21: []}),
    }
    for text, content in refused.items():
        answer = raw.ask(content)
        assert (answer.error, answer.text) == (42, text)
        assert answer.body[0x52][0][0][0] == "AccessDeniedError"
    assert raw.ask(frame(AUTH, 1, {0x23: "ann", 0x21: ["chap-sha1", scramble(raw, secret)]})).code == 0
    assert raw.call("queue.state") == ["RUNNING"]


def test_the_proof_may_be_text_or_binary(server: Running, secret: str) -> None:
    with Raw(server.server.port()) as raw:
        proof = scramble(raw, secret).decode(errors="surrogateescape")
        content = frame(AUTH, 1, {0x23: "ann", 0x21: ["chap-sha1", ""]})
        content = content[:-1] + b"\xb4" + proof.encode(errors="surrogateescape")
        content = b"\xce" + (len(content) - 5).to_bytes(4, "big") + content[5:]
        assert raw.ask(content).code == 0
        assert raw.call("queue.state") == ["RUNNING"]


def test_wrong_proofs_are_told_apart_from_broken_ones_and_the_connection_stays(raw: Raw, secret: str) -> None:
    wrong = raw.ask(frame(AUTH, 1, {0x23: "ann", 0x21: ["chap-sha1", bytes(20)]}))
    unknown = raw.ask(frame(AUTH, 1, {0x23: "bob", 0x21: ["chap-sha1", scramble(raw, secret)]}))
    assert (wrong.error, wrong.text) == (47, "Incorrect password supplied for user 'ann'")
    assert (unknown.error, unknown.text) == (47, "Incorrect password supplied for user 'bob'")  # who exists is no news
    short = raw.ask(frame(AUTH, 1, {0x23: "ann", 0x21: ["chap-sha1", b"x"]}))
    assert (short.error, short.text) == (20, "Invalid MsgPack - invalid scramble size")
    empty = raw.ask(frame(AUTH, 1, {0x23: "ann", 0x21: []}))
    assert (empty.error, empty.text) == (20, "Invalid MsgPack - authentication request body")
    assert raw.ask(call(1, "queue.state")).error == 42
    assert raw.ask(frame(AUTH, 1, {0x23: "guest", 0x21: []})).code == 0  # as everybody is by himself
    assert raw.ask(call(1, "queue.state")).error == 42
    assert raw.ask(frame(AUTH, 1, {0x23: "ann", 0x21: ["chap-sha1", scramble(raw, secret)]})).code == 0
    assert raw.call("queue.state") == ["RUNNING"]


def test_who_does_not_log_in_in_time_is_closed_and_who_did_stays(server: Running, secret: str) -> None:
    with Raw(server.server.port()) as known:
        assert known.ask(frame(AUTH, 1, {0x23: "ann", 0x21: ["chap-sha1", scramble(known, secret)]})).code == 0
        door = server.server.doors["port"]
        (connection,) = door.connections
        assert connection._login_timer.cancelled()
        door.limits = Limits(login_seconds=0.1)
        with Raw(server.server.port()) as slow:
            assert slow.is_closed()
        assert known.call("queue.state") == ["RUNNING"]


def test_the_connector_of_python_logs_in(server: Running, secret: str) -> None:
    connection = tarantool.Connection("127.0.0.1", server.server.port(), user="ann", password=secret)
    assert list(connection.call("queue.state")) == ["RUNNING"]
    connection.close()
    with pytest.raises(tarantool.DatabaseError, match="Incorrect password"):
        tarantool.Connection("127.0.0.1", server.server.port(), user="ann", password="wrong")


def test_a_name_that_is_no_text_is_refused_like_any_other(raw: Raw) -> None:
    answer = raw.ask(frame(AUTH, 1, {0x23: "nobody\udcff", 0x21: ["chap-sha1", bytes(20)]}))
    assert answer.error == 47 and "\\udcff" in answer.text
    assert raw.ask(call(2, "queue.tube.\udcff:put")).error == 42
