"""The blocking facade. aio/ is made from it by tools/generate.py."""

from penstock.blocking.handler import Handler
from penstock.blocking.queue import Queue, connect
from penstock.blocking.task import Task
from penstock.blocking.tube import Lane, Tube

__all__ = ["Handler", "Lane", "Queue", "Task", "Tube", "connect"]
