"""The collector of garbage in processes of Spark."""

from __future__ import annotations

import functools
import gc


@functools.cache
def spare_modules() -> None:
    """Let collections pass over what is there now, which is code, and stays as long as the process.

    Spark's workers collect after every task, and all that Spark, Arrow and Penstock consist of would be looked at each
    time.
    """
    gc.freeze()
