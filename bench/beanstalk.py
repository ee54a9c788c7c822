"""beanstalkd over TCP, when the program is there: a server on 127.0.0.1 and a small client."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from bench import phases
from bench.cell import Figures, Subject
from bench.phases import payload

NAME = "beanstalkd"
NOTE = "over TCP with a Python client, binlog without fsync: no ttl, lanes, keys or sessions"


def missing() -> str:
    return "" if shutil.which("beanstalkd") else "not present: no beanstalkd program"


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """A server with a binlog in a folder of its own; answers its port."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="beanstalkd-") as home:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", home, "-F"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(process, port)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 5
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("beanstalkd did not start")


def put_request(n: int) -> bytes:
    body = msgspec.json.encode(payload(n))
    return b"put 0 0 600 %d\r\n%b\r\n" % (len(body), body)


def is_whole(answer: bytes) -> bool:
    """RESERVED has a body of the size it names; every other answer is one line."""
    line, end, rest = answer.partition(b"\r\n")
    if not end or not line.startswith(b"RESERVED"):
        return bool(end)
    return len(rest) >= int(line.rsplit(b" ", 1)[1]) + 2


class Connections:
    """Sockets with one request each on its way, served as answers come."""

    def __init__(self, port: int, number: int, limit: float) -> None:
        self.sockets = {}
        self.poll = select.epoll()
        self.limit = limit
        for _ in range(number):
            made = socket.create_connection(("127.0.0.1", port), 5)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[made.fileno()] = made
            self.poll.register(made, select.EPOLLIN)

    def close(self) -> None:
        self.poll.close()
        for each in self.sockets.values():
            each.close()

    def run(self, count: int, first: Callable[[int], bytes], then: Callable[[bytes], bytes | None]) -> float:
        """`count` pieces of work: a first request, and the requests its answers call for. Answers the rate."""
        started = done = 0
        answers: dict[int, bytes] = {}
        start = time.perf_counter()
        for number, each in self.sockets.items():
            if started < count:
                each.sendall(first(started))
                answers[number] = b""
                started += 1
        while done < count:
            if time.perf_counter() - start > self.limit:
                raise TimeoutError(f"not done within {self.limit:g} seconds")
            for number, _ in self.poll.poll(1):
                each = self.sockets[number]
                answers[number] += each.recv(65536)
                if not is_whole(answers[number]):
                    continue
                request = then(answers[number])
                answers[number] = b""
                if request is None:
                    done += 1
                    if started == count:
                        continue
                    request = first(started)
                    started += 1
                each.sendall(request)
        return count / (time.perf_counter() - start)


def after_put(answer: bytes) -> None:
    if not answer.startswith(b"INSERTED"):
        raise RuntimeError(f"beanstalkd: {answer!r}")


def after_take(answer: bytes) -> bytes | None:
    if answer.startswith(b"RESERVED"):
        line, body = answer.split(b"\r\n", 1)
        msgspec.json.decode(body)
        return b"delete %b\r\n" % line.split(b" ")[1]
    if not answer.startswith(b"DELETED"):
        raise RuntimeError(f"beanstalkd: {answer!r}")
    return None


def cycles(folder: Path, count: int, callers: int, limit: float) -> Figures:
    with server(folder) as port:
        connections = Connections(port, callers, limit)
        try:
            warm = max(callers, min(200, count // 10))
            connections.run(warm, put_request, after_put)
            connections.run(warm, lambda n: b"reserve-with-timeout 0\r\n", after_take)
            put = connections.run(count, put_request, after_put)
            return phases.figures(put, connections.run(count, lambda n: b"reserve-with-timeout 0\r\n", after_take))
        finally:
            connections.close()


def subject(folder: Path, count: int, callers: int, limit: float) -> Subject:
    why = missing()
    name = f"{NAME} {callers} connections" if callers > 1 else NAME
    return Subject(name, None if why else partial(cycles, folder, count, callers, limit), why)
