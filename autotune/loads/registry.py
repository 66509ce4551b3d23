"""Every generator there is. A new one is its module, its fixtures and a line here."""

from __future__ import annotations

from autotune.loads.ab import Ab
from autotune.loads.base import Load
from autotune.loads.closed import ClosedLoad
from autotune.loads.httperf import Httperf
from autotune.loads.wrk import Wrk
from autotune.target.read import TargetFile

# Closed loops, the first one that a load host has is taken.
CLOSED: dict[str, ClosedLoad] = {"ab": Ab(), "wrk": Wrk()}
LOADS: dict[str, Load] = {"httperf": Httperf()}


def chosen(file: TargetFile) -> Load:
    """The generator a target names. Raises TargetError for one that does not exist."""
    load = LOADS.get(file.target.load.generator)
    if load is None:
        raise file.document.unknown(["load", "generator"], "generator", LOADS)
    return load
