"""next() and done(err), as jobqueue has them, in a few lines over take, ack and fail.

In process, or on a server that others share: what tells them apart is a URL.

    python -m jobqueue                          in this folder; in the memory of one process
    python -m jobqueue tasks.db                 in a file
    penstock serve tasks.db --grpc-port 3302    and elsewhere:
    python -m jobqueue grpc://127.0.0.1:3302
"""

from jobqueue.client import Job, JobQueue
from jobqueue.worker import work

__all__ = ["Job", "JobQueue", "work"]
