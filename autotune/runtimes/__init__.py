"""Runtimes, which determine how services run. Each module of this package defines one runtime as
``RUNTIME``.
"""

from __future__ import annotations

from importlib import import_module

from autotune.deploy.runtime import Runtime


def load_runtime(name: str) -> Runtime:
    """Return the runtime that target files call ``name``."""
    runtime: Runtime = import_module(f"{__name__}.{name}").RUNTIME
    return runtime
