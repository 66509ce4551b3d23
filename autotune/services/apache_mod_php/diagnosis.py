"""Diagnosis of Apache that distinguishes processes that run PHP from threads that proxy
requests.
"""

from __future__ import annotations

from autotune.services.apache.diagnosis import DIAGNOSIS

__all__ = ["DIAGNOSIS"]
