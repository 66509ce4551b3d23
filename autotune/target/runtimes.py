"""The runtimes there are: each file of `autotune/runtimes` is one, by its name in target files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Literal

FOLDER = Path(__file__).parents[1] / "runtimes"
DEFAULT = "systemd"
NAMES = tuple(sorted(module.name for module in iter_modules([str(FOLDER)])))

# Only the names of the files are needed to read a target: a runtime is imported when it is asked for.
if TYPE_CHECKING:
    RuntimeName = str
else:
    RuntimeName = Literal[NAMES]


def runtime_module(name: str) -> ModuleType:
    """The file of a runtime. Its ``RUNTIME`` is a `deploy.runtime.Runtime`."""
    return import_module(f"autotune.runtimes.{name}")


def is_installed(name: str) -> bool:
    """True if the services are installed on their hosts, not private to a study."""
    return bool(runtime_module(name).RUNTIME.installed)


def is_isolated(name: str) -> bool:
    """True if the services have their own file systems and limits."""
    return bool(runtime_module(name).RUNTIME.layout.isolated)


def names(*, installed: bool) -> str:
    """The runtimes of either kind as they are written, for messages."""
    return " or ".join(name for name in NAMES if is_installed(name) == installed)
