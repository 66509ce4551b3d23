"""Record a workload: measure stock settings and presets, follow the recipe, run studies, and compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune import durable_files
from autotune.cli.options import ProgressOptions
from autotune.cli.session import open_progress
from autotune.environments.base import Environment
from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError
from autotune.report.conclusion import find_conclusion
from autotune.services.base import Settings
from autotune.space.dimension import BASELINE_NAME, NAMED_SETTINGS
from autotune.space.space import SearchSpace
from autotune.study import start
from autotune.study.directory import find_free_directory
from autotune.study.measure_capacity import (
    ComparisonConfiguration,
    MeasurementRequest,
    measure_configuration,
)
from autotune.study.study_state import State, Trial
from autotune.study.study_store import load_state
from autotune.study.trial_context import collect_versions
from autotune.target.read_target import read_target
from scripts.workloads.catalogue import Workload
from scripts.workloads.engineer import find_best_attempt, tune_by_recipe

SCHEMA_VERSION = 1
PRESET_REPEATS = 2
PAIRS = 4
Record = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """A recording of a workload in ``directory``, whose studies take ``minutes`` each."""

    workload: Workload
    minutes: float
    directory: Path

    @property
    def file(self) -> Path:
        """Return the path of the file that contains the results of finished stages."""
        return self.directory / "record.json"

    def prepare(self, study: str = "", sampler: str | None = None) -> Environment:
        """Inspect the hosts and prepare a study. ``sampler`` replaces the target's sampler."""
        overrides = [("--time", f"{self.minutes:g}m")]
        file = read_target(
            self.workload.target, [*overrides, *([("--name", study)] if study else [])]
        )
        if sampler is not None:
            search = file.target.search.model_copy(update={"sampler": sampler})
            file = replace(file, target=file.target.model_copy(update={"search": search}))
        return prepare(file)

    def new_directory(self, stage: str) -> Path:
        return find_free_directory(self.directory, stage)


Stage = Callable[[Recording, Record], Record]


def record_workload(recording: Recording) -> Record:
    """Run the stages that are not finished yet, and return the record of all stages.

    The hosts must be running. Raises ``AutotuneError`` if the file belongs to another recording.
    """
    recording.directory.mkdir(parents=True, exist_ok=True)
    record = _read_unfinished(recording)
    for name, stage in _list_stages(recording.workload).items():
        if name not in record:
            record[name] = stage(recording, record)
            durable_files.write_file(recording.file, json.dumps(record, indent=1).encode())
    return record


def _read_unfinished(recording: Recording) -> Record:
    begun: Record = {
        "schema": SCHEMA_VERSION,
        "workload": recording.workload.name,
        "minutes": recording.minutes,
        "files": recording.workload.compute_digest(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": collect_versions(),
    }
    if not recording.file.exists():
        return begun
    record: Record = json.loads(recording.file.read_text(encoding="utf-8"))
    if any(record.get(key) != begun[key] for key in ("schema", "workload", "minutes", "files")):
        raise AutotuneError(
            f"{recording.file} is part of another recording, or the workload's files changed",
            hint="remove its directory, or choose another one with --studies",
        )
    return record


def _list_stages(workload: Workload) -> Mapping[str, Stage]:
    return {
        "presets": measure_presets,
        "engineer": record_engineer,
        "autotune": record_study,
        "against_preset": compare_with_preset,
        "against_engineer": compare_with_engineer,
        **({"tpe": record_tpe} if workload.with_tpe else {}),
    }


def measure_presets(recording: Recording, _: Record) -> Record:
    """Measure the stock settings and the presets. Presets with equal settings are measured once."""
    environment = recording.prepare()
    space = environment.space
    measured: Record = {}
    earlier: list[Settings] = []
    rss: Mapping[str, int] = {}  # memory of processes, on which presets depend, as in a study
    for name in NAMED_SETTINGS:
        preset = {} if name == BASELINE_NAME else space.preset_settings(name)
        settings = {n: value for n, value in preset.items() if value != space.baseline[n]}
        active = space.select_active_settings(space.complete_without_repair(settings).settings)
        if active not in earlier:
            earlier.append(active)
            request = MeasurementRequest(settings, None, PRESET_REPEATS, rss)
            measured[name] = _measure(recording, environment, name, request)
            rss = measured[name].get("rss", rss)
    return measured


def _measure(
    recording: Recording, environment: Environment, name: str, request: MeasurementRequest
) -> Record:
    directory, settings = recording.new_directory(name), request.settings
    with open_progress(environment, directory, ProgressOptions(), with_page=False) as progress:
        try:
            measurement = measure_configuration(environment, request, directory, progress)
        except AutotuneError as error:
            return {"settings": settings, "failure": str(error)}
    return {
        "settings": settings,
        "capacity": measurement.peak,
        "repeats": [trial.peak.peak for trial in measurement.trials if trial.peak],
        "rss": dict(load_state(directory).rss),
        "bottleneck": _find_bottleneck(
            load_state(directory), [trial.number for trial in measurement.trials]
        ),
    }


def _find_bottleneck(state: State, trials: Iterable[int]) -> Record | None:
    """Return the last diagnosis among those of ``trials``, or ``None`` without a diagnosis."""
    findings = [state.bottlenecks[trial] for trial in trials if trial in state.bottlenecks]
    bottleneck = findings[-1] if findings else None
    fields = ("tier", "service", "host", "resource", "evidence")
    return {field: str(getattr(bottleneck, field)) for field in fields} if bottleneck else None


def record_engineer(recording: Recording, _: Record) -> Record:
    """Follow the engineer's recipe. This takes as long as a study."""
    environment = recording.prepare()
    directory = recording.new_directory("engineer")
    with open_progress(environment, directory, ProgressOptions(), with_page=False) as progress:
        attempts = tune_by_recipe(
            environment,
            recording.workload.engineer,
            directory,
            progress,
            environment.file.target.budget.time,
        )
    best = find_best_attempt(attempts)
    state = load_state(directory)
    return {
        "attempts": [asdict(attempt) for attempt in attempts],
        "settings": best.settings if best else {},
        "capacity": best.capacity if best else 0.0,
        "seconds": state.elapsed_seconds,
        "bottleneck": _find_bottleneck(state, [best.trial]) if best else None,
    }


def record_study(recording: Recording, _: Record) -> Record:
    """Run a study with the target's sampler."""
    return _run_study(recording, "autotune", None)


def record_tpe(recording: Recording, _: Record) -> Record:
    """Run a study with Optuna's TPE sampler."""
    return _run_study(recording, "tpe", "tpe")


def _run_study(recording: Recording, stage: str, sampler: str | None) -> Record:
    environment = recording.prepare(f"{recording.workload.name}-{stage}", sampler)
    directory = recording.new_directory(stage)
    with open_progress(environment, directory, ProgressOptions(), with_page=False) as progress:
        start.start_study(environment, directory, progress)
    state = load_state(directory)
    conclusion = find_conclusion(state)
    is_improved = conclusion.verdict == "improved"
    # Without an improvement, a study applies the stock settings.
    winner = conclusion.best if is_improved else conclusion.baseline
    best_trial, winner_trial = (side and side.trial for side in (conclusion.best, winner))
    peak = winner and winner.best_estimate
    return {
        "verdict": conclusion.verdict,
        "gain": asdict(conclusion.gain) if conclusion.gain else None,
        "settings": _select_changes(environment.space, winner_trial),
        "challenger": _select_changes(environment.space, best_trial),
        "capacity": peak.peak if peak else 0.0,
        "trials": [_describe_trial(trial) for trial in state.trials],
        "rss": dict(state.rss),
        "seconds": state.elapsed_seconds,
        "bottleneck": _find_bottleneck(state, winner.trial_numbers) if winner else None,
    }


def _select_changes(space: SearchSpace, trial: Trial | None) -> Settings:
    """Return the settings of a trial that differ from the stock settings."""
    settings = trial.effective_settings if trial else {}
    return {
        name: value
        for name, value in settings.items()
        if name in space.baseline and space.baseline[name] != value
    }


def _describe_trial(trial: Trial) -> Record:
    return {
        "phase": str(trial.phase),
        "capacity": trial.peak.peak if trial.peak else None,
        "pruned": bool(trial.peak and trial.peak.is_pruned),
    }


def find_best_preset(presets: Record) -> str | None:
    """Return the name of the preset with the highest capacity, or ``None`` if no preset is usable."""
    usable = {
        name: measured["capacity"]
        for name, measured in presets.items()
        if name != BASELINE_NAME and measured.get("capacity")
    }
    return max(usable, key=lambda name: usable[name]) if usable else None


def compare_with_preset(recording: Recording, record: Record) -> Record:
    """Compare the study's winner with the best preset in alternating pairs of trials."""
    name = find_best_preset(record["presets"])
    if name is None:
        return {"failure": "no preset can be used"}
    return _compare(recording, record, name, record["presets"][name]["settings"])


def compare_with_engineer(recording: Recording, record: Record) -> Record:
    """Compare the study's winner with the engineer's configuration in alternating pairs of trials."""
    return _compare(recording, record, "engineer", record["engineer"]["settings"])


def _compare(recording: Recording, record: Record, name: str, settings: Settings) -> Record:
    environment = recording.prepare()
    space = environment.space
    winner = record["autotune"]["settings"]
    sides = [space.select_active_settings(space.complete_without_repair(each).settings)
             for each in (winner, settings)]  # fmt: skip
    if sides[0] == sides[1]:
        return {"against": name, "same": True}
    directory = recording.new_directory(f"winner-{name}")
    compared = ComparisonConfiguration(name, settings)
    request = MeasurementRequest(winner, compared, PAIRS, record["autotune"].get("rss", {}))
    with open_progress(environment, directory, ProgressOptions(), with_page=False) as progress:
        try:
            measurement = measure_configuration(environment, request, directory, progress)
        except AutotuneError as error:
            return {"against": name, "failure": str(error)}
    assert measurement.gain is not None  # because the pairs of a comparison yield a gain
    return {"against": name, "gain": asdict(measurement.gain)}
