from __future__ import annotations

from tests.report.conftest import copied, study

__all__ = ["copied", "study"]
