"""Measure a deployed configuration: take readings under load, and search for its peak."""

from __future__ import annotations

from autotune.estimate import Estimate
from autotune.measure.capacity import Capacity, SearchLimits, search_peak
from autotune.measure.noise import Noise
from autotune.measure.reading import Reading
from autotune.target.slo import Slo

__all__ = ["Capacity", "Estimate", "Noise", "Reading", "SearchLimits", "Slo", "search_peak"]
