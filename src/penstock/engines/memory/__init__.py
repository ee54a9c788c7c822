"""The memory engine: the reference that the others are compared with."""

from penstock.engines.memory.store import MemoryStore, MemoryTransaction
from penstock.engines.memory.tube import MemoryTube

__all__ = ["MemoryStore", "MemoryTransaction", "MemoryTube"]
