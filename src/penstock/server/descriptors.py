"""How many files, and so connections, a process may have open."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("penstock.server")
OWN = 200
"""Descriptors that a server needs beside those of its connections: the store, its pool, doors, logs."""


def make_room(connections: int) -> int:
    """Allow this process so many connections, as far as the system lets it; answers how many that are."""
    wanted = connections + OWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    room = most - OWN
    if room < connections:
        log.warning(
            "the system allows this process %d open files, so about %d connections instead of %d: raise `ulimit -n`",
            *(most, max(0, room), connections),
        )
    return room
