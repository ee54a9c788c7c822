"""Workers: they take tasks and call handlers."""

from penstock.worker.run import Run, current_run
from penstock.worker.tally import Hooks, Tally
from penstock.worker.worker import Worker

__all__ = ["Hooks", "Run", "Tally", "Worker", "current_run"]
