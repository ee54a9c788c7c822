"""Where handlers run: in the loop, in threads, in processes."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.worker.processes import Processes
from penstock.worker.run import Run


class Runners:
    """Calls handlers where they belong."""

    def __init__(self, slots: int, processes: int | None) -> None:
        self._threads = ThreadPoolExecutor(slots, "penstock handler")
        self._processes = Processes(processes)

    async def call(self, run: Run, value: Any) -> Any:
        """Call the handler of a run with its decoded data."""
        handler = run.handler
        more = {} if handler.run_name is None else {handler.run_name: run}
        if handler.is_async:
            return await handler.function(value, **more)
        if handler.process:
            return await self._processes.call(run)
        run.thread = True
        context = contextvars.copy_context()
        calling = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(handler.function, value, **more)
        )
        # A thread cannot be stopped: whoever wants the slot back has to wait for it.
        return await asyncio.shield(calling)

    def renew(self) -> None:
        """Code has changed: processes start anew, each once it has done what it is doing."""
        self._processes.renew()

    async def close(self) -> None:
        await self._processes.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
