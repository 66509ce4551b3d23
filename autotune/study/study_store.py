"""The files in a study's directory. Only this module writes the files of a study.

- ``target.yaml``: the target of the run
- ``events.jsonl``: all events, in order
- ``readings.jsonl``: all readings
- ``configs/<trial>/``: the rendered files
- ``study.db``: the storage of the sampler
- ``lock``: the lock of the writing process
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TypeVar

from autotune import __version__, durable_files, foreign_files
from autotune.deploy.deploy_result import DeployResult
from autotune.diagnose.bottleneck import Bottleneck
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.estimate import InstanceCapacity
from autotune.masking import mask_secrets
from autotune.measure.benchmark import BenchmarkAnswer
from autotune.measure.noise import Noise
from autotune.measure.warm_up import WarmUpResult
from autotune.optimize.bed_offset import BedOffset
from autotune.optimize.model_view import ModelView
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.reversal_cost import ReversalCost
from autotune.services.base import Settings
from autotune.space.space import Candidate
from autotune.study import journal, ownership
from autotune.study.ceiling_records import Ceilings
from autotune.study.directory import EVENTS_FILE, find_study
from autotune.study.journal_records import (
    SCHEMA_VERSION,
    RecordedBudget,
    StudyStart,
    TrialStart,
)
from autotune.study.reading_records import READINGS_FILE, RecordedReading, encode_command_call
from autotune.study.record_codec import encode
from autotune.study.state_replay import apply_record, decode_valid_record, replay_records
from autotune.study.study_state import Phase, State, Trial
from autotune.study.verdict import Verdict
from autotune.study.winner_changes import MinimalChanges, Simplification
from autotune.study_argument import format_study_argument
from autotune.target.overrides import Override
from autotune.target.read_target import TARGET_FILE_NAME

T = TypeVar("T")


def format_current_timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class StudyStore:
    """The writer of a study, for the process that holds the study's lock; readers use ``load_state``."""

    is_shared = False  # True if other machines write to the study too

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = replay_records(journal.read_records(directory / EVENTS_FILE))
        if self.state.is_shared and not self.is_shared:
            study_argument = format_study_argument(directory, is_shared=True)
            raise AutotuneError(
                f"study {directory.name} is a copy; the original is in a shared database",
                hint=f"`autotune resume {study_argument} --beds …` continues the original",
            )
        self._events = journal.Journal(directory / EVENTS_FILE)
        self._readings = journal.Journal(directory / READINGS_FILE)
        self._lock = threading.RLock()  # several test beds may record at the same time
        self._decision_lock = threading.Lock()

    @property
    def resume_argument(self) -> str:
        """Return the study for `autotune resume` in a hint."""
        return format_study_argument(
            self.directory, is_shared=self.is_shared, keeps_winner=self.state.keeps_winner
        )

    def close(self) -> None:
        self._events.close()
        self._readings.close()

    def run_decision(self, action: Callable[[], T]) -> T:
        """Run ``action``, which selects and records the next step, for one test bed at a time."""
        with self._decision_lock:
            return action()

    def release_bed(self, bed: str) -> None:
        """Record that this process no longer measures on this test bed."""

    def record_study_start(self, name: str, target_text: str, **environment_fields: Any) -> None:
        """Write the target and the first record of a new study: see ``build_first_record``."""
        target_bytes = target_text.encode()
        durable_files.write_file(
            foreign_files.check_writable_path(self.directory, TARGET_FILE_NAME), target_bytes, 0o600
        )
        record = build_first_record(name, **environment_fields)
        ownership.seal_study(self.directory, target_bytes, record)
        self._record_event(record.pop("event"), **record)

    def record_session_start(
        self,
        versions: Mapping[str, str],
        beds: Sequence[str] = (),
        budget: RecordedBudget | None = None,
        *,
        keeps_winner: bool = False,
    ) -> None:
        """Record the start of a session; ``beds`` contains the names of its test beds, if any.

        ``budget`` is the new budget of a resumed study. If ``keeps_winner`` is true, a proven winner
        stays on the hosts.
        """
        self._record_event(
            "session",
            at=format_current_timestamp(),
            versions=versions,
            **({"beds": list(beds)} if beds else {}),
            **({"budget": encode(budget)} if budget else {}),
            **({"keep": True} if keeps_winner else {}),
        )

    def exclude_bed(self, bed: str, reason: str) -> None:
        """Record that this test bed is removed from the session."""
        self._record_event(
            "bed", at=format_current_timestamp(), bed=bed, set_aside=mask_secrets(reason)
        )

    def record_offsets(self, offsets: Mapping[str, BedOffset]) -> None:
        """Record the estimated differences between the test beds."""
        rounded_offsets = {
            bed: {key: round(value, 5) for key, value in dataclasses.asdict(offset).items()}
            for bed, offset in offsets.items()
        }
        self._record_event("beds", offsets=rounded_offsets)

    def begin_trial(
        self,
        phase: Phase,
        candidate: Candidate,
        *,
        source_trial: int | None = None,
        suggestion_number: int | None = None,
        suggested: Settings | None = None,
        bed: str | None = None,
        replaced_trial: int | None = None,
        bindings: Sequence[str] = (),
        requested: Settings | None = None,
    ) -> Trial:
        """Record and return a new trial, before the trial changes any host.

        ``bindings`` are changes that rules required before the trial was interrupted. `Trial` describes
        the other arguments.
        """
        with self._lock:
            trials = self.state.trials
            trial_number = trials[-1].number + 1 if trials else 0
            record = TrialStart(
                trial_number,
                phase,
                source_trial,
                suggestion_number,
                format_current_timestamp(),
                settings=candidate.settings,
                suggested=suggested or {},
                bindings=tuple(dict.fromkeys((*bindings, *map(str, candidate.repairs)))),
                bed=bed,
                replaced_trial=replaced_trial,
                capped_parameters=candidate.capped_parameters,
                requested=requested,
            )
            self._record_event("trial", **encode(record))
            return self.state.trials[-1]

    def record_deployment(self, trial: Trial, deploy_result: DeployResult) -> None:
        """Record the effective values, and write the rendered files."""
        config_directory = PurePath("configs", str(trial.number))
        digest_by_path = {
            path: sha256(content).hexdigest() for path, content in deploy_result.files.items()
        }
        for path, content in deploy_result.files.items():
            foreign_files.make_directories(self.directory, (config_directory / path).parent)
            written_path = foreign_files.check_writable_path(
                self.directory, config_directory / path
            )
            durable_files.write_file(written_path, content, 0o600)
        self._record_event(
            "deployed",
            trial=trial.number,
            actions={
                service_name: action.name.lower()
                for service_name, action in deploy_result.actions.items()
            },
            effective=dict(deploy_result.effective),
            differences=[str(difference) for difference in deploy_result.mismatches],
            hosts={
                host_name: dataclasses.asdict(host)
                for host_name, host in deploy_result.hosts.items()
            },
            files=digest_by_path,
        )

    def record_reading(self, record: RecordedReading) -> None:
        """Append a reading; it is on disk when this method returns."""
        with self._lock:
            self._readings.append_record(encode(record))

    def record_reference_answers(self, references: Sequence[Mapping[str, object]]) -> None:
        """Record the reference responses, taken before the first trial of a session."""
        self._record_event(
            "answers",
            at=format_current_timestamp(),
            pages=[dict(reference) for reference in references],
        )

    def record_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None:
        """Record a warm-up, because the peak of a stack that is not warm is less reliable."""
        self._record_event(
            "warm-up",
            trial=trial.number,
            settled=warm_up.is_settled,
            windows=len(warm_up.windows),
            hits=warm_up.hit_rate,
            carried=warm_up.sustained_rate,
        )

    def record_peak(
        self, trial: Trial, peak: Peak, *, reading_count: int, load_seconds: float
    ) -> None:
        """Record the peak of a trial from ``reading_count`` readings that took ``load_seconds``."""
        fields = dataclasses.asdict(peak)
        if peak.limit is None:
            fields.pop("limit")
        else:
            fields["limit"] = mask_secrets(peak.limit)
        self._record_event(
            "measured",
            trial=trial.number,
            at=format_current_timestamp(),
            readings=reading_count,
            load_seconds=load_seconds,
            **fields,
        )

    def record_call(self, trial: Trial, answer: BenchmarkAnswer, seconds: float) -> None:
        """Record a call of a benchmark command; it is on disk when this method returns."""
        record = encode_command_call(trial.number, format_current_timestamp(), seconds, answer)
        with self._lock:
            self._readings.append_record(record)

    def record_command_values(self, trial: Trial, values: Sequence[float]) -> None:
        """Record the values that a benchmark command returned for this trial, in call order."""
        self._record_event("answered", trial=trial.number, values=list(values))

    def record_failure(self, trial: Trial, reason: str, *, is_fault: bool = False) -> None:
        """Record that the configuration is unusable or, with ``is_fault``, that nothing is known about
        it yet.
        """
        self._record_event(
            "failed",
            trial=trial.number,
            at=format_current_timestamp(),
            why=mask_secrets(reason),
            fault=is_fault,
        )

    def record_sweep_plan(self, plan: Mapping[str, object]) -> None:
        """Record the plan of a sweep."""
        self._record_event("sweep", plan=dict(plan))

    def record_sweep_measurement(self, trial: Trial, point: int, turn: int) -> None:
        """Record that this trial was the ``turn``-th measurement of a point of the sweep."""
        self._record_event(
            "swept", trial=trial.number, at=format_current_timestamp(), point=point, turn=turn
        )

    def record_noise(self, noise: Noise) -> None:
        """Record the estimated scatter of readings for later trials."""
        self._record_event("noise", **dataclasses.asdict(noise))

    def record_bottleneck(self, trial: Trial, bottleneck: Bottleneck) -> None:
        """Record the resource that limited the peak of this trial."""
        fields = dataclasses.asdict(bottleneck)
        # The evidence may quote the body of a wrong response or a line of a load generator.
        fields["evidence"] = mask_secrets(bottleneck.evidence)
        self._record_event("bottleneck", trial=trial.number, **fields)

    def record_capacities(self, trial: Trial, capacities: Mapping[str, InstanceCapacity]) -> None:
        """Record the capacity of each service instance, as measured in this trial.

        A capacity is the logarithm of requests/s, the sd of this logarithm, and the tiers whose
        parameters affect the capacity.
        """
        if capacities:
            capacity_lists = {
                instance_name: list(capacity) for instance_name, capacity in capacities.items()
            }
            self._record_event("capacities", trial=trial.number, parts=capacity_lists)

    def record_memory(self, trial: Trial, rss: Mapping[str, int]) -> None:
        """Record the largest process of each `tier.service` in this trial, in bytes."""
        if rss:
            self._record_event("memory", trial=trial.number, rss=dict(rss))

    def record_time_spent(self, seconds: Mapping[str, float], bed: str | None = None) -> None:
        """Record the wall-clock seconds by activity since the last such record, for ``bed`` if given."""
        rounded_seconds = {activity: round(value, 3) for activity, value in seconds.items()}
        self._record_event("spent", seconds=rounded_seconds, **({"bed": bed} if bed else {}))

    def record_posterior(self, posterior: PosteriorPeaks) -> None:
        """Record the model's estimates for the measured configurations."""
        peaks = {
            str(trial_number): [estimate.value, estimate.sd]
            for trial_number, estimate in posterior.peaks.items()
        }
        self._record_event("standings", peaks=peaks, noise=posterior.noise)

    def record_transferred(self, study_name: str, configurations: Sequence[Settings]) -> None:
        """Record the configurations of an earlier study, as changes to the baseline."""
        self._record_event(
            "transferred", of=study_name, configurations=[dict(c) for c in configurations]
        )

    def record_model(self, view: ModelView) -> None:
        """Record the model's estimates of the parameters' effects after the search."""
        self._record_event("model", view=encode(view))

    def record_reversal_costs(self, trial: Trial, costs: Mapping[str, ReversalCost]) -> None:
        """Record the modelled cost of reverting each change of the winner ``trial``."""
        rounded_costs = [
            {"parameter": change_name, "loss": round(cost.loss, 5), "sd": round(cost.sd, 5)}
            for change_name, cost in costs.items()
        ]
        self._record_event("reversal-costs", trial=trial.number, costs=rounded_costs)

    def record_stop_reason(self, reason: str) -> None:
        """Record the reason why the search stopped: the model expects no further improvement."""
        self._record_event("settled", at=format_current_timestamp(), why=reason)

    def record_kept_winner(self, trial_number: int) -> None:
        """Record that the winner stays on the hosts when they are released."""
        self._record_event("kept", at=format_current_timestamp(), trial=trial_number)

    def record_simplification(self, record: Simplification) -> None:
        """Record which of the winner's changes to revert next, and which were reverted."""
        self._record_event("simplified", at=format_current_timestamp(), **encode(record))

    def record_explanation(self, minimal: MinimalChanges) -> None:
        """Record the winner's changes that its gain depends on, as measured."""
        self._record_event("explained", **encode(replace(minimal, at=format_current_timestamp())))

    def record_ceilings(self, ceilings: Ceilings) -> None:
        """Record the measured maximum throughput of the stack, or of its caches alone."""
        self._record_event("ceilings", at=format_current_timestamp(), **encode(ceilings))

    def record_verdict(self, verdict: Verdict) -> None:
        self._record_event("verdict", at=format_current_timestamp(), **encode(verdict))

    def _record_event(self, event: str, **fields: Any) -> None:
        record = {"event": event, **fields}
        with self._lock:
            self._events.append_record(record)
            self.state = apply_record(self.state, record)


def build_first_record(
    name: str,
    *,
    source: str,
    facts: Mapping[str, object],
    overrides: Sequence[Override] = (),
    adopted: Mapping[str, object] | None = None,
    asked: Mapping[str, str] | None = None,
    beds: Mapping[str, object] | None = None,
    purpose: str = "",
) -> dict[str, Any]:
    """Return the first record of a study.

    - ``source``: the path of the target; ``overrides``: options that override values of the target
    - ``adopted``: values read from files on the hosts
    - ``asked``: digests of the files that define the requests, and of the templates
    - ``beds``: the facts read on each test bed, if there are several
    - ``purpose``: set for a study without a search
    """
    return {
        "event": "study",
        "schema": SCHEMA_VERSION,
        "name": name,
        "started": format_current_timestamp(),
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
    """Return the state of a study, even while a process writes its records. Raises AutotuneError."""
    return replay_records(journal.read_records(_find_journal(directory)))


def read_study_start(directory: Path) -> StudyStart:
    """Return the first record of a study. Raises AutotuneError if there is none, or if it is invalid."""
    for record in journal.read_records(_find_journal(directory)):
        return decode_valid_record(StudyStart, record)
    raise AutotuneError(
        f"study {directory.name} was stopped before its first record",
        hint="the study is empty; remove its directory",
    )


def _find_journal(directory: Path) -> Path:
    return find_study(str(directory.absolute()), directory.parent) / EVENTS_FILE


class JournalTail:
    """A callable that returns the state after the last complete record on disk.

    Each call reads only the new records. Raises AutotuneError if the journal is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / EVENTS_FILE
        self._read_bytes = 0
        self._state = State()

    def __call__(self) -> State:
        with suppress(FileNotFoundError), journal.open_journal(self._path) as events_file:
            events_file.seek(self._read_bytes)
            self._state = replay_records(self._read_new_records(events_file), self._state)
        return self._state

    def _read_new_records(self, events_file: BinaryIO) -> Iterator[dict[str, Any]]:
        for line in journal.read_lines(self._path, events_file):
            yield journal.parse_record(f"{self._path}, byte {self._read_bytes}", line)
            self._read_bytes += len(line)
