"""The program as a process of its own without the time that imports take: a fork of one that has them all.

`python starter.py SOCKET` listens until it is killed. `python starter.py SOCKET WORD..` runs the program with these
words there, with the files, folder and environment of this process, and ends as it ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

SIZE = 4
LOADED = (
    *("apsw", "psycopg", "rich.table", "uvloop"),
    *("penstock.engines.sqlite.store", "penstock.engines.postgres.store"),
    *("penstock.server.run", "penstock.server.iproto_door"),
)
"""What commands load when they need it."""


def ask(path: str, words: list[str]) -> int:
    """The exit status of a run."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        send(line, words, dict(os.environ), os.getcwd(), [0, 1, 2])
        line.recv(SIZE, socket.MSG_WAITALL)  # its pid
        return int(line.recv(SIZE) or b"255")


def send(line: socket.socket, words: list[str], environment: dict[str, str], folder: str, files: list[int]) -> None:
    """Ask for a run; what comes back is its pid, and at its end its exit status as text."""
    asked = json.dumps([words, environment, folder]).encode()
    socket.send_fds(line, [len(asked).to_bytes(SIZE, "big")], files)
    line.sendall(asked)


def listen(path: str) -> None:
    """Comes back in every run, with its words in sys.argv."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        print("ready", flush=True)
        while True:
            line, _ = door.accept()
            with line:
                size, files, *_ = socket.recv_fds(line, SIZE, 3)
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    if attended(line, int.from_bytes(size, "big"), files):
                        return
                for file in files:
                    os.close(file)


def attended(line: socket.socket, size: int, files: list[int]) -> bool:
    """Fork a run, tell its pid, wait for its end and tell how it ended; true in the run itself."""
    words, environment, folder = json.loads(line.recv(size, socket.MSG_WAITALL))
    pid = os.fork()
    if pid:
        line.sendall(pid.to_bytes(SIZE, "big"))
        for file in files:
            os.close(file)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        line.sendall(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["penstock", *words]
    return True


# What is imported for runs is imported where it is needed: a process that asks for one is to start fast.


def load() -> None:
    """Import what commands need, and let the command line read some words: it loads more for that."""
    import contextlib
    import importlib
    import io

    from penstock.cli.app import program, status_of

    for name in LOADED:
        importlib.import_module(name)
    program()
    with contextlib.redirect_stderr(io.StringIO()):
        for words in (["stats", "--url", "memory:"], ["put", "mail", "1", "--url", "memory:"]):
            status_of(words)  # refused, since a queue in memory would end with the command


def run_and_exit() -> None:
    """Run the program and end as the interpreter does, but take nothing apart.

    That would write to nearly every page that this process shares with others, which takes longer than most commands.
    """
    import atexit
    import threading

    from penstock.cli import main

    try:
        main()
        status = 0
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        status = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(status)
    os._exit(status & 0xFF)


def main() -> None:
    path, *words = sys.argv[1:]
    if words:
        sys.exit(ask(path, words))
    import gc

    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended that waited for a run
    gc.collect()
    gc.freeze()  # or every run would copy all that is loaded, to look for garbage in it
    listen(path)
    run_and_exit()


if __name__ == "__main__":
    main()
