"""The gain of a winner, divided between the best preset and the search."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.confirmation import Gain
from autotune.report.units import Units
from autotune.study.ranking import add_measurement_noise
from autotune.study.study_state import State


@dataclass(frozen=True)
class PeakMeasurement:
    """A configuration's peak, and the number of measurements that it is based on."""

    peak: Peak
    count: int


@dataclass(frozen=True)
class GainShares:
    """The shares of a gain: ``preset`` is the gain of the best preset over the baseline, ``search`` the
    gain of the winner over that preset.

    A share is ``None`` if one of its peaks was not measured. If the preset itself won, ``search`` is
    ``None`` and ``preset_won`` is true.
    """

    preset: Estimate | None = None
    search: Estimate | None = None
    preset_won: bool = False


NO_SHARES = GainShares()


def compute_gain_shares(
    state: State,
    baseline: PeakMeasurement | None,
    preset: PeakMeasurement | None,
    best: PeakMeasurement | None,
    *,
    preset_won: bool,
) -> GainShares:
    """Return the shares of a gain, with intervals that include the noise between measurements."""
    return GainShares(
        _compare_sides(state, preset, baseline),
        None if preset_won else _compare_sides(state, best, preset),
        preset_won,
    )


def _compare_sides(
    state: State, after: PeakMeasurement | None, before: PeakMeasurement | None
) -> Estimate | None:
    if after is None or before is None:
        return None
    estimates = [
        add_measurement_noise(state, side.peak.estimate, side.count) for side in (after, before)
    ]
    return estimates[0].ratio_to(estimates[1])


def format_ratio(ratio: Estimate, units: Units, before_peak: float) -> str:
    """Return a ratio to ``before_peak`` with its interval: ``+41 % [36, 47]``."""
    gain = Gain(ratio.value, *ratio.interval(), pairs=0)
    return units.build_gain(gain, before_peak).interval_text


def format_gain_shares(
    shares: GainShares, units: Units, baseline_peak: float, preset_peak: float
) -> str:
    """Return both shares as text: ``preset +74 % [70, 78], search +3 % [1, 5]``."""
    share_texts = []
    if shares.preset is not None and baseline_peak:
        share_texts.append(f"preset {_format_share(shares.preset, units, baseline_peak)}")
    if shares.search is not None and preset_peak:
        share_texts.append(f"search {_format_share(shares.search, units, preset_peak)}")
    if shares.preset_won:
        share_texts.append("the search found nothing better")
    return ", ".join(share_texts)


def _format_share(gain_ratio: Estimate, units: Units, before_peak: float) -> str:
    ratio_text = format_ratio(gain_ratio, units, before_peak)
    return ratio_text if gain_ratio.differs_from_one else f"{ratio_text} (not distinguishable)"
