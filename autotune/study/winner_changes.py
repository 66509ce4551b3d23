"""Records of the winner's changes: the reverted changes, and the changes that its gain needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.services.base import Settings
from autotune.target.messages import format_count


@dataclass(frozen=True)
class Simplification:
    """The changes of winner ``of`` that were reverted before the proof, and the next settings to
    measure.

    - ``settings``: the winner's settings with all ``reverted`` parameters at their baseline values. If
      ``reverted`` is empty, no measurement is left.
    - ``accepted``: the trial that measured the winner without the changes in ``without``, which stay
      reverted.
    - ``refused``: sets of changes that lose too much capacity if reverted.
    - ``measured``: the number of measurements so far.
    """

    of: int | None = None
    settings: Settings = field(default_factory=dict)
    reverted: tuple[str, ...] = ()
    accepted: int | None = None
    without: tuple[str, ...] = ()
    refused: tuple[tuple[str, ...], ...] = ()
    measured: int = 0


@dataclass(frozen=True)
class MinimalChanges:
    """The ``kept`` changes of a winner, which together provide ``share`` of its gain, as measured.

    With a probability of 90 %, the share is between ``low`` and ``high``. ``losses`` maps each kept
    change to the log loss if only that change is reverted, and ``sds`` contains the sds of these
    losses. ``changes`` is the number of all changes. ``trial`` measured the winner without the
    ``dropped`` changes.
    """

    at: str | None = None
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    share: float = 0.0
    low: float = 0.0
    high: float = 0.0
    measurements: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    sds: Mapping[str, float] = field(default_factory=dict)
    changes: int = 0
    trial: int | None = None


def format_reduction(minimal: MinimalChanges) -> str:
    """Return the share of the gain that remains with the changes kept by an ablation, as text."""
    share, low, high = (f"{share:.0%}" for share in (minimal.share, minimal.low, minimal.high))
    measurements_text = format_count(minimal.measurements, "measurement")
    return (
        f"{len(minimal.kept)} of {format_count(minimal.changes, 'change')} keep {share} of the gain "
        f"[{low}, {high}], {measurements_text}"
    )
