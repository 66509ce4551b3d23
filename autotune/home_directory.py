"""Paths in home directories, as users write them."""

from __future__ import annotations

import os
from pathlib import Path


def expand_home(path: str) -> Path:
    """Return a path with `~` or `~ACCOUNT` expanded.

    The path of an unknown account is not changed. `Path.expanduser` would raise RuntimeError for it.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111
