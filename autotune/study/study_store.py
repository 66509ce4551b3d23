"""A study's directory: the only place where anything about it is written.

``target.yaml`` as run · ``events.jsonl`` what was done, in order · ``readings.jsonl`` every reading
· ``configs/<trial>/`` the files as rendered · ``study.db`` the sampler's own storage · ``lock``.
"""

from __future__ import annotations

import dataclasses
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, TypeVar

from autotune import __version__, durable_files, foreign_files
from autotune.deploy.deploy_result import DeployResult
from autotune.diagnose.context import Bottleneck
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.estimate import InstanceCapacity
from autotune.masking import mask_secrets
from autotune.measure.benchmark import BenchmarkAnswer
from autotune.measure.noise import Noise
from autotune.measure.reading import Reading
from autotune.measure.warm_up import WarmUpResult
from autotune.monitor.activity import HostUsage
from autotune.optimize.bed_offset import BedOffset
from autotune.optimize.ranking import PosteriorPeaks
from autotune.space.space import Candidate
from autotune.study import journal, ownership
from autotune.study.directory import EVENTS_FILE, find_study
from autotune.study.record_shapes import CALL_PURPOSE, SCHEMA_VERSION, check_reading
from autotune.study.study_state import Phase, State, Trial, apply_record, replay_records
from autotune.target.overrides import Override
from autotune.target.read_target import TARGET_FILE_NAME

T = TypeVar("T")
READINGS_FILE = "readings.jsonl"


def current_timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class StudyStore:
    """Opened by the one process that holds the study's lock; readers use ``load_state``."""

    is_shared = False  # whether other machines write to it too

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = replay_records(journal.read_records(directory / EVENTS_FILE))
        if self.state.shared and not self.is_shared:
            raise AutotuneError(
                f"study {directory.name} is in a storage, and here is a copy of it",
                hint=f"autotune resume {shlex.quote(directory.name)} --storage URL --beds …",
            )
        self._events = journal.Journal(directory / EVENTS_FILE)
        self._readings = journal.Journal(directory / READINGS_FILE)
        self._lock = threading.RLock()  # several test beds record at once
        self._deciding = threading.Lock()

    def close(self) -> None:
        self._events.close()
        self._readings.close()

    def run_decision(self, action: Callable[[], T]) -> T:
        """Run ``action``, which decides what is next and records it, while no other test bed decides."""
        with self._deciding:
            return action()

    def release_bed(self, bed: str) -> None:
        """This process no longer measures on this test bed."""

    def record_study_start(self, name: str, target_text: str, **described: Any) -> None:
        """The first record of a new study, and the target as it is run: see ``build_first_record``."""
        target = target_text.encode()
        durable_files.write_file(
            foreign_files.check_writable_path(self.directory, TARGET_FILE_NAME), target, 0o600
        )
        record = build_first_record(name, **described)
        ownership.seal_study(self.directory, target, record)
        self._record_event(record.pop("event"), **record)

    def record_session_start(self, versions: Mapping[str, str], beds: Sequence[str] = ()) -> None:
        """``beds`` are the test beds that a session on several begins with."""
        self._record_event(
            "session",
            at=current_timestamp(),
            versions=versions,
            **({"beds": list(beds)} if beds else {}),
        )

    def exclude_bed(self, bed: str, reason: str) -> None:
        """This test bed takes no further part in the session."""
        self._record_event("bed", at=current_timestamp(), bed=bed, set_aside=mask_secrets(reason))

    def record_offsets(self, offsets: Mapping[str, BedOffset]) -> None:
        """How the test beds differ, as far as the study shows."""
        rounded = {
            bed: {key: round(value, 5) for key, value in dataclasses.asdict(offset).items()}
            for bed, offset in offsets.items()
        }
        self._record_event("beds", offsets=rounded)

    def begin_trial(
        self,
        phase: Phase,
        candidate: Candidate,
        *,
        source_trial: int | None = None,
        asked: int | None = None,
        suggested: Mapping[str, Any] | None = None,
        bed: str | None = None,
        repeats: int | None = None,
    ) -> Trial:
        """A new trial, on record before anything is changed for it."""
        location: dict[str, Any] = {
            "bed": bed,
            "repeats": repeats,
            "capped": list(candidate.capped_parameters),
        }
        location = {key: value for key, value in location.items() if value not in (None, [])}
        with self._lock:
            trials = self.state.trials
            number = trials[-1].number + 1 if trials else 0
            self._record_event(
                "trial",
                trial=number,
                phase=phase,
                of=source_trial,
                asked=asked,
                at=current_timestamp(),
                settings=dict(candidate.settings),
                suggested=dict(suggested or {}),
                bindings=[str(binding) for binding in candidate.repairs],
                **location,
            )
            return self.state.trials[-1]

    def record_deployment(self, trial: Trial, deployed: DeployResult) -> None:
        """What is in effect, and the files that made it so."""
        configs = PurePath("configs", str(trial.number))
        digests = {path: sha256(content).hexdigest() for path, content in deployed.files.items()}
        for path, content in deployed.files.items():
            foreign_files.make_directories(self.directory, (configs / path).parent)
            target = foreign_files.check_writable_path(self.directory, configs / path)
            durable_files.write_file(target, content, 0o600)
        self._record_event(
            "deployed",
            trial=trial.number,
            actions={name: action.name.lower() for name, action in deployed.actions.items()},
            effective=dict(deployed.effective),
            differences=[str(difference) for difference in deployed.mismatches],
            hosts={name: dataclasses.asdict(host) for name, host in deployed.hosts.items()},
            files=digests,
        )

    def record_reading(
        self, trial: Trial, reading: Reading, purpose: str, hosts: Mapping[str, HostUsage]
    ) -> None:
        """One reading and its host usage; on disk before anybody acts on it."""
        usage = {name: dataclasses.asdict(used) for name, used in hosts.items()}
        self._record_reading(trial, purpose, **reading_to_record(reading), hosts=usage)

    def record_reference_answers(self, references: Sequence[Mapping[str, Any]]) -> None:
        """What right answers are like, as taken before the first trial of a session."""
        self._record_event(
            "answers", at=current_timestamp(), pages=[dict(reference) for reference in references]
        )

    def record_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None:
        """How the warm-up went; a peak measured on a stack that was not settled says less."""
        self._record_event(
            "warm-up",
            trial=trial.number,
            settled=warm_up.is_settled,
            windows=len(warm_up.windows),
            hits=warm_up.hit_rate,
            carried=warm_up.sustained_rate,
        )

    def record_peak(self, trial: Trial, peak: Peak, *, readings: int, load_seconds: float) -> None:
        """A trial whose peak came of ``readings`` that took ``load_seconds``."""
        fields = dataclasses.asdict(peak)
        if peak.limit is None:
            fields.pop("limit")
        self._record_event("measured", trial=trial.number, at=current_timestamp(), readings=readings,
                    load_seconds=load_seconds, **fields)  # fmt: skip

    def record_call(self, trial: Trial, answer: BenchmarkAnswer, seconds: float) -> None:
        """One call of a benchmark command; on disk before anybody acts on what it answered."""
        self._record_reading(
            trial, CALL_PURPOSE, seconds=round(seconds, 3), **dataclasses.asdict(answer)
        )

    def record_command_values(self, trial: Trial, values: Sequence[float]) -> None:
        """What a benchmark command said of this trial's configuration, call by call."""
        self._record_event("answered", trial=trial.number, values=list(values))

    def record_failure(self, trial: Trial, reason: str, *, is_fault: bool = False) -> None:
        """The configuration cannot be used or, with ``is_fault``, that is unknown; the study goes on."""
        self._record_event(
            "failed",
            trial=trial.number,
            at=current_timestamp(),
            why=mask_secrets(reason),
            fault=is_fault,
        )

    def record_sweep_plan(self, plan: Mapping[str, Any]) -> None:
        """What a sweep is going to measure."""
        self._record_event("sweep", plan=dict(plan))

    def record_sweep_measurement(self, trial: Trial, point: int, turn: int) -> None:
        """This trial was the ``turn``-th measurement of a point of the sweep, and is over."""
        self._record_event(
            "swept", trial=trial.number, at=current_timestamp(), point=point, turn=turn
        )

    def record_noise(self, noise: Noise) -> None:
        """The study's estimate of how much readings scatter, for the trials to come."""
        self._record_event("noise", **dataclasses.asdict(noise))

    def record_bottleneck(self, trial: Trial, bottleneck: Bottleneck) -> None:
        """What limited the peak of this trial."""
        self._record_event("bottleneck", trial=trial.number, **dataclasses.asdict(bottleneck))

    def record_capacities(self, trial: Trial, capacities: Mapping[str, InstanceCapacity]) -> None:
        """What each part of the stack carries as far as this trial showed: the logarithm of
        requests/s, its sd, and the tiers whose parameters it depends on."""
        if capacities:
            parts = {name: list(capacity) for name, capacity in capacities.items()}
            self._record_event("capacities", trial=trial.number, parts=parts)

    def record_memory(self, trial: Trial, rss: Mapping[str, int]) -> None:
        """The largest process of each `tier.service` that this trial showed, in bytes."""
        if rss:
            self._record_event("memory", trial=trial.number, rss=dict(rss))

    def record_time_spent(self, seconds: Mapping[str, float], bed: str | None = None) -> None:
        """Wall-clock seconds since the last such record, by what they went into; of ``bed``, if the
        study is on several."""
        rounded = {kind: round(value, 3) for kind, value in seconds.items()}
        self._record_event("spent", seconds=rounded, **({"bed": bed} if bed else {}))

    def record_posterior(self, posterior: PosteriorPeaks) -> None:
        """What the model believes of the measured configurations."""
        peaks = {str(number): [e.value, e.sd] for number, e in posterior.peaks.items()}
        self._record_event("standings", peaks=peaks, noise=posterior.noise)

    def record_transferred(
        self, study_name: str, configurations: Sequence[Mapping[str, Any]]
    ) -> None:
        """What is taken over from an earlier study, as changes to the baseline."""
        self._record_event(
            "transferred", of=study_name, configurations=[dict(c) for c in configurations]
        )

    def record_model(self, view: Mapping[str, Any]) -> None:
        """What the model believes of the parameters when the search is over."""
        self._record_event("model", view=view)

    def record_stop_reason(self, reason: str) -> None:
        """Nothing is left to win by searching on."""
        self._record_event("settled", at=current_timestamp(), why=reason)

    def record_simplification(self, record: Mapping[str, Any]) -> None:
        """Which of the winner's changes to revert next, and which were (`study.simplifying`)."""
        self._record_event("simplified", at=current_timestamp(), **record)

    def record_explanation(self, explanation: Mapping[str, Any]) -> None:
        """Which of the winner's changes carry its gain, as measured."""
        self._record_event("explained", at=current_timestamp(), **explanation)

    def record_ceilings(self, ceilings: Mapping[str, Any]) -> None:
        """What the stack, or its caches alone, did at most."""
        self._record_event("ceilings", at=current_timestamp(), **ceilings)

    def record_verdict(self, verdict: Mapping[str, Any]) -> None:
        self._record_event("verdict", at=current_timestamp(), **verdict)

    def _record_reading(self, trial: Trial, purpose: str, **fields: Any) -> None:
        with self._lock:
            self._readings.append(
                {"trial": trial.number, "at": current_timestamp(), "purpose": purpose, **fields}
            )

    def _record_event(self, event: str, **fields: Any) -> None:
        record = {"event": event, **fields}
        with self._lock:
            self._events.append(record)
            self.state = apply_record(self.state, record)


def build_first_record(
    name: str,
    *,
    source: str,
    facts: Mapping[str, Any],
    overrides: Sequence[Override] = (),
    adopted: Mapping[str, Any] | None = None,
    asked: Mapping[str, str] | None = None,
    beds: Mapping[str, Any] | None = None,
    purpose: str = "",
) -> dict[str, Any]:
    """The first record of a study.

    ``source`` is the path of its target, ``overrides`` what options set in place of it, ``adopted``
    what was read from the hosts' own files, ``asked`` digests of the files that say which requests are
    sent; ``beds`` has what was read on each test bed, where there are several; ``purpose`` is set for a
    study that searches nothing.
    """
    return {
        "event": "study",
        "schema": SCHEMA_VERSION,
        "name": name,
        "started": current_timestamp(),
        "autotune": __version__,
        "source": source,
        "facts": facts,
        **({"overrides": overrides} if overrides else {}),
        **({"asked": asked} if asked else {}),
        **({} if adopted is None else {"adopted": adopted}),
        **({"beds": dict(beds)} if beds else {}),
        **({"purpose": purpose} if purpose else {}),
    }


def load_state(directory: Path) -> State:
    """The state of a study that somebody may be writing right now. Raises AutotuneError."""
    return replay_records(
        journal.read_records(find_study(str(directory), directory.parent) / EVENTS_FILE)
    )


def read_first_record(directory: Path) -> dict[str, Any]:
    """The first record of a study. Raises AutotuneError where there is none."""
    for record in journal.read_records(find_study(str(directory), directory.parent) / EVENTS_FILE):
        return record
    raise AutotuneError(
        f"study {directory.name} was stopped before anything was done",
        hint="it holds nothing: its directory can be removed",
    )


def load_readings(directory: Path) -> list[dict[str, Any]]:
    """Every reading of a study, in the order taken. Raises AutotuneError."""
    path = directory / READINGS_FILE
    return [_validate_reading(path, record) for record in journal.read_records(path)]


def _validate_reading(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    try:
        check_reading(record)
    except ValueError as error:
        raise AutotuneError(
            f"{path} has a reading that makes no sense ({error}): the study is damaged, or of another "
            "version of autotune",
            hint=journal.DAMAGED_HINT,
        ) from error
    return record


def reading_to_record(reading: Reading) -> dict[str, Any]:
    """As JSON. The histogram's edges are milliseconds: shorter lines, and keys that read well."""
    fields = dataclasses.asdict(reading)
    fields["histogram"] = {f"{edge * 1000:g}": n for edge, n in sorted(reading.histogram.items())}
    return fields


def reading_from_record(record: Mapping[str, Any]) -> Reading:
    """The reading that was recorded, by this version or an earlier one."""
    histogram = record.get("histogram") or {}
    return Reading(
        rate=record["rate"],
        seconds=record["seconds"],
        intended=record["intended"],
        violations=record["violations"],
        errors=record.get("errors") or {},
        histogram={float(edge) / 1000: count for edge, count in histogram.items()},
        truncated=bool(record.get("truncated")),
        limited=record.get("limited"),
        disturbed=record.get("disturbed"),
        stolen=record.get("stolen", 0.0),
        looked_at=record.get("looked_at", 0),
        wrong=record.get("wrong", 0),
        example=str(record.get("example", "")),
    )


class JournalTail:
    """Called, it gives the state as of the last whole record on disk; what was read before is not
    read again. Raises AutotuneError where the journal is damaged."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / EVENTS_FILE
        self._read = 0
        self._state = State()

    def __call__(self) -> State:
        with suppress(FileNotFoundError), journal.open_journal(self._path) as events:
            events.seek(self._read)
            for line in journal.read_lines(self._path, events):
                record = journal.parse_record(f"{self._path}, byte {self._read}", line)
                self._state = replay_records([record], self._state)
                self._read += len(line)
        return self._state
