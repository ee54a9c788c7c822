"""The file of logins: TOML, with hashes of secrets.

[worker]
secrets = [{sha256 = "..", chap = ".."}]
rights = [{roles = ["take"], tubes = ["mail", "shop.*"]}]
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.model.errors import UsageError, shown
from penstock.server.auth import Login, Logins, Right, Secret, new_token
from penstock.server.roles import Role

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PATTERN = re.compile(r"[A-Za-z0-9_.*?-]{1,64}")
OTHERS = 0o027
"""Rights on a file that nobody may have: a group may read it, for that is how secrets are mounted in containers."""


class Entry(NamedTuple):
    """A login, and what is stored of its secrets: two while one takes the place of the other."""

    login: Login
    secrets: tuple[Secret, ...]


def read_logins(path: str | None) -> Logins:
    """Logins of a file; None: nobody has to log in."""
    return Logins() if path is None else Logins(read_entries(path), open=False)


def read_entries(path: str) -> dict[str, Entry]:
    """What a file has, by name."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & OTHERS:
                raise UsageError(f"other users can read or change {path}: chmod 600 {path}, or 640 for a group")
            document = tomllib.load(file)
    except OSError as error:
        made = f"; `penstock login NAME --file {path}` makes one" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"the logins in {path} cannot be read: {error.strerror}{made}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    return {name: _entry(name, found, path) for name, found in document.items()}


def _entry(name: str, found: Any, path: str) -> Entry:
    try:
        if not NAME.fullmatch(name) or not isinstance(found, Mapping) or not set(found) <= {"secrets", "rights"}:
            raise ValueError("a login has secrets and rights")
        known = tuple(Secret(_hash(it, "sha256", 32), _hash(it, "chap", 20)) for it in found.get("secrets", ()))
        rights = tuple(_right(it["roles"], it["tubes"]) for it in found["rights"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"login {shown(name)} in {path} is not written as it should be: {error}") from None
    return Entry(Login(name, rights), known)


def _hash(secret: Mapping[str, str], name: str, length: int) -> bytes:
    value = bytes.fromhex(secret[name])
    if len(value) != length:
        raise ValueError(f"{name} has {len(value)} bytes, not {length}")
    return value


def _right(roles: Sequence[str], tubes: Sequence[str]) -> Right:
    if isinstance(roles, str) or isinstance(tubes, str):
        raise ValueError("roles and tubes are lists")
    return new_right(roles, tubes)


def new_right(roles: Iterable[str], tubes: Iterable[str]) -> Right:
    """Roles on tubes, checked."""
    known = [role.value for role in Role]
    for role in roles:
        if role not in known:
            raise UsageError(f"a role is one of {', '.join(known)}, got {shown(role)}")
    for tube in tubes:
        if not PATTERN.fullmatch(tube):
            raise UsageError(f"a tube is a name, or a pattern as shop.* or *, got {shown(tube)}")
    made = Right(frozenset(map(Role, roles)), tuple(tubes))
    if not made.roles or not made.tubes:
        raise UsageError("a right needs a role and a tube: --role take --tube mail")
    return made


def check_name(name: str) -> str:
    """Names of logins stand in files, URLs and logs as they are."""
    if not NAME.fullmatch(name):
        raise UsageError(f"a login's name is 1 to 64 letters, digits, _ . or -, got {shown(name)}")
    return name


def new_entry(name: str, rights: Sequence[Right], token: str | None) -> Entry:
    """A login with one secret, or with none: for client certificates."""
    return changed(Entry(Login(check_name(name)), ()), rights, (), token)


def changed(entry: Entry, rights: Sequence[Right], secrets: Sequence[Secret], token: str | None = None) -> Entry:
    """The same login with other rights and secrets, and one more of these if a token is given."""
    more = () if token is None else (Secret.of(token),)
    return Entry(Login(entry.login.name, tuple(rights)), (*secrets, *more))


def write_entries(path: str, entries: Mapping[str, Entry]) -> None:
    """Replace the file; nobody ever sees half of it, and nobody else can read it."""
    target = Path(path)
    try:
        _replace(target, target.with_name(f".{target.name}.{os.getpid()}"), entries)
    except OSError as error:
        folder = f": make the folder {target.parent} first" if not target.parent.is_dir() else ""
        raise UsageError(f"{path} cannot be written, {error.strerror}{folder}") from None


def _replace(target: Path, new: Path, entries: Mapping[str, Entry]) -> None:
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(map(_written, entries.values())))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _written(entry: Entry) -> str:
    """A login as TOML; names and patterns have no character that would have to be quoted otherwise."""
    secrets = ", ".join(f'{{sha256 = "{it.sha256.hex()}", chap = "{it.chap.hex()}"}}' for it in entry.secrets)
    rights = ", ".join(
        f"{{roles = [{_list(sorted(it.roles))}], tubes = [{_list(it.tubes)}]}}" for it in entry.login.rights
    )
    return f'["{entry.login.name}"]\nsecrets = [{secrets}]\nrights = [{rights}]\n'


def _list(values: Iterable[str]) -> str:
    return ", ".join(f'"{value}"' for value in values)


__all__ = [
    "Entry",
    "changed",
    "check_name",
    "new_entry",
    "new_right",
    "new_token",
    "read_entries",
    "read_logins",
    "write_entries",
]
