"""Random faults in a study that several processes share: kills, stops, restarts and crashes.

``AUTOTUNE_KILLS`` faults at moments that ``AUTOTUNE_SEED`` chooses.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from random import Random

import optuna
import pytest
from optuna.trial import TrialState

from autotune.environments import multi_bed
from autotune.study import journal
from autotune.study.join_study import create_shared_study
from autotune.study.search_history import MODELLED_PHASES
from autotune.study.state_replay import replay_records
from autotune.study.study_database import SharedStudy, StudyDatabase
from tests import soak
from tests.study.database import Database
from tests.study.test_bed_workers import target
from tests.study.test_study_database import database, opened, start_worker

__all__ = ["database", "opened"]  # fixtures
FAULTS, A_STUDY = 100, 4
BEDS = ("a", "b", "c")


class Workers:
    """A process for each bed, started again whenever it has ended before the study."""

    def __init__(self, url: str, directory: Path, study: str) -> None:
        self._start = lambda bed: start_worker(url, directory / bed, study, bed)
        self.running: dict[str, subprocess.Popen[bytes]] = {bed: self._start(bed) for bed in BEDS}

    def again(self) -> None:
        """Start those again that were killed, or ended with an error."""
        for bed, process in self.running.items():
            if process.poll() not in (None, 0):
                self.running[bed] = self._start(bed)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


def harm(workers: Workers, database: Database, chance: Random) -> None:
    """One fault."""
    bed = chance.choice(BEDS)
    match chance.choice(("kill", "kill", "stop", "restart", "crash")):
        case "kill":
            workers.running[bed].kill()
            workers.running[bed].wait()
        case "stop":  # as a machine that is away for longer than its heartbeats are waited for
            workers.running[bed].send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(1.0, 8.0))
            workers.running[bed].send_signal(signal.SIGCONT)
        case "restart":
            database.stop()
            time.sleep(chance.uniform(0.0, 2.0))
            database.start()
        case "crash":
            database.stop(signal.SIGQUIT)
            database.start()


@pytest.mark.stack
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_trial_is_lost_or_counted_twice(
    database: Database, opened: StudyDatabase, tmp_path: Path
) -> None:
    chance, faults = soak.moments(), soak.kills(FAULTS)
    for number in range(-(-faults // A_STUDY)):
        place = tmp_path / str(number)
        file = target(place, "{trials: 10, time: 30m}")
        study = create_shared_study(multi_bed.prepare(file, BEDS), opened, place / "none")
        workers = Workers(database.url, place, study.name)
        try:
            for _ in range(min(A_STUDY, faults - number * A_STUDY)):
                time.sleep(chance.uniform(0.5, 6.0))
                harm(workers, database, chance)
                workers.again()
            while any(process.poll() is None for process in workers.running.values()):
                time.sleep(0.2)
        finally:
            workers.end()
        check(opened, study, place)


def check(opened: StudyDatabase, study: SharedStudy, place: Path) -> None:
    records = opened.read_records(study)
    state = replay_records(records)
    assert state.verdict is not None, f"{study.name}: {state.exclusion_reasons}"
    measured = Counter(r["trial"] for r in records if r["event"] in ("measured", "failed"))
    assert set(measured.values()) == {1}
    assert set(measured) == {t.number for t in state.list_finished_trials()}
    repeats = Counter(t.replaced_trial for t in state.trials if t.replaced_trial is not None)
    assert set(repeats.values()) <= {1}
    assert all(not state.find_trial(number).is_finished for number in repeats)
    assert len(state.list_counted_trials()) == 10 or state.stop_reason
    search = optuna.load_study(study_name=study.name, storage=opened.optuna_storage)
    told = Counter(t.user_attrs["trial"] for t in search.get_trials(states=(TrialState.COMPLETE,)))
    assert set(told.values()) == {1}
    assert set(told) <= {t.number for t in state.list_finished_trials(*MODELLED_PHASES)}
    for bed in BEDS:
        own = list(journal.read_records(place / bed / study.name / "events.jsonl"))
        assert own == records[: len(own)]
