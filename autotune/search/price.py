"""What it costs to go from one configuration to another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autotune.search.lattice import Lattice, Rows
from autotune.services.base import Action


def restarts(lattice: Lattice, current: Rows, rows: Rows) -> npt.NDArray[np.float64]:
    """How many services of each row must be restarted, coming from ``current``.

    Configurations that share what needs a restart follow each other cheaply, and so come in groups.
    """
    owners = [axis.dimension.name.rpartition(".")[0] for axis in lattice.axes]
    costly = np.array([axis.dimension.parameter.action is Action.RESTART for axis in lattice.axes])
    changed = (rows != current) & costly
    services = sorted(set(owners))
    belongs = np.array([[owner == service for service in services] for owner in owners])
    return np.asarray((changed.astype(float) @ belongs > 0).sum(axis=1).astype(float))
