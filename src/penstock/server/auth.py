"""Who may do what: logins with secrets, and their roles on tubes.

A secret is a token of 256 random bits. Only hashes of it are stored, so a file of logins that gets lost gives away no
secret; those who read it may still guess nothing, for a hash of so many random bits cannot be searched.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from penstock.model import ops
from penstock.model.errors import AccessDenied, shown
from penstock.server.roles import BY_ID, Need, Role, need, tube_of

BITS = 256
SALT = 20
"""Bytes of a greeting's salt that chap-sha1 uses."""


class Right(NamedTuple):
    """Roles on the tubes whose names match one of some patterns, as `mail` or `shop.*`."""

    roles: frozenset[Role]
    tubes: tuple[str, ...]

    def covers(self, tube: str | None) -> bool:
        """Whether it is about a tube; None: about all of them."""
        return any(pattern == "*" or (tube is not None and fnmatchcase(tube, pattern)) for pattern in self.tubes)


class Login(NamedTuple):
    """A name, and what it may do on which tubes."""

    name: str
    rights: tuple[Right, ...] = ()
    unknown: bool = False
    """True for a connection that has not logged in and has to."""

    def check(self, op: ops.Op[Any], facade: bool = False) -> None:
        """AccessDenied if the login may not do that; `facade`: by the rules of tarantool/queue."""
        if self is not EVERYTHING:
            self.require(need(type(op), facade), tube_of(op))

    def require(self, needed: Need, tube: str | None) -> None:
        """AccessDenied if the login has not what is needed on a tube; None: on all of them."""
        if self.unknown:
            raise AccessDenied(f"{needed.verb} needs a login: connect with a name and its secret")
        if needed.roles and not self.may(needed, tube):
            raise AccessDenied(_refusal(self.name, needed, tube))

    def needs_lease(self, op: Any) -> bool:
        """Whether an op names no lease, and the login may only do it with one. [rule 25]"""
        needed = BY_ID.get(type(op))
        return needed is not None and op.lease.token is None and not self.may(needed, op.tube)

    def with_lease(self, op: Any, held: Iterable[ops.Held]) -> Any:
        """The same op with the lease that its session has on the task; AccessDenied if there is none."""
        for tube, task, token in held:
            if (tube, task) == (op.tube, op.lease.id):
                return replace(op, lease=ops.Lease(task, token))
        raise AccessDenied(_refusal(self.name, BY_ID[type(op)], op.tube))

    def may(self, needed: Need, tube: str | None) -> bool:
        """Whether a right of the login is enough."""
        enough = {*needed.roles, Role.ADMIN}
        return any(
            not enough.isdisjoint(right.roles) and (needed.anywhere or right.covers(tube)) for right in self.rights
        )


def _refusal(name: str, needed: Need, tube: str | None) -> str:
    roles = " or ".join(needed.roles if len(needed.roles) < len(Role) else ("any",))
    where = "on some tube" if needed.anywhere else "on every tube, '*'" if tube is None else f"on tube {tube!r}"
    what = needed.verb if tube is None else f"{needed.verb} on tube {tube!r}"
    return f"login {name!r} may not {what}: that needs the role {roles} {where}"


ALL_RIGHTS = (Right(frozenset({Role.ADMIN}), ("*",)),)
EVERYTHING = Login("guest", ALL_RIGHTS)
"""Of clients on loopback when no logins are set up."""
NOBODY = Login("guest", unknown=True)
"""Of clients that have to log in first."""


class Secret(NamedTuple):
    """What is stored of a token."""

    sha256: bytes
    """For gRPC and whoever else sends the token itself, inside of TLS."""
    chap: bytes
    """sha1 of sha1, for those who prove that they know it: Tarantool's chap-sha1."""

    @classmethod
    def of(cls, token: str) -> Secret:
        """The hashes of a token."""
        plain = token.encode()
        return cls(hashlib.sha256(plain).digest(), hashlib.sha1(hashlib.sha1(plain).digest()).digest())

    def is_token(self, token: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self.sha256)

    def is_scramble(self, salt: bytes, scramble: bytes) -> bool:
        """Whether somebody who knows the token has made this of a salt. Compared in constant time."""
        if len(scramble) != hashlib.sha1().digest_size:
            return False
        mask = hashlib.sha1(salt[:SALT] + self.chap).digest()
        once = bytes(left ^ right for left, right in zip(scramble, mask, strict=True))
        return hmac.compare_digest(hashlib.sha1(once).digest(), self.chap)


def new_token() -> str:
    """A secret that cannot be guessed."""
    return secrets.token_urlsafe(BITS // 8)


_NOBODYS = Secret.of(new_token())
"""Compared with where there is no such login, so that the answer takes as long."""


class Logins:
    """All logins of a server; none: everybody is a guest who may do everything."""

    def __init__(self, known: Mapping[str, tuple[Login, Sequence[Secret]]] | None = None, open: bool = True) -> None:
        self._known = dict(known or {})
        self._open = open
        """True if there is no file of logins: certificates, or being on this machine, are enough."""

    @property
    def guest(self) -> Login:
        """What a connection is before it has logged in."""
        return EVERYTHING if self._open else NOBODY

    def scramble(self, name: str, salt: bytes, scramble: bytes) -> Login:
        """Log in by chap-sha1; AccessDenied."""
        return self._find(name, lambda secret: secret.is_scramble(salt, scramble))

    def token(self, name: str, token: str) -> Login:
        """Log in by the secret itself; AccessDenied."""
        return self._find(name, lambda secret: secret.is_token(token))

    def certificate(self, name: str) -> Login:
        """Log in by a client certificate that TLS has verified; its common name is the login's."""
        if self._open:
            return Login(name, ALL_RIGHTS)
        found = self._known.get(name)
        if found is None:
            raise AccessDenied(f"the client certificate is of {shown(name)}, and no login has this name")
        return found[0]

    def _find(self, name: str, matches: Callable[[Secret], bool]) -> Login:
        if self._open:
            return EVERYTHING  # whatever a client says of itself: nobody is asked
        login, known = self._known.get(name, (NOBODY, (_NOBODYS,)))
        # Every one is looked at: how long it takes says nothing.
        matching = [matches(secret) for secret in known]
        if not any(matching):
            raise AccessDenied(f"wrong secret, or no login {shown(name)}")
        return login
