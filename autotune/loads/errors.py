"""What can go wrong before any load is made."""

from __future__ import annotations

from autotune.errors import AutotuneError


class LoadError(AutotuneError):
    """The load generator cannot be started on a load host."""
