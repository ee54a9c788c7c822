"""Clients of tarantool/queue: the connector that its users have, called as they call it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tarantool


class Client:
    """One connection."""

    def __init__(self, port: int, **options: Any) -> None:
        self._connection = tarantool.Connection("127.0.0.1", port, **options)

    def call(self, function: str, *args: Any) -> Any:
        """What a function returns, as a list."""
        return self._connection.call(function, list(args)).data

    def evaluate(self, text: str, *args: Any) -> Any:
        return self._connection.eval(text, list(args)).data

    def refused(self, function: str, *args: Any) -> tuple[int, str]:
        """The code and the text of the error that a call must end with."""
        with pytest.raises(tarantool.error.DatabaseError) as caught:
            self.call(function, *args)
        code, text = caught.value.args
        return code, text.decode() if isinstance(text, bytes) else text

    def later(self, function: str, *args: Any) -> Waiting:
        """Call a function that waits."""
        return Waiting(self, function, args)

    def close(self) -> None:
        self._connection.close()


class Waiting:
    """A call that has not come back yet."""

    def __init__(self, client: Client, function: str, args: tuple[Any, ...]) -> None:
        self._answer: Any = None
        self._thread = threading.Thread(target=self._run, args=(client, function, args), daemon=True)
        self._thread.start()

    def _run(self, client: Client, function: str, args: tuple[Any, ...]) -> None:
        try:
            self._answer = client.call(function, *args)
        except Exception as error:
            self._answer = error

    def result(self) -> Any:
        self._thread.join(90)
        assert not self._thread.is_alive(), "it still waits"
        return self._answer
