"""The runtimes that a target can select. `autotune/runtimes` contains a file for each runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
class RuntimeTraits:
    """The traits of a runtime on which the other keys of a target depend.

    ``installed`` is true if the services are installed on their hosts, not private to a study.
    ``isolated`` is true if the services have their own file systems and limits.
    """

    installed: bool
    isolated: bool = False


RUNTIMES: Mapping[str, RuntimeTraits] = {
    "containers": RuntimeTraits(installed=True, isolated=True),
    "embedded": RuntimeTraits(installed=False),
    "systemd": RuntimeTraits(installed=True),
}
DEFAULT_RUNTIME = "systemd"
RUNTIME_NAMES = tuple(RUNTIMES)

if TYPE_CHECKING:
    RuntimeName = str
else:
    RuntimeName = Literal[RUNTIME_NAMES]


def format_runtime_names(*, installed: bool) -> str:
    """Return the installed or private runtimes as written in targets, for messages."""
    names = (name for name, traits in RUNTIMES.items() if traits.installed == installed)
    return " or ".join(f"`runtime: {name}`" for name in names)
