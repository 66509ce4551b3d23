"""Nothing of the local cache is looked at: the application hides what it answers."""

from __future__ import annotations

from autotune.services.diagnosis import NOTHING as DIAGNOSIS

__all__ = ["DIAGNOSIS"]
