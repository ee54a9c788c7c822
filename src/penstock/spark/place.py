"""Where the queue of a query is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pyarrow as pa

from penstock.engines import Engine, scan_place
from penstock.engines.scan import Scan
from penstock.spark import stores
from penstock.spark.options import Options, resolved


class Place:
    """The option `url`, for objects that Spark sends to other processes.

    What `env:` and `file:` stand for is looked up in each of them, so no secret is sent around.
    """

    def __init__(self, options: Options) -> None:
        given, url = options.needed("url"), options.url
        there = stores.absolute(url)
        self._url = there if given == url else given
        self._machine = stores.machine()

    def store(self) -> Engine:
        """The store, open in this process until it ends."""
        return stores.store(self._here())

    def borrowed(self) -> AbstractContextManager[Engine]:
        """The store, open in this process for a while."""
        return stores.borrowed(self._here())

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Read, over one connection for it alone and without a store to keep open."""
        return scan_place(self._here(), scan)

    def _here(self) -> str:
        url = stores.absolute(resolved(self._url))
        stores.check_machine(url, self._machine)
        stores.check_there(url)
        return url
