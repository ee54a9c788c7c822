"""The collector of garbage in processes of Spark."""

from __future__ import annotations

import functools
import gc


@functools.cache
def spare_modules() -> None:
    """Let collections pass over what is there now, which is code, and stays as long as the process.

    Spark's workers collect after every task. Looking at all that Spark, Arrow and Penstock consist of takes 40 ms of a
    core each time, which is more than a partition of some ten thousand rows needs.
    """
    gc.freeze()
