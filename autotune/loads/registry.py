"""Every generator there is. A new one is its module, its fixtures and a line here."""

from __future__ import annotations

from autotune.loads.base import Load
from autotune.loads.httperf import Httperf

LOADS: dict[str, Load] = {"httperf": Httperf()}
