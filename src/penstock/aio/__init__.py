"""The awaiting facade: the same names and signatures as blocking/, from which its files are made."""

from penstock.aio.queue import AsyncQueue, aconnect
from penstock.aio.task import AsyncTask
from penstock.aio.tube import AsyncLane, AsyncTube

__all__ = ["AsyncLane", "AsyncQueue", "AsyncTask", "AsyncTube", "aconnect"]
