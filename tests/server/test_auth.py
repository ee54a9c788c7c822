"""Secrets and the file they are kept in."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from penstock.model.errors import AccessDenied, UsageError
from penstock.server import logins
from penstock.server.auth import EVERYTHING, NOBODY, Logins, Secret, new_token
from penstock.server.roles import Role


def scrambled(token: str, salt: bytes) -> bytes:
    """What a client of Tarantool proves with."""
    once = hashlib.sha1(token.encode()).digest()
    mask = hashlib.sha1(salt[:20] + hashlib.sha1(once).digest()).digest()
    return bytes(left ^ right for left, right in zip(once, mask, strict=True))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return os.fspath(tmp_path / "logins.toml")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell("tasks.db", tmp_path)


def made(shell: Shell, *words: str) -> str:
    ran = shell.inside("login", *words, "--file", "logins.toml")
    assert ran.status == 0, ran.err
    return ran.out.strip()


def test_a_token_has_256_bits_and_is_stored_as_hashes_alone(shell: Shell, file: str):
    token = made(shell, "ann", "--role", "put", "--tube", "mail")
    assert len(token) >= 43
    assert made(shell, "bob", "--role", "put", "--tube", "mail") != token
    stored = Path(file).read_text()
    assert token not in stored
    assert hashlib.sha256(token.encode()).hexdigest() in stored
    assert Path(file).stat().st_mode & 0o777 == 0o600


def test_both_ways_to_log_in_give_the_same_login(shell: Shell, file: str):
    token = made(shell, "ann", "--role", "put", "--role", "read", "--tube", "mail", "--tube", "shop.*")
    known = logins.read_logins(file)
    salt = secrets.token_bytes(32)
    login = known.token("ann", token)
    assert login == known.scramble("ann", salt, scrambled(token, salt)) == known.certificate("ann")
    assert login.rights == (logins.new_right(["put", "read"], ["mail", "shop.*"]),)
    assert known.guest is NOBODY


@pytest.mark.parametrize("name", ["ann", "nobody", "", "x" * 1000])
def test_a_wrong_secret_and_an_unknown_name_get_the_same_answer(shell: Shell, file: str, name: str):
    token = made(shell, "ann", "--role", "put", "--tube", "mail")
    known, salt = logins.read_logins(file), secrets.token_bytes(32)
    texts = set()
    for attempt in (
        lambda: known.token(name, token + "x"),
        lambda: known.token(name, ""),
        lambda: known.scramble(name, salt, scrambled("wrong", salt)),
        lambda: known.scramble(name, salt, b""),
        lambda: known.scramble(name, salt, b"x" * 20),
        lambda: known.scramble(name, secrets.token_bytes(32), scrambled(token, salt)),
    ):
        with pytest.raises(AccessDenied) as refused:
            attempt()
        texts.add(str(refused.value))
    assert len(texts) == 1 and texts.pop().startswith("wrong secret, or no login ")


def test_the_hash_for_tarantool_does_not_open_the_other_way(shell: Shell, file: str):
    token = made(shell, "ann", "--role", "put", "--tube", "mail")
    known = logins.read_logins(file)
    for stolen in (Secret.of(token).sha256.hex(), Secret.of(token).chap.hex()):
        with pytest.raises(AccessDenied):
            known.token("ann", stolen)


def test_a_secret_is_replaced_in_two_steps_so_that_clients_can_change_over(shell: Shell, file: str):
    first = made(shell, "ann", "--role", "put", "--tube", "mail")
    second = made(shell, "ann", "--another")
    known = logins.read_logins(file)
    assert known.token("ann", first) == known.token("ann", second)
    third = made(shell, "ann", "--replace")
    known = logins.read_logins(file)
    known.token("ann", third)
    for old in (first, second):
        with pytest.raises(AccessDenied):
            known.token("ann", old)
    assert known.token("ann", third).rights == (logins.new_right(["put"], ["mail"]),)


def test_rights_are_granted_without_a_new_secret(shell: Shell, file: str):
    token = made(shell, "ann", "--role", "put", "--tube", "mail")
    assert made(shell, "ann", "--grant", "--role", "take", "--tube", "web") == ""
    rights = logins.read_logins(file).token("ann", token).rights
    assert rights == (logins.new_right(["put"], ["mail"]), logins.new_right(["take"], ["web"]))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--grant"], "which rights? Give --role and --tube"),
        (["--grant", "--role", "take"], "which rights?"),
        (["--remove", "--role", "put", "--tube", "mail"], "--remove forgets 'ann' with all its rights"),
    ],
    ids=" ".join,
)
def test_a_change_that_was_meant_otherwise_is_refused(shell: Shell, file: str, words: list[str], text: str):
    made(shell, "ann", "--role", "put", "--tube", "mail")
    before = Path(file).read_bytes()
    ran = shell.inside("login", "ann", *words, "--file", "logins.toml")
    assert (ran.status, ran.out) == (64, "") and text in ran.err
    assert Path(file).read_bytes() == before


def test_a_login_is_removed(shell: Shell, file: str):
    token = made(shell, "ann", "--role", "put", "--tube", "mail")
    made(shell, "ann", "--remove")
    with pytest.raises(AccessDenied):
        logins.read_logins(file).token("ann", token)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ann"], "what may it do? Give --role and --tube"),
        (["ann", "--role", "put"], "what may it do?"),
        (["ann", "--role", "boss", "--tube", "mail"], "a role is one of read, put, take, admin, got 'boss'"),
        (["ann", "--role", "put", "--tube", "a b"], "a tube is a name, or a pattern as shop.* or *, got 'a b'"),
        (['a"b', "--role", "put", "--tube", "mail"], "a login's name is 1 to 64 letters"),
        (["ann", "--remove"], "logins.toml has no login 'ann'"),
        (["ann", "--another"], "logins.toml has no login 'ann'"),
        (["ann", "--another", "--remove"], "give one of them"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_says_what_is_wrong_and_writes_nothing(shell: Shell, file: str, words: list[str], text: str):
    ran = shell.inside("login", *words, "--file", "logins.toml")
    assert (ran.status, ran.out) == (64, "") and text in ran.err
    assert not Path(file).exists()


def test_a_login_that_exists_is_not_overwritten_by_mistake(shell: Shell, file: str):
    token = made(shell, "ann", "--role", "put", "--tube", "mail")
    ran = shell.inside("login", "ann", "--role", "admin", "--tube", "*", "--file", "logins.toml")
    assert ran.status == 64 and "--replace gives it a new secret, --another one more" in ran.err
    assert logins.read_logins(file).token("ann", token).rights[0].roles == {Role.PUT}


GOOD = f'secrets = [{{sha256 = "{"0" * 64}", chap = "{"0" * 40}"}}]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[ann", "is no TOML"),
        ("ann = 3", "login 'ann'"),
        ("[ann]\nsecret = 'x'\nrights = []", "login 'ann'"),
        (f"[ann]\n{GOOD}", "login 'ann'"),
        ("[ann]\nsecrets = [{sha256 = '00', chap = '00'}]\nrights = []", "sha256 has 1 bytes, not 32"),
        (f"[ann]\n{GOOD}rights = [{{roles = 'put', tubes = ['a']}}]", "roles and tubes are lists"),
        (f"[ann]\n{GOOD}rights = [{{roles = ['boss'], tubes = ['a']}}]", "a role is one of"),
        (f"[ann]\n{GOOD}rights = [{{roles = [], tubes = ['a']}}]", "a right needs a role and a tube"),
        (f"['a b']\n{GOOD}rights = []", "login 'a b'"),
    ],
)
def test_a_file_that_is_wrong_stops_a_server_from_starting(file: str, text: str, says: str):
    Path(file).write_text(text)
    os.chmod(file, 0o600)
    with pytest.raises(UsageError, match=r"logins\.toml") as refused:
        logins.read_logins(file)
    assert says in str(refused.value)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620, 0o660, 0o666, 0o777, 0o444])
def test_a_file_that_others_can_read_or_change_is_refused(shell: Shell, file: str, mode: int):
    made(shell, "ann", "--role", "put", "--tube", "mail")
    os.chmod(file, mode)
    with pytest.raises(UsageError, match=r"other users can read or change .*: chmod 600 "):
        logins.read_logins(file)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_group_may_read_it_as_secrets_of_containers_are_mounted(shell: Shell, file: str, mode: int):
    made(shell, "ann", "--role", "put", "--tube", "mail")
    os.chmod(file, mode)
    assert list(logins.read_entries(file)) == ["ann"]


def test_a_folder_that_is_not_there_is_an_error_with_the_next_step(shell: Shell, tmp_path: Path):
    ran = shell.inside("login", "ann", "--role", "put", "--tube", "mail", "--file", "none/logins.toml")
    assert ran.status == 64 and ran.out == ""
    assert "none/logins.toml cannot be written, No such file or directory: make the folder none first" in ran.err
    assert "Traceback" not in ran.err
    (tmp_path / "plain").write_text("")
    assert shell.inside("login", "ann", "--role", "put", "--tube", "mail", "--file", "plain/logins.toml").status == 64


def test_a_file_that_is_not_there_is_an_error_with_the_next_step(file: str):
    with pytest.raises(UsageError, match=r"`penstock login NAME --file .*` makes one"):
        logins.read_logins(file)


def test_without_a_file_everybody_is_a_guest_and_certificates_name_logins():
    assert Logins().guest is Logins().token("ann", "whatever") is Logins().scramble("ann", b"", b"") is EVERYTHING
    login = Logins().certificate("worker")
    assert login.name == "worker" and login.rights == EVERYTHING.rights


def test_a_login_for_certificates_alone_has_no_secret(file: str):
    logins.write_entries(file, {"ann": logins.new_entry("ann", [logins.new_right(["put"], ["mail"])], None)})
    known = logins.read_logins(file)
    assert known.certificate("ann").name == "ann"
    for token in ("", new_token()):
        with pytest.raises(AccessDenied):
            known.token("ann", token)
    with pytest.raises(AccessDenied, match="the client certificate is of 'bob', and no login has this name"):
        known.certificate("bob")
