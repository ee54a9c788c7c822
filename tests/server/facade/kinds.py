"""Kinds of tubes that clients of tarantool/queue make; the tests' client has one of each, named after its kind."""

from __future__ import annotations

KINDS = ("fifo", "fifottl", "utube", "utubettl")
TIMED = ("fifottl", "utubettl")
