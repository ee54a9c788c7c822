"""Who may connect from where: plain, TLS and client certificates, with and without secrets, through each door."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import tarantool
import trustme
from tarantool.error import DatabaseError, NetworkError, SslError
from tests.support.forks import ForkedShell
from tests.support.servers import Running
from tests.support.serving import Serving

import penstock
from penstock.model.errors import AccessDenied, EngineUnavailable, UsageError
from penstock.server import logins
from penstock.server.auth import new_token
from penstock.server.binding import check_binding
from penstock.server.settings import Limits, Settings
from penstock.server.tls import Tls


class Papers(NamedTuple):
    """Files of a test: certificates, and a secret."""

    ca: str
    other_ca: str
    server: tuple[str, str]
    client: tuple[str, str]
    """Of common name `ann`, who has a login."""
    stranger: tuple[str, str]
    """Of common name `eve`, who has none."""
    forged: tuple[str, str]
    """Of common name `ann`, by an authority that is not trusted."""
    logins: str
    secret: str


def issued(authority: trustme.CA, folder: Path, name: str, *hosts: str, common_name: str | None = None) -> Any:
    cert = authority.issue_cert(*hosts, common_name=common_name)
    chain, key = folder / f"{name}.pem", folder / f"{name}.key"
    chain.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    key.write_bytes(cert.private_key_pem.bytes())
    return os.fspath(chain), os.fspath(key)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    folder = tmp_path_factory.mktemp("papers")
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    secret, file = new_token(), os.fspath(folder / "logins.toml")
    logins.write_entries(file, {"ann": logins.new_entry("ann", [logins.new_right(["admin"], ["*"])], secret)})
    return Papers(
        ca=os.fspath(folder / "ca.pem"),
        other_ca=os.fspath(folder / "other.pem"),
        server=issued(authority, folder, "server", "127.0.0.1", "localhost"),
        client=issued(authority, folder, "client", "ann.example", common_name="ann"),
        stranger=issued(authority, folder, "stranger", "eve.example", common_name="eve"),
        forged=issued(other, folder, "forged", "ann.example", common_name="ann"),
        logins=file,
        secret=secret,
    )


MODES = ("plain", "tls", "mtls")


class Place(NamedTuple):
    """A server of one of the modes."""

    running: Running
    mode: str
    with_logins: bool
    papers: Papers

    @property
    def port(self) -> int:
        return self.running.server.port()

    def url(self, scheme: str, secret: str | None, cert: tuple[str, str] | None) -> str:
        door = "port" if scheme == "penstock" else "grpc_port"
        login = f"ann:{secret}@" if secret else ""
        query = ""
        if self.mode != "plain":
            query = f"?tls=on&ca={self.papers.ca}"
            if cert is not None:
                query += f"&cert={cert[0]}&key={cert[1]}"
        return f"{scheme}://{login}127.0.0.1:{self.running.server.port(door)}{query}"

    def tarantool(self, secret: str | None, cert: tuple[str, str] | None) -> tarantool.Connection:
        more: dict[str, Any] = {"user": "ann", "password": secret} if secret else {}
        if self.mode != "plain":
            more |= {"transport": "ssl", "ssl_ca_file": self.papers.ca}
            if cert is not None:
                more |= {"ssl_cert_file": cert[0], "ssl_key_file": cert[1]}
        return tarantool.Connection("127.0.0.1", self.port, reconnect_max_attempts=0, connection_timeout=90, **more)


@pytest.fixture(
    scope="module", params=[(mode, with_logins) for mode in MODES for with_logins in (False, True)], ids=str
)
def place(request: pytest.FixtureRequest, papers: Papers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    mode, with_logins = request.param
    tmp_path = tmp_path_factory.mktemp("place")
    tls = None if mode == "plain" else Tls(*papers.server, papers.ca if mode == "mtls" else None)
    file = papers.logins if with_logins else None
    with Running(f"{tmp_path}/tasks.db", tls=tls, logins=file, grpc_port=0) as running:
        yield Place(running, mode, with_logins, papers)


def allowed(place: Place, secret: bool, cert: bool) -> bool:
    """The rule of all doors: a certificate where one is asked for, and a login where there are logins."""
    if place.mode == "mtls" and not cert:
        return False
    return not place.with_logins or secret or (place.mode == "mtls" and cert)


WAYS = [(secret, cert) for secret in (False, True) for cert in (False, True)]


@pytest.mark.parametrize(("secret", "cert"), WAYS, ids=lambda it: str(it))
def test_clients_of_tarantool(place: Place, secret: bool, cert: bool):
    def use() -> None:
        client = place.tarantool(place.papers.secret if secret else None, place.papers.client if cert else None)
        try:
            assert client.call("queue.state").data == ["RUNNING"]
        finally:
            client.close()

    if allowed(place, secret, cert):
        use()
    else:
        with pytest.raises((DatabaseError, NetworkError, SslError)) as refused:
            use()
        if not (place.mode == "mtls" and not cert):
            assert "denied for user 'guest'" in str(refused.value)


@pytest.mark.parametrize("scheme", ["penstock", "grpc"])
@pytest.mark.parametrize(("secret", "cert"), WAYS, ids=lambda it: str(it))
def test_urls_of_the_library(place: Place, scheme: str, secret: bool, cert: bool):
    url = place.url(scheme, place.papers.secret if secret else None, place.papers.client if cert else None)

    def use() -> None:
        with penstock.connect(url) as queue:
            tube = queue.create_tube("mail", if_not_exists=True)
            tube.put({"n": 1})
            task = tube.take()
            assert task is not None
            task.ack()

    if allowed(place, secret, cert):
        use()
    else:
        with pytest.raises((AccessDenied, EngineUnavailable)):
            use()


def test_a_wrong_secret_is_refused_whatever_the_transport(papers: Papers, tmp_path: Path):
    with Running(f"{tmp_path}/tasks.db", logins=papers.logins, grpc_port=0) as running:
        place = Place(running, "plain", True, papers)
        with pytest.raises(DatabaseError, match="Incorrect password supplied for user 'ann'"):
            place.tarantool("wrong", None)
        for scheme in ("penstock", "grpc"):
            with pytest.raises(AccessDenied, match=r"wrong secret|does not let 'ann' in"):
                penstock.connect(place.url(scheme, "wrong", None)).tubes()


def wrapped(port: int, ca: str, cert: tuple[str, str] | None = None, **settings: Any) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=ca)
    for name, value in settings.items():
        setattr(context, name, value)
    if cert is not None:
        context.load_cert_chain(*cert)
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 90), server_hostname="127.0.0.1")


def greeted(connection: ssl.SSLSocket) -> bool:
    """Whether a server greets; what it does not like about a client it says after the handshake."""
    with connection:
        try:
            return connection.recv(128).startswith(b"Tarantool ")
        except (ssl.SSLError, ConnectionError):
            return False


def test_certificates_are_verified_on_both_sides(papers: Papers, tmp_path: Path):
    with Running(f"{tmp_path}/tasks.db", tls=Tls(*papers.server, papers.ca), logins=papers.logins) as running:
        port = running.server.port()
        assert greeted(wrapped(port, papers.ca, papers.client))
        assert not greeted(wrapped(port, papers.ca, papers.forged))
        assert not greeted(wrapped(port, papers.ca, papers.stranger))
        assert not greeted(wrapped(port, papers.ca))
        with pytest.raises(ssl.SSLCertVerificationError):
            wrapped(port, papers.other_ca, papers.client)


def test_certificates_alone_are_enough_where_there_are_no_logins(papers: Papers, tmp_path: Path):
    with Running(f"{tmp_path}/tasks.db", tls=Tls(*papers.server, papers.ca)) as running:
        assert greeted(wrapped(running.server.port(), papers.ca, papers.stranger))


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_old_versions_of_tls_are_refused(papers: Papers, tmp_path: Path):
    with Running(f"{tmp_path}/tasks.db", tls=Tls(*papers.server)) as running:
        port = running.server.port()
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert greeted(wrapped(port, papers.ca, minimum_version=version, maximum_version=version))
        old = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            wrapped(port, papers.ca, minimum_version=old, maximum_version=old)


def test_plain_bytes_to_an_encrypted_port_close_only_their_own_connection(papers: Papers, tmp_path: Path):
    with Running(f"{tmp_path}/tasks.db", tls=Tls(*papers.server)) as running:
        with socket.create_connection(("127.0.0.1", running.server.port()), 90) as plain:
            plain.sendall(b"\xce\x00\x00\x00\x05hello")
            answer = b""
            try:
                while more := plain.recv(1000):
                    answer += more
            except ConnectionError:
                pass
            assert not answer.startswith(b"Tarantool")
        assert greeted(wrapped(running.server.port(), papers.ca))


def test_who_does_not_finish_the_handshake_is_closed(papers: Papers, tmp_path: Path):
    limits = Limits(login_seconds=0.2)
    running = Running(f"{tmp_path}/tasks.db", tls=Tls(*papers.server), limits=limits)
    with running, socket.create_connection(("127.0.0.1", running.server.port()), 90) as silent:
        assert silent.recv(100) == b""


def test_a_certificate_and_a_key_that_do_not_belong_together_are_refused(papers: Papers):
    with pytest.raises(UsageError, match="cannot be used"):
        Tls(papers.server[0], papers.client[1]).context()
    with pytest.raises(UsageError, match=r"--tls-ca .* cannot be used"):
        Tls(*papers.server, papers.server[1]).context()


OPEN = ("0.0.0.0", "::", "192.0.2.1", "queue.example.org")


@pytest.mark.parametrize("host", OPEN)
@pytest.mark.parametrize(
    ("tls", "with_logins", "text"),
    [
        (None, False, "so what is sent must be encrypted: give --tls-cert and --tls-key, or leave out --host"),
        (None, True, "so what is sent must be encrypted: give --tls-cert and --tls-key, or leave out --host"),
        ("tls", False, "so clients must say who they are: give --logins FILE"),
        ("tls", True, None),
        ("mtls", False, None),
        ("mtls", True, None),
    ],
)
def test_a_host_beyond_this_machine_needs_tls_and_logins_or_client_certificates(
    host: str, tls: str | None, with_logins: bool, text: str | None
):
    asked = Settings(
        "tasks.db",
        host,
        tls=None if tls is None else Tls("cert", "key", "ca" if tls == "mtls" else None),
        logins="logins.toml" if with_logins else None,
    )
    if text is None:
        check_binding(asked)
    else:
        with pytest.raises(UsageError) as refused:
            check_binding(asked)
        assert str(refused.value).startswith(f"{host} can be reached from other machines, ") and text in str(
            refused.value
        )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_loopback_needs_nothing(host: str):
    check_binding(Settings("tasks.db", host))


def test_a_socket_that_was_handed_over_is_looked_at_too():
    with socket.create_server(("0.0.0.0", 0)) as given, pytest.raises(UsageError, match=r"0\.0\.0\.0 can be reached"):
        check_binding(Settings("tasks.db"), {"port": given})


def test_the_command_refuses_before_it_listens(tmp_path: Path, papers: Papers):
    shell = ForkedShell("tasks.db", tmp_path)
    ran = shell.run("serve", "--host", "0.0.0.0", "--port", "0")
    assert ran.status == 64 and "0.0.0.0 can be reached from other machines" in ran.err
    assert not (tmp_path / "tasks.db").exists()
    words = ["--host", "0.0.0.0", "--port", "0", "--tls-cert", papers.server[0], "--tls-key", papers.server[1]]
    assert shell.run("serve", *words).status == 64
    ran = shell.run("serve", *words, "--logins", papers.logins, "--check")
    assert ran.status == 0, ran.err
    assert ran.out.startswith("penstock://0.0.0.0:") and ran.out.strip().endswith("?tls=on")


def test_gRPC_reads_the_same_files(papers: Papers):
    cert, key, ca = Tls(*papers.server, papers.ca).contents()
    assert grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True) is not None


def fetched(running: Running, path: str, ca: str, cert: tuple[str, str] | None = None, **headers: str) -> int:
    """The status that HTTPS answers."""
    context = ssl.create_default_context(cafile=ca)
    if cert is not None:
        context.load_cert_chain(*cert)
    request = urllib.request.Request(f"https://127.0.0.1:{running.server.port('http_port')}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=90, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("with_logins", [False, True])
def test_probes_need_no_certificate_and_metrics_do(papers: Papers, tmp_path: Path, with_logins: bool):
    tls = Tls(*papers.server, papers.ca)
    file = papers.logins if with_logins else None
    basic = "Basic " + base64.b64encode(f"ann:{papers.secret}".encode()).decode()
    with Running(f"{tmp_path}/tasks.db", tls=tls, logins=file, http_port=0) as running:
        for path in ("/health", "/ready"):
            assert fetched(running, path, papers.ca) == 200
        assert fetched(running, "/metrics", papers.ca) == 403
        assert fetched(running, "/metrics", papers.ca, Authorization=basic) == 403
        assert fetched(running, "/metrics", papers.ca, papers.client) == 200
        assert fetched(running, "/metrics", papers.ca, papers.stranger) == (403 if with_logins else 200)
        with pytest.raises(OSError):
            fetched(running, "/metrics", papers.ca, papers.forged)


def test_failed_handshakes_and_logins_are_told_to_the_log(
    papers: Papers, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    tls = Tls(*papers.server, papers.ca)
    with Running(f"{tmp_path}/tasks.db", tls=tls, logins=papers.logins, http_port=0) as running:
        port = running.server.port()
        assert not greeted(wrapped(port, papers.ca, papers.forged))
        assert not greeted(wrapped(port, papers.ca))
        with pytest.raises(ssl.SSLCertVerificationError):
            wrapped(port, papers.other_ca, papers.client)
        wrong = "Basic " + base64.b64encode(b"ann:wrong").decode()
        assert fetched(running, "/metrics", papers.ca, papers.client, Authorization=wrong) == 401
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    start = "a client was refused, its TLS handshake failed: "
    assert sum(text.startswith(start) for text in told) == 3, told
    assert f"{start}peer did not return a certificate" in told
    assert [text for text in told if "HTTP" in text] == [
        "127.0.0.1 was refused over HTTP: wrong secret, or no login 'ann'"
    ]


def test_so_they_are_by_a_server_with_the_loop_of_the_program(papers: Papers, tmp_path: Path):
    words = ["--tls-cert", papers.server[0], "--tls-key", papers.server[1], "--tls-ca", papers.ca]
    with Serving(tmp_path, "tasks.db", *words) as server:
        assert not greeted(wrapped(server.port, papers.ca))
        server.err.said("a client was refused, its TLS handshake failed: peer did not return a certificate")


def complaint(url: str) -> str:
    """What a client says that cannot get in."""
    with pytest.raises((EngineUnavailable, AccessDenied)) as refused:
        penstock.connect(url).tubes()
    return str(refused.value)


@pytest.mark.parametrize("scheme", ["penstock", "grpc"])
def test_a_client_says_what_to_change_in_its_url(
    papers: Papers, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
):
    from penstock.engines.remote import iproto_link

    monkeypatch.setattr(iproto_link, "CONNECT_SECONDS", 60)
    monkeypatch.setattr(iproto_link, "SILENT", 0.05)
    mine, others = ("port", "grpc_port") if scheme == "penstock" else ("grpc_port", "port")
    store, tls, mtls = f"{tmp_path}/tasks.db", Tls(*papers.server), Tls(*papers.server, papers.ca)
    with (
        Running(store, grpc_port=0) as plain,
        Running(store, grpc_port=0, tls=tls) as encrypted,
        Running(store, grpc_port=0, tls=mtls) as mutual,
        Running(store, grpc_port=0, tls=Tls(*papers.client)) as elsewhere,
        Running(store, grpc_port=0, logins=papers.logins) as guarded,
    ):

        def at(running: Running, query: str = "", door: str = mine) -> str:
            return complaint(f"{scheme}://127.0.0.1:{running.server.port(door)}{query}")

        trusting = f"?tls=on&ca={papers.ca}"
        assert "if it is encrypted add ?tls=on to the URL" in at(encrypted)
        assert "does not encrypt: leave tls=on out of the URL" in at(plain, trusting)
        assert "is not trusted here: name that of its authority by &ca=FILE (" in at(encrypted, "?tls=on")
        assert f"by &ca=FILE instead of {papers.other_ca}" in at(encrypted, f"?tls=on&ca={papers.other_ca}")
        assert "is not for 127.0.0.1: connect to a name that it has" in at(elsewhere, trusting)
        assert "if it wants client certificates add &cert=FILE&key=FILE" in at(mutual, trusting)
        forged, key = papers.forged
        assert f"it may not trust the client certificate {forged}" in at(mutual, f"{trusting}&cert={forged}&key={key}")
        assert "port of its own" in at(plain, door=others)
        assert f"{scheme}://NAME:SECRET@host:port" in at(guarded)
