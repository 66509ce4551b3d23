"""What can go wrong on the way to a host."""

from __future__ import annotations

from autotune.errors import AutotuneError


class HostUnreachable(AutotuneError):
    """A host did not answer, refused the connection or did not finish in time."""


class HostKeyRefused(HostUnreachable):
    """A host showed a key that is not known to be its own."""
