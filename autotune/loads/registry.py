"""Every generator there is. A new one is its module, its fixtures and a line here."""

from __future__ import annotations

from autotune.loads.base import Load
from autotune.loads.httperf import Httperf
from autotune.target.read import TargetFile

LOADS: dict[str, Load] = {"httperf": Httperf()}


def chosen(file: TargetFile) -> Load:
    """The generator a target names. Raises TargetError for one that does not exist."""
    load = LOADS.get(file.target.load.generator)
    if load is None:
        raise file.document.unknown(["load", "generator"], "generator", LOADS)
    return load
