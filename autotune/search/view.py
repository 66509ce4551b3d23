"""What the model believes, in numbers that a report can draw without the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import exp
from typing import Any

import numpy as np

from autotune.search import importance
from autotune.search.evidence import stretched
from autotune.search.landscape import Landscape

SLICES = 8  # parameters, those that matter most
POINTS = 41  # of a slice
WITHIN_90 = 1.645  # sds either side of the mean that hold 90 % of a normal


def view(landscape: Landscape, anova: Mapping[str, float]) -> dict[str, Any]:
    """As JSON: ``importance`` (``effect`` is a log ratio), ``pairs``, ``edges``, and ``slices`` of the
    parameters that matter most, through the configuration believed to be the best: ``x``, ``mean``
    and the 90 % band ``low`` to ``high``, as peaks."""
    best = landscape.evidence.rows[landscape.best()]
    effects = importance.effects(landscape)
    return {
        "importance": [
            {"parameter": name, "effect": round(effect, 4), "ped_anova": anova.get(name)}
            for name, effect in effects.items()
        ],
        "pairs": [asdict(pair) for pair in importance.pairs(landscape)],
        "edges": [asdict(edge) for edge in importance.edges(landscape, best)],
        "slices": {name: _slice(landscape, name) for name in list(effects)[:SLICES]},
    }


def _slice(landscape: Landscape, name: str) -> dict[str, list[Any]]:
    axes = landscape.lattice.axes
    d = next(d for d, axis in enumerate(axes) if axis.dimension.name == name)
    count = len(axes[d].values)
    levels = np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))
    rows = np.repeat(landscape.evidence.rows[landscape.best()][None, :], len(levels), axis=0)
    rows[:, d] = levels
    mean, sd = landscape.predict(rows)
    scale = exp(landscape.evidence.heights.max())

    def peaks(heights: Any) -> list[float]:
        # Peaks of a benchmark command may be of any size.
        return [float(f"{scale * np.exp(h):.6g}") for h in stretched(heights)]

    return {
        "x": [axes[d].values[level] for level in levels],
        "mean": peaks(mean),
        "low": peaks(mean - WITHIN_90 * sd),
        "high": peaks(mean + WITHIN_90 * sd),
    }
