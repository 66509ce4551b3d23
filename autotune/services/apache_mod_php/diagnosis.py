"""Apache's diagnosis, which knows processes that run PHP from threads that pass requests on."""

from __future__ import annotations

from autotune.services.apache.diagnosis import DIAGNOSIS

__all__ = ["DIAGNOSIS"]
