"""TLS of the doors, and where a server may listen without it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model.errors import UsageError


@dataclass(frozen=True)
class Tls:
    """Files in PEM form: the server's certificate and key, and whose client certificates are trusted."""

    cert: str
    key: str
    ca: str | None = None
    """If given, every client must show a certificate of these; its common name is the login's (mTLS)."""

    def context(self) -> ssl.SSLContext:
        """What sockets are wrapped in: TLS 1.2 or newer."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        try:
            made.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--tls-cert {self.cert} and --tls-key {self.key} cannot be used: {error}") from None
        if self.ca is not None:
            try:
                made.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"--tls-ca {self.ca} cannot be used: {error}") from None
            made.verify_mode = ssl.CERT_REQUIRED
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
