"""The Spark session of commands, as far as no Spark is needed; the rest is in tests/spark/test_pipeline.py."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.pipeline.session import deferred_signals


def test_a_signal_during_the_start_is_handled_when_it_is_over():
    done = list[str]()

    def start() -> None:
        with deferred_signals():
            signal.raise_signal(signal.SIGINT)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_spark_has_set_stays():
    before = signal.getsignal(signal.SIGINT)
    received = list[int]()

    def handler(number: int, frame: object) -> None:
        received.append(number)

    try:
        with deferred_signals():
            signal.raise_signal(signal.SIGINT)
            signal.signal(signal.SIGINT, handler)
        assert received == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_start_in_another_thread_leaves_signals_alone():
    def start() -> object:
        with deferred_signals():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(start).result() is signal.getsignal(signal.SIGINT)
