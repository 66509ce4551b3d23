"""`autotune measure`: the peak of one configuration, or of one against the baseline."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from autotune.errors import AutotuneError
from autotune.measure.posterior import Prior
from autotune.run import session
from autotune.run import trial as trials
from autotune.run.bed import Bed
from autotune.run.narrator import Narrator
from autotune.run.order import Measure
from autotune.run.start import open_study
from autotune.run.trial import Bench
from autotune.run.tuner import KNOWN_SD
from autotune.search import confirmation
from autotune.search.confirmation import Measured, gain
from autotune.services.base import Settings
from autotune.study.records import Peak, Phase


@dataclass(frozen=True)
class Request:
    """What to measure: ``settings`` over the baseline, alone or against it, so many times."""

    settings: Settings
    against_baseline: bool
    repeat: int


def request(bed: Bed, config: Path | None, against: str | None, repeat: int) -> Request:
    """Raises AutotuneError for an export that cannot be read or does not fit the target."""
    if against not in (None, "baseline"):
        raise AutotuneError(f"cannot measure against {against!r}", hint="--against baseline")
    if against and config is None:
        raise AutotuneError("--against needs --config: the baseline against itself has no gain")
    settings = _settings(bed, config) if config else {}
    return Request(settings, against is not None, repeat)


def _settings(bed: Bed, config: Path) -> Settings:
    manifest = config / "manifest.json" if config.is_dir() else config
    try:
        settings = json.loads(manifest.read_text(encoding="utf-8"))["parameters"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AutotuneError(
            f"{manifest} is not the manifest of an export: {error}",
            hint="`autotune export STUDY --out DIR` writes one",
        ) from error
    known = {dimension.name for dimension in bed.space.dimensions}
    if unknown := sorted(set(settings) - known):
        raise AutotuneError(f"{manifest} speaks of {unknown[0]}, which the target does not have")
    return dict(settings)


def measure(bed: Bed, wanted: Request, directory: Path, narrator: Narrator) -> dict[str, Any]:
    """Measure and keep every reading in a directory like a study's; the result as JSON."""
    with session.opened(bed, directory, narrator) as bench:
        open_study(bed, bench, directory)
        if wanted.against_baseline:
            return _alternate(bench, wanted, directory)
        return _repeat(bench, wanted, directory)


def _repeat(bench: Bench, wanted: Request, directory: Path) -> dict[str, Any]:
    peaks: list[Peak] = []
    for _ in range(wanted.repeat):
        peaks.append(_peak(bench, wanted.settings, peaks))
    logs = [log(peak.peak) for peak in peaks if peak.feasible]
    return {
        "schema": 1,
        "study": directory.name,
        "peaks": [asdict(peak) for peak in peaks],
        "peak": exp(fmean(logs)) if logs else 0.0,
        # Relative standard deviation between repeats.
        "spread": stdev(logs) if len(logs) > 1 else None,
    }


def _alternate(bench: Bench, wanted: Request, directory: Path) -> dict[str, Any]:
    """Baseline and configuration in turn: A B B A A B … in at least as many pairs as a study's."""
    sides: dict[bool, list[Peak]] = {False: [], True: []}
    measured: list[Measured] = []
    for index in range(2 * max(confirmation.LEAST_PAIRS, wanted.repeat)):
        configured = confirmation.side(index)
        peak = _peak(bench, wanted.settings if configured else {}, sides[configured])
        if not peak.feasible:
            which = "configuration" if configured else "baseline"
            raise AutotuneError(f"the {which} does not meet the objective at any rate tried")
        sides[configured].append(peak)
        measured.append(Measured(configured, peak.peak, peak.sd))
    found = gain(measured)
    return {
        "schema": 1,
        "study": directory.name,
        "baseline": [asdict(peak) for peak in sides[False]],
        "configuration": [asdict(peak) for peak in sides[True]],
        "gain": asdict(found) if found else None,
    }


def _peak(bench: Bench, settings: Settings, earlier: list[Peak]) -> Peak:
    known = [peak.peak for peak in earlier if peak.feasible]
    prior = Prior(known[-1], KNOWN_SD) if known else None
    done = trials.run(Measure(Phase.MEASURE, settings), bench, prior, None)
    bench.store.spent(bench.clock.collect())
    if done.peak is None:
        raise AutotuneError(f"the configuration cannot be used: {done.failure}")
    return done.peak


def text(found: dict[str, Any]) -> str:
    """The result for a person."""
    if "gain" in found:
        g = found["gain"]
        return (
            f"{100 * (g['ratio'] - 1):+.0f} % [{100 * (g['low'] - 1):.0f}, "
            f"{100 * (g['high'] - 1):.0f}] requests/s against the baseline, {g['pairs']} "
            f"alternating pairs (every reading is in study {found['study']})"
        )
    lines = [
        f"{p['peak']:.0f} [{p['low']:.0f}, {p['high']:.0f}] requests/s, {p['verdict']}"
        for p in found["peaks"]
    ]
    if found["spread"] is not None:
        lines.append(f"spread between repeats: {100 * found['spread']:.1f} %")
    return "\n".join([*lines, f"every reading is in study {found['study']}"])
