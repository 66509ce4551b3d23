"""What a deployed configuration delivers: readings, its peak at the objective, where it is limited."""

from __future__ import annotations

from autotune.measure.capacity import Capacity, Limits, search
from autotune.measure.noise import Noise
from autotune.measure.posterior import Prior
from autotune.measure.reading import Reading
from autotune.target.slo import Slo

__all__ = ["Capacity", "Limits", "Noise", "Prior", "Reading", "Slo", "search"]
