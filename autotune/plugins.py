"""Services, load generators and samplers of other packages, by their entry points.

A package has an entry point of the group `autotune.services`, `autotune.generators` or
`autotune.samplers` that names a module. The module says with ``CONTRACT`` which version of the contract
it keeps, and declares ``SERVICES``, ``GENERATORS`` or ``SAMPLERS`` as autotune's own modules do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from autotune.errors import AutotuneError

T = TypeVar("T")
# Raised whenever a plug-in written for the last one would no longer work: see docs/plug-ins.md.
CONTRACT = 1


def iterate_plugins(kind: str) -> Iterator[tuple[str, Any]]:
    """Each plug-in of this kind (``services``), by its name, and what it declares.

    Raises AutotuneError for one that cannot be read or keeps another contract.
    """
    for point in entry_points(group=f"autotune.{kind}"):
        yield point.name, _load_plugin(point, kind)


def merge_plugins(kind: str, shipped: Mapping[str, T]) -> dict[str, T]:
    """What ships and what plug-ins add to it. Raises AutotuneError for a name that is there already."""
    every = dict(shipped)
    for plugin, added in iterate_plugins(kind):
        for name, value in added.items():
            check_name_free(plugin, kind, name, every)
            every[name] = value
    return every


def check_name_free(plugin: str, kind: str, name: str, present: Collection[str]) -> None:
    """Raises AutotuneError for a name that is there already."""
    if name in present:
        raise AutotuneError(
            f"the plug-in {plugin} has {name!r} among its {kind}, and that is there already",
            hint="uninstall one of them, or give it another name",
        )


def _load_plugin(point: EntryPoint, kind: str) -> Any:
    package = point.dist.name if point.dist else point.value
    try:
        module = point.load()
        contract, values = module.CONTRACT, getattr(module, kind.upper())
    except Exception as error:  # whatever a module of somebody else's raises
        raise AutotuneError(
            f"the plug-in {point.name} of {package} cannot be read: {type(error).__name__}: {error}",
            hint=f"pip uninstall {package}",
        ) from error
    if contract != CONTRACT:
        raise AutotuneError(
            f"the plug-in {point.name} of {package} keeps version {contract} of the contract, and this"
            f" autotune has version {CONTRACT}",
            hint=f"pip install --upgrade {package if contract < CONTRACT else 'autotune'}",
        )
    return values
