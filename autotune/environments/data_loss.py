"""Keep services running that store data only in memory, unless their tier allows data loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Own
from autotune.space.dimension import Dimension, Running
from autotune.space.space import Space
from autotune.target.model import Target
from autotune.target.read import TargetFile


def without_restarts(
    file: TargetFile, space: Space, own: Mapping[str, Own], running: Running
) -> tuple[Space, dict[str, Own]]:
    """Fix restart parameters in tiers that would lose data, and omit these services' files from
    ``own``.

    Raises TargetError if the target sets another value than the running one.
    """
    left = editable_files(file.target, own)
    losses = {part.partition(".")[0]: files.loses for part, files in left.items() if files.loses}
    fixed = [
        dimension
        for dimension in space.dimensions
        if dimension.parameter.action is Action.RESTART
        and ParameterName.parse(dimension.name).tier in losses
    ]
    for dimension in fixed:
        _check(file, dimension, losses, running)
    names = {dimension.name for dimension in fixed}
    dimensions = (d.fixed_at(d.baseline) if d.name in names else d for d in space.dimensions)
    lines = (f"{tier}: settings that need a restart are not tuned, because {_why(tier, loss)}"
             for tier, loss in losses.items())  # fmt: skip
    dropped = (*space.dropped, *lines)
    return replace(space, dimensions=tuple(dimensions), dropped=dropped), left


def editable_files(target: Target, own: Mapping[str, Own]) -> dict[str, Own]:
    """Return ``own`` without the files of services that would lose data in a restart.

    ``loses`` is the loss of such a service. It is empty if the tier allows data loss.
    """
    return {
        part: replace(files, loses="")
        if not files.loses or target.tiers[part.partition(".")[0]].allow_data_loss
        else replace(files, files=())
        for part, files in own.items()
    }


def _check(
    file: TargetFile, dimension: Dimension, losses: Mapping[str, str], running: Running
) -> None:
    name = dimension.name
    changed = running.values.get(name, dimension.baseline) != dimension.baseline
    if changed and name in file.target.parameters:
        tier = ParameterName.parse(name).tier
        message = f"{name} = {dimension.baseline} needs a restart, but {_why(tier, losses[tier])}"
        raise file.document.error(["parameters", name], message)


def _why(tier: str, loss: str) -> str:
    return f"{loss}; `allow_data_loss: true` in tier {tier} allows it"
