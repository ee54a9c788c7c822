"""The awaiting facade: the same names and signatures as blocking/, from which its files are made."""

from penstock.aio.handler import AsyncHandler
from penstock.aio.queue import AsyncQueue, aconnect
from penstock.aio.task import AsyncTask
from penstock.aio.tube import AsyncLane, AsyncTube

__all__ = ["AsyncHandler", "AsyncLane", "AsyncQueue", "AsyncTask", "AsyncTube", "aconnect"]
