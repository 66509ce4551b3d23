"""Services, load generators and samplers from other packages, found by their entry points.

A package declares an entry point in the group `autotune.services`, `autotune.generators` or
`autotune.samplers` that refers to a module. The module sets ``CONTRACT``, the version of the
contract that it implements. The module declares ``SERVICES``, ``GENERATORS`` or ``SAMPLERS`` like
autotune's own modules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from autotune.errors import AutotuneError

T = TypeVar("T")
# Increase this version with each change that breaks existing plug-ins: see docs/plug-ins.md.
CONTRACT = 1


def iterate_plugins(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the declarations of each plug-in of a kind, such as ``services``.

    Raises AutotuneError if a plug-in cannot be loaded or implements another version of the
    contract.
    """
    for entry_point in entry_points(group=f"autotune.{kind}"):
        yield entry_point.name, _load_plugin(entry_point, kind)


def merge_plugins(kind: str, shipped_entries: Mapping[str, T]) -> dict[str, T]:
    """Return the services, generators or samplers of autotune and of plug-ins, by name.

    Raises AutotuneError for a duplicate name.
    """
    merged_plugins = dict(shipped_entries)
    for plugin, declarations in iterate_plugins(kind):
        for declared_name, declaration in declarations.items():
            check_name_free(plugin, kind, declared_name, merged_plugins)
            merged_plugins[declared_name] = declaration
    return merged_plugins


def check_name_free(
    plugin: str, kind: str, declared_name: str, taken_names: Collection[str]
) -> None:
    """Raise AutotuneError if ``declared_name``, which a plug-in declares, is already taken."""
    if declared_name in taken_names:
        raise AutotuneError(
            f"the plug-in {plugin} declares {declared_name!r} in its {kind}, but that name is taken",
            hint="uninstall one of the two packages, or rename the entry",
        )


def _load_plugin(entry_point: EntryPoint, kind: str) -> Any:
    package = entry_point.dist.name if entry_point.dist else entry_point.value
    try:
        module = entry_point.load()
        contract, declarations = module.CONTRACT, getattr(module, kind.upper())
    except Exception as error:  # foreign code may raise anything
        raise AutotuneError(
            f"cannot load the plug-in {entry_point.name} of {package} ({type(error).__name__}): {error}",
            hint=f"fix the package, or run `pipx uninject autotune {package}`",
        ) from error
    if contract != CONTRACT:
        raise AutotuneError(
            f"the plug-in {entry_point.name} of {package} needs version {contract} of the plug-in "
            f"contract, but this autotune provides version {CONTRACT}",
            hint=f"run `pipx inject --force autotune {package}` with a newer version"
            if contract < CONTRACT
            else "install a newer autotune (docs/install.md)",
        )
    return declarations
