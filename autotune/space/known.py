"""Configurations that the user knows and wants tried first (``try:``)."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.services.base import Value
from autotune.space.dimension import Dimension
from autotune.space.values import value_of
from autotune.target.read import TargetFile


def known(file: TargetFile, dimensions: Sequence[Dimension]) -> tuple[dict[str, Value], ...]:
    """What each entry has otherwise than the baseline, in the order written.

    Raises TargetError for a parameter there is not, or a value that it cannot have.
    """
    by_name = {dimension.name: dimension for dimension in dimensions}
    found = []
    for index, entry in enumerate(file.target.known):
        for name in entry:
            if name not in by_name:
                raise file.document.unknown(["try", index, name], "parameter", by_name)
        found.append(
            {
                name: value_of(file, by_name[name], ("try", index, name), written)
                for name, written in entry.items()
            }
        )
    return tuple(found)
