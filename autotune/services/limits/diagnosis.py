"""What the limits of units are the remedy of."""

from __future__ import annotations

from autotune.services.diagnosis import Diagnosis, Resource

DIAGNOSIS = Diagnosis(counters=None, log=None, moves={Resource.DESCRIPTORS: ("nofile+",)})
