"""A simulated target for sweeps, and a progress reporter without output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.modelled import quiet

TARGET = quiet("  cache.memcached.connections: {fixed: 4096}\n")


def written(directory: Path, text: str = TARGET) -> Path:
    path = directory / "modelled.yaml"
    path.write_text(text)
    return path


class Silent:
    """A progress reporter that stops the sweep after a number of readings, like Ctrl-C."""

    def __init__(self, patience: int = -1) -> None:
        self.patience = patience

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None

    def on_reading(self, *_: Any) -> None:
        self.patience -= 1
        if self.patience == 0:
            raise KeyboardInterrupt
