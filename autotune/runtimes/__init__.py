"""How services run. Each file of this package defines one runtime as ``RUNTIME``."""

from __future__ import annotations

from importlib import import_module

from autotune.deploy.runtime import Runtime


def load_runtime(name: str) -> Runtime:
    """Return the runtime with this name in targets."""
    runtime: Runtime = import_module(f"{__name__}.{name}").RUNTIME
    return runtime
