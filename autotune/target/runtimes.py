"""The runtimes: each file in `autotune/runtimes` defines one, with the name used in target files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Literal

RUNTIMES_DIRECTORY = Path(__file__).parents[1] / "runtimes"
DEFAULT_RUNTIME = "systemd"
RUNTIME_NAMES = tuple(sorted(module.name for module in iter_modules([str(RUNTIMES_DIRECTORY)])))

# A target needs only the names of the files, so runtimes are imported when they are used.
if TYPE_CHECKING:
    RuntimeName = str
else:
    RuntimeName = Literal[RUNTIME_NAMES]


def import_runtime(name: str) -> ModuleType:
    """Return the module of a runtime. Its ``RUNTIME`` is a `deploy.runtime.Runtime`."""
    return import_module(f"autotune.runtimes.{name}")


def is_installed(name: str) -> bool:
    """True if the services are installed on their hosts, not private to a study."""
    return bool(import_runtime(name).RUNTIME.installed)


def is_isolated(name: str) -> bool:
    """True if the services have their own file systems and limits."""
    return bool(import_runtime(name).RUNTIME.layout.isolated)


def format_runtime_names(*, installed: bool) -> str:
    """Return the installed or private runtimes as written in targets, for messages."""
    return " or ".join(name for name in RUNTIME_NAMES if is_installed(name) == installed)
