"""Prevent restarts of services that store data only in memory, unless their tier allows data loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotune.parameter_name import ParameterName
from autotune.services.base import Action, AdoptedConfig
from autotune.space.dimension import AdoptedValues, Dimension
from autotune.space.space import SearchSpace
from autotune.target.model import Target
from autotune.target.read_target import TargetFile


def fix_restart_parameters(
    file: TargetFile,
    space: SearchSpace,
    adopted: Mapping[str, AdoptedConfig],
    running_values: AdoptedValues,
) -> tuple[SearchSpace, dict[str, AdoptedConfig]]:
    """In tiers whose services would lose data, fix the parameters that need a restart. Remove the files
    of services that would lose data from ``adopted``.

    Raises TargetError if the target sets a fixed parameter to a value that the running service does
    not use.
    """
    editable_files = list_editable_files(file.target, adopted)
    data_losses = {
        instance_name.partition(".")[0]: files.loses
        for instance_name, files in editable_files.items()
        if files.loses
    }
    fixed_dimensions = [
        dimension
        for dimension in space.dimensions
        if dimension.parameter.action is Action.RESTART
        and ParameterName.parse(dimension.name).tier in data_losses
    ]
    for dimension in fixed_dimensions:
        _check_data_loss(file, dimension, data_losses, running_values)
    fixed_names = {dimension.name for dimension in fixed_dimensions}
    dimensions = (
        d.fix_at_value(d.baseline) if d.name in fixed_names else d for d in space.dimensions
    )
    loss_lines = (
        f"{tier}: settings that need a restart are not tuned, because {_describe_loss(tier, data_loss)}"
        for tier, data_loss in data_losses.items()
    )
    excluded_lines = (*space.excluded, *loss_lines)
    return replace(space, dimensions=tuple(dimensions), excluded=excluded_lines), editable_files


def list_editable_files(
    target: Target, adopted: Mapping[str, AdoptedConfig]
) -> dict[str, AdoptedConfig]:
    """Return ``adopted`` without the files of services that would lose data in a restart.

    In the result, ``loses`` describes the data that a restart would lose, and is empty if the tier
    allows data loss.
    """
    return {
        instance_name: replace(files, loses="")
        if not files.loses or target.tiers[instance_name.partition(".")[0]].allow_data_loss
        else replace(files, files=())
        for instance_name, files in adopted.items()
    }


def _check_data_loss(
    file: TargetFile, dimension: Dimension, losses: Mapping[str, str], running_values: AdoptedValues
) -> None:
    parameter_name = dimension.name
    is_changed = running_values.values.get(parameter_name, dimension.baseline) != dimension.baseline
    if is_changed and parameter_name in file.target.parameters:
        tier = ParameterName.parse(parameter_name).tier
        message = (
            f"{parameter_name} = {dimension.baseline} needs a restart, but "
            f"{_describe_loss(tier, losses[tier])}"
        )
        raise file.document.build_error(["parameters", parameter_name], message)


def _describe_loss(tier: str, data_loss: str) -> str:
    return f"{data_loss}; `allow_data_loss: true` in tier {tier} allows it"
