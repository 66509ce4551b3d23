"""What Kvrocks counts; it has no log of its own here, and no move is known to help."""

from __future__ import annotations

from autotune.services.diagnosis import Diagnosis
from autotune.services.redis_protocol import CLIENT_LIMIT, COUNTERS

DIAGNOSIS = Diagnosis(counters=COUNTERS, log=None, moves={}, clients=CLIENT_LIMIT)
