"""TLS of the doors: certificates, and what handshakes say when they fail."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model.errors import UsageError
from penstock.wire.certificates import fault

log = logging.getLogger("penstock.server")


class Handshake(ssl.SSLObject):
    """A connection that tells the log why it could not be encrypted; event loops keep that to themselves."""

    def do_handshake(self) -> None:
        """Go on with it; the log is told of what ends it."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or str(error)
            log.warning("a client was refused, its TLS handshake failed: %s", str(why).lower().replace("_", " "))
            raise


@dataclass(frozen=True)
class Tls:
    """Files in PEM form: the server's certificate and key, and whose client certificates are trusted."""

    cert: str
    key: str
    ca: str | None = None
    """If given, every client must show a certificate of these; its common name is the login's (mTLS).

    Those who ask over HTTP whether the server is alive need none: probes have no certificates.
    """

    def context(self, demand: bool = True) -> ssl.SSLContext:
        """What sockets are wrapped in: TLS 1.2 or newer. demand=False: clients may show a certificate or not."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.sslobject_class = Handshake
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        try:
            made.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise UsageError(
                f"--tls-cert {self.cert} and --tls-key {self.key} cannot be used: {fault(error)}"
            ) from None
        if self.ca is not None:
            try:
                made.load_verify_locations(self.ca)
            except OSError as error:
                raise UsageError(f"--tls-ca {self.ca} cannot be used: {fault(error)}") from None
            made.verify_mode = ssl.CERT_REQUIRED if demand else ssl.CERT_OPTIONAL
        return made

    def contents(self) -> tuple[bytes, bytes, bytes | None]:
        """Certificate, key and trusted certificates as bytes, checked to be usable."""
        self.context()
        ca = None if self.ca is None else Path(self.ca).read_bytes()
        return Path(self.cert).read_bytes(), Path(self.key).read_bytes(), ca


def common_name(certificate: Any) -> str | None:
    """The common name of what SSLSocket.getpeercert() answered.

    >>> common_name({"subject": ((("organizationName", "Shop"),), (("commonName", "worker"),))})
    'worker'
    """
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return None
