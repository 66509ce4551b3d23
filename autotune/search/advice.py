"""Moves that were advised for a configuration, because of what held it down.

A diagnosis names the limit of what was just measured (too few workers, connections refused). It
tells more than the measurement's number: of a hundred parameters, which to move, and where to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from autotune.search.lattice import Lattice, Rows

STEP = (
    0.1  # of a parameter's range: on a logarithmic one from 2 to 512 children nearly twice as many
)
_MOVE = re.compile(r"(?P<name>[^=+]+?)(?:(?P<way>[+-])|=(?P<choice>.*))")


def followers(lattice: Lattice, homes: Rows, moves: Sequence[Sequence[str]]) -> Rows:
    """Each of ``homes`` with its moves made, all together and each alone, and nothing else changed.

    ``moves``: for each home `name+`, `name-` or `name=choice`; others than the lattice's parameters,
    and choices that are not on offer, are left out.
    """
    made = [np.empty((0, len(lattice.axes)), np.intp)]
    for home, told in zip(homes, moves, strict=True):
        moved = _moved(lattice, home, told)
        changed = np.flatnonzero(moved != home)
        if len(changed):
            alone = np.tile(home, (len(changed), 1))
            alone[np.arange(len(changed)), changed] = moved[changed]
            made += [moved[None, :], alone]
    return np.vstack(made)


def _moved(lattice: Lattice, home: Rows, told: Sequence[str]) -> Rows:
    index = {axis.dimension.name: i for i, axis in enumerate(lattice.axes)}
    moved = home.copy()
    for found in filter(None, map(_MOVE.fullmatch, told)):
        at = index.get(found["name"])
        if at is None:
            continue
        axis = lattice.axes[at]
        if axis.ordered and found["way"]:
            by = max(1, round(STEP * len(axis.values)))
            level = home[at] + (by if found["way"] == "+" else -by)
            moved[at] = min(max(level, 0), len(axis.values) - 1)
        elif not axis.ordered and found["choice"] in axis.values:
            moved[at] = axis.values.index(found["choice"])
    return moved
