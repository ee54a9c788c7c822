"""`penstock serve`: a queue on the network."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from penstock.cli import output, settings
from penstock.cli.command import command
from penstock.cli.worker import LogFormat, LogLevel
from penstock.metrics import logs
from penstock.model.errors import UsageError
from penstock.server.settings import Limits, Settings

_LONGEST_DRAIN = 86_400
_SAFE: dict[str, Any] = {"rich_help_panel": "Who may connect"}
_LIMIT: dict[str, Any] = {"rich_help_panel": "Limits"}
_TOLD: dict[str, Any] = {"rich_help_panel": "Logs"}


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(
        app,
        "serve",
        panel="Server",
        examples=[
            "penstock serve tasks.db",
            "penstock serve tasks.db --port 0 --http-port 0 --durability relaxed",
            "penstock serve tasks.db --port 0 --check --json",
        ],
    )(serve)


@dataclass(frozen=True)
class Doors:
    """Where it listens."""

    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on; one beyond this machine needs TLS.")
    ] = Settings.host
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Of penstock:// and Tarantool's protocol; 0 is a free one.")
    ] = Settings.port or 0
    grpc_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Of gRPC and grpc://, if given; usually 3302.")
    ] = None
    http_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Of /metrics, /health and /ready, if given.")
    ] = None


@dataclass(frozen=True)
class Safety:
    """Who may connect, and how."""

    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="The server's certificate, in PEM form.", **_SAFE)
    ] = None
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="The key of the certificate.", **_SAFE)] = None
    tls_ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Clients must show a certificate of these; its common name is their login.", **_SAFE
        ),
    ] = None
    logins: Annotated[
        str | None, typer.Option(metavar="FILE", help="Who may log in: `penstock login` writes it.", **_SAFE)
    ] = None

    def tls(self) -> Any:
        """Certificate, key and trusted certificates, if there are any."""
        from penstock.server.tls import Tls

        if self.tls_cert is None and self.tls_key is None:
            if self.tls_ca is not None:
                raise UsageError("--tls-ca needs --tls-cert and --tls-key: the server shows a certificate first")
            return None
        if self.tls_cert is None or self.tls_key is None:
            raise UsageError("--tls-cert and --tls-key go together")
        return Tls(self.tls_cert, self.tls_key, self.tls_ca)


@dataclass(frozen=True)
class Bounds:
    """What clients may use."""

    max_frame: Annotated[int, typer.Option(metavar="BYTES", help="Of one request.", **_LIMIT)] = Limits.frame
    max_connections: Annotated[int, typer.Option(metavar="N", help="At one time.", **_LIMIT)] = Limits.connections
    max_waiting: Annotated[int, typer.Option(metavar="N", help="Takes that wait, of all connections.", **_LIMIT)] = (
        Limits.waiting
    )
    max_unsent: Annotated[
        int, typer.Option(metavar="BYTES", help="Of answers that a client does not read; then it is cut off.", **_LIMIT)
    ] = Limits.unsent
    max_session_ttl: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a session may outlive its client.", **_LIMIT)
    ] = Limits.session_seconds

    def limits(self) -> Any:
        """As a server has them."""
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(
                    f"--{field.name.replace('_', '-')} must be at least 1, got {getattr(self, field.name)}"
                )
        return Limits(
            frame=self.max_frame,
            connections=self.max_connections,
            waiting=self.max_waiting,
            unsent=self.max_unsent,
            session_seconds=self.max_session_ttl,
        )


def serve(
    store: Annotated[
        str | None, typer.Argument(metavar="STORE", help="A file, or postgresql://..; --url is the same.")
    ] = None,
    *,
    doors: Doors,
    durability: Annotated[
        str, typer.Option(metavar="LEVEL", help="strict: what is stored survives a power cut; relaxed: kill -9.")
    ] = Settings.durability,
    drain: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long clients have to read their answers at the end, and to go over in a takeover.",
        ),
    ] = Settings.drain_seconds,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Serve in the place of the process that has the port; nobody notices.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Open the store and the doors, say where they are, and end; with --takeover, a dry run."
        ),
    ] = False,
    safety: Safety,
    bounds: Bounds,
    log_level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", help="debug, info, warning or error.", **_TOLD)
    ] = LogLevel.info,
    log_format: Annotated[LogFormat, typer.Option(metavar="FORMAT", help="text or json.", **_TOLD)] = LogFormat.text,
) -> int:
    """Put a queue on the network, for clients in any language.

    Python changes only the URL, penstock://host:3301; clients of tarantool/queue connect to the same port as they are,
    others speak gRPC. The addresses are printed on stdout, one a line, as soon as clients can connect.

    SIGTERM or Ctrl-C: let nobody in, answer what was asked, end; a second one ends at once. SIGHUP: start the same
    command anew, hand the open doors over to it, and end when nobody is connected here any more.
    """
    from penstock.server.run import run

    if not 0 <= drain <= _LONGEST_DRAIN:  # which nan is not, either
        raise UsageError(f"--drain is 0 to {_LONGEST_DRAIN} seconds, got {drain:g}")
    logs.setup(log_level.value, log_format.value)
    asked = Settings(
        url=store or settings.url(),
        host=doors.host,
        port=doors.port,
        grpc_port=doors.grpc_port,
        http_port=doors.http_port,
        durability=durability,
        drain_seconds=drain,
        limits=bounds.limits(),
        tls=safety.tls(),
        logins=safety.logins,
    )
    return run(asked, _tell, takeover, check)


def _tell(server: Any) -> None:
    """Print where the server is: for programs that have started it."""
    from penstock.server.run import addresses

    found = addresses(server)
    if not output.as_json():
        for url in found.values():
            output.line(url)
        return
    ports = {name: server.port(name) for name in found}
    output.json_line({"pid": os.getpid(), "store": server.core.engine.name, "urls": found, **ports})
