"""Metrics are told of workers, so these tests have what tests of workers have."""

from __future__ import annotations

from tests.worker.conftest import _patient as _patient
from tests.worker.conftest import bench as bench
from tests.worker.conftest import later as later
from tests.worker.conftest import pair as pair
from tests.worker.conftest import q as q
