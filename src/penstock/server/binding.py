"""Where a server may listen: beyond this machine only with TLS, and with logins or client certificates."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from penstock.model.errors import UsageError
from penstock.server.listening import is_loopback
from penstock.server.settings import Settings


def check_binding(settings: Settings, sockets: Mapping[str, socket.socket] | None = None) -> None:
    """Refuse to be open to a network; each text says what is missing. Sockets that were given have addresses, too."""
    given = [str(sock.getsockname()[0]) for sock in (sockets or {}).values() if sock.family != socket.AF_UNIX]
    for host in (settings.host, *given):
        if not is_loopback(host):
            _check_open(settings, host)


def _check_open(settings: Settings, host: str) -> None:
    if settings.tls is None:
        raise UsageError(
            f"{host} can be reached from other machines, so what is sent must be encrypted: give --tls-cert and "
            "--tls-key, or leave out --host to listen on 127.0.0.1"
        )
    if settings.logins is None and settings.tls.ca is None:
        raise UsageError(
            f"{host} can be reached from other machines, so clients must say who they are: give --logins FILE "
            "(`penstock login NAME --file FILE` makes it), or --tls-ca for client certificates"
        )
