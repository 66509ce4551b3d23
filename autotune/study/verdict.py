"""The verdict of a study, as recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.optimize.confirmation import Gain
from autotune.study.record_codec import OMIT_IF_EMPTY, define_omittable_field

FINALS_AND_PROOF = ("finalist", "confirm")


@dataclass(frozen=True)
class Verdict:
    """The verdict of a study: improved, no-improvement or unmeetable.

    - ``gain``: from readings taken after the winner was selected, or ``None``
    - ``peaks_from``: phases whose measurements give the displayed peak of the best configuration
    - ``beds``: the gain on each test bed, if there are several
    - ``disagree``: the gains of the beds differ by more than noise; ``None`` without test beds
    """

    verdict: str
    best: int | None = None
    gain: Gain | None = None
    peaks_from: tuple[str, ...] = FINALS_AND_PROOF
    beds: Mapping[str, Gain] = field(default_factory=dict, metadata={OMIT_IF_EMPTY: True})
    disagree: bool | None = define_omittable_field()
