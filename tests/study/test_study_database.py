"""A study that several processes share in a PostgreSQL: its records, leases, faults and readers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy import Connection, NullPool, create_engine, text
from typer.testing import CliRunner

from autotune.cli import app
from autotune.environments import multi_bed
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError, LockedError
from autotune.optimize.searcher import Searcher, Suggestion
from autotune.space.space import SearchSpace
from autotune.study import (
    database_records,
    database_schema,
    journal,
    ownership,
    study_database,
    study_loop,
)
from autotune.study.database_records import LeaseLostError, append_records, compress_record
from autotune.study.database_schema import LOCK_KEY
from autotune.study.join_study import (
    create_shared_study,
    join_study,
    prepare_joining_beds,
    write_study_target,
)
from autotune.study.optuna_copy import copy_in_background
from autotune.study.schedule import BED_SPECIFIC_PHASES
from autotune.study.search_history import MODELLED_PHASES
from autotune.study.shared_store import HeartbeatPolicy, SharedStore
from autotune.study.state_replay import replay_records
from autotune.study.study_database import SharedStudy, StudyDatabase
from autotune.study.study_loop import Proposal
from autotune.study.study_state import Phase, State
from autotune.study.study_store import StudyStore
from tests.optimize.test_searcher import dimension
from tests.printed import printed
from tests.study.database import Database, running
from tests.study.test_bed_workers import Silent, target
from tests.study.test_dashboard import studies_in_dashboard

# Heartbeats only where a test asks for them.
BY_HAND = HeartbeatPolicy(interval_seconds=3600, max_missed=2)
FIRST = {"event": "study", "started": "now", "shared": True}


@pytest.mark.parametrize("files", [None, [1], "a", 5, {"a": None}, {"a": ["b"]}])
def test_a_deployment_without_valid_files_copies_none(files: object, tmp_path: Path) -> None:
    record = {"event": "deployed", "trial": 0, "files": files}
    StudyDatabase.copy_files(None, None, [record, {}], tmp_path)  # type: ignore[arg-type]  # queries nothing
    assert [*tmp_path.iterdir()] == []


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as directory:  # short enough for the path of a socket
        Path(directory).chmod(0o755)
        with running(Path(directory) / "pg") as database:
            yield database


@pytest.fixture
def opened(database: Database) -> Iterator[StudyDatabase]:
    with closing(StudyDatabase(database.url)) as storage:
        yield storage


@pytest.fixture
def shared(
    opened: StudyDatabase, request: pytest.FixtureRequest
) -> tuple[StudyDatabase, SharedStudy]:
    """A study that nobody works on yet."""
    assert opened.create_study(request.node.name, "name: x", [FIRST])
    return opened, opened.find_study(request.node.name)


def store(
    directory: Path, shared: tuple[StudyDatabase, SharedStudy], pulse: HeartbeatPolicy = BY_HAND
) -> SharedStore:
    return SharedStore(directory, *shared, pulse)


def trial(store: SharedStore, bed: str) -> int:
    """One of the baseline, on record as any is."""
    number = len(store.state.trials)
    store._record_event("trial", trial=number, phase="baseline", of=None, asked=None, settings={},
                 suggested={}, bindings=[], bed=bed)  # fmt: skip
    return number


def open_files(directory: Path) -> list[str]:
    """The files below ``directory`` that this process has open."""
    paths = [link.resolve() for link in Path("/proc/self/fd").iterdir()]
    return [str(path) for path in paths if path.is_relative_to(directory)]


def another_database(opened: StudyDatabase, name: str) -> str:
    """The URL of an empty one beside that of ``opened``."""
    with opened.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    return opened.url.set(drivername="postgresql", database=name).render_as_string()


@contextmanager
def lock_of_the_tables(url: str) -> Iterator[Connection]:
    """Held by another session than any that opens the database."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SELECT pg_advisory_lock(:first, 0)"), {"first": LOCK_KEY})
        yield connection


def start_worker(url: str, directory: Path, *words: str) -> subprocess.Popen[bytes]:
    path = str(directory.parent / "modelled.yaml")
    name, bed, *more = words
    argv = [sys.executable, "-m", "tests.study.worker", url, name, path, bed, str(directory), *more]
    return subprocess.Popen(argv, cwd=Path(__file__).parents[2])


@pytest.mark.stack
def test_a_study_outlives_a_killed_worker_and_a_restarted_database(
    database: Database, opened: StudyDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = target(tmp_path, "{trials: 5, time: 30m}")
    study = create_shared_study(multi_bed.prepare(file, ("a", "b")), opened, tmp_path / "none")
    with (
        start_worker(database.url, tmp_path / "b", study.name, "b", "2") as doomed,
        start_worker(database.url, tmp_path / "a", study.name, "a") as steady,
    ):
        assert doomed.wait() == -signal.SIGKILL
        database.stop()
        database.start()
        assert steady.wait() == 0

    records = opened.read_records(study)
    state = replay_records(records)
    (lost,) = (t for t in state.trials if not t.is_finished)
    assert lost.bed == "b"
    assert "missed heartbeats" in state.exclusion_reasons["b"]
    again = [t for t in state.trials if t.replaced_trial is not None]
    if lost.phase not in BED_SPECIFIC_PHASES:  # it depends on the machine how far the other one was
        assert [(t.replaced_trial, t.bed, t.settings, t.is_finished) for t in again] == [
            (lost.number, "a", lost.settings, True)
        ]
    assert len(state.list_counted_trials()) == 5
    assert list(journal.read_records(tmp_path / "a" / study.name / "events.jsonl")) == records
    search = optuna.load_study(study_name=study.name, storage=opened.optuna_storage)
    told = Counter(t.user_attrs["trial"] for t in search.get_trials(states=(TrialState.COMPLETE,)))
    assert set(told.values()) == {1}
    assert set(told) == {t.number for t in state.list_finished_trials(*MODELLED_PHASES)}
    assert not search.get_trials(states=(TrialState.RUNNING,))

    # From elsewhere, of the storage alone.
    monkeypatch.chdir(tmp_path)
    where = ("--storage", database.url)
    report = CliRunner().invoke(app, ["report", study.name, "--json", *where])
    assert state.verdict is not None
    assert json.loads(report.stdout)["verdict"] == state.verdict.verdict
    assert "bed a" in CliRunner().invoke(app, ["status", *where]).stdout
    assert "bed a" in CliRunner().invoke(app, ["status", study.name, "--watch", *where]).stdout
    explained = CliRunner().invoke(app, ["explain", study.name, "--json", *where])
    assert explained.exit_code == 0, explained.output
    assert printed("explanation", explained.stdout.splitlines()[-1])["importance"]
    refused = CliRunner().invoke(app, ["explain", study.name, "--measure", *where])
    assert isinstance(refused.exception, AutotuneError)
    assert "is in a shared database" in refused.exception.message
    assert f"--from {study.name}" in (refused.exception.hint or "")
    out = tmp_path / "export"
    words = ["export", study.name, "--out", str(out), "--trial", "1", "--of-a-model", *where]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (out / "README.md").exists()
    with pytest.raises(AutotuneError, match="is finished"):
        prepare_joining_beds(study, opened, file, "c")
    assert study.name in studies_in_dashboard(database.url)


@pytest.mark.stack
def test_in_a_study_of_many_beds_the_next_suggestion_is_there_when_a_trial_ends(
    opened: StudyDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_by: list[str] = []
    propose_configuration = study_loop.propose_configuration

    def propose(state: State, searcher: Searcher, space: SearchSpace) -> Proposal:
        asked_by.append(threading.current_thread().name)
        return propose_configuration(state, searcher, space)

    monkeypatch.setattr(study_loop, "PREFETCH_MIN_BEDS", 3)
    monkeypatch.setattr(study_loop, "propose_configuration", propose)
    environment = multi_bed.prepare(target(tmp_path, "{trials: 14, time: 30m}"), ("a", "b", "c"))
    study = create_shared_study(environment, opened, tmp_path / "none")
    silent: Any = Silent()
    join_study(environment, tmp_path / study.name, silent, study=study, storage=opened)
    state = replay_records(opened.read_records(study))
    assert all(ownership.has_valid_bed_seal(tmp_path / study.name, bed) for bed in ("a", "b", "c"))
    assert state.verdict is not None
    searched = [tuple(t.suggested.items()) for t in state.list_finished_trials(Phase.SEARCH)]
    assert len(searched) == len(set(searched)) >= 6
    ahead = [name.startswith("prefetch") for name in asked_by]
    assert sum(ahead) > len(searched) / 2
    assert sum(ahead) < len(state.trials)  # not in the finals


@pytest.mark.stack
def test_records_of_all_workers_are_in_one_order(
    shared: tuple[StudyDatabase, SharedStudy], tmp_path: Path
) -> None:
    with (
        closing(store(tmp_path / "1", shared)) as one,
        closing(store(tmp_path / "2", shared)) as two,
    ):
        one.join_beds({"a": {}})
        two.join_beds({"b": {}})

        def work(each: SharedStore, bed: str) -> None:
            for _ in range(20):
                each._record_event(
                    "failed", trial=each.run_decision(lambda: trial(each, bed)), why=""
                )

        threads = [threading.Thread(target=work, args=a) for a in ((one, "a"), (two, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.refresh_state()
        two.refresh_state()
        assert one.state == two.state == replay_records(shared[0].read_records(shared[1]))
        assert [t.number for t in one.state.trials] == list(range(40))
        assert all(t.is_finished for t in one.state.trials)
    records = [list(journal.read_records(tmp_path / n / "events.jsonl")) for n in "12"]
    assert records[0] == records[1] == shared[0].read_records(shared[1])


@pytest.mark.stack
def test_a_worker_that_misses_its_heartbeats_loses_its_bed(
    shared: tuple[StudyDatabase, SharedStudy], tmp_path: Path
) -> None:
    with (
        closing(store(tmp_path / "1", shared)) as gone,
        closing(store(tmp_path / "2", shared)) as two,
    ):
        gone.join_beds({"a": {}})
        two.join_beds({"b": {}})
        begun = gone.run_decision(lambda: trial(gone, "a"))
        for _ in range(3):  # one that lives keeps its bed
            gone.send_heartbeat()
            two.send_heartbeat()
        two.refresh_state()
        assert two.state.active_beds == ("a", "b")
        for _ in range(BY_HAND.max_missed):
            two.send_heartbeat()
        two.refresh_state()
        assert two.state.active_beds == ("b",)
        with pytest.raises(LeaseLostError, match="bed a missed its heartbeats"):
            gone._record_event("failed", trial=begun, why="it came too late")
        gone.exclude_bed("a", "its lease is lost")
        gone.release_bed("a")  # which says nothing: it is another's to say
        assert shared[0].read_records(shared[1])[-1]["bed"] == "a"
        assert "missed heartbeats" in shared[0].read_records(shared[1])[-1]["set_aside"]


@pytest.mark.stack
def test_a_bed_has_one_worker_and_is_free_where_that_was_killed(
    shared: tuple[StudyDatabase, SharedStudy], tmp_path: Path
) -> None:
    quick = HeartbeatPolicy(interval_seconds=0.05, max_missed=10**6)
    with closing(store(tmp_path / "1", shared, quick)) as one:
        one.join_beds({"a": {}})
        two = store(tmp_path / "2", shared, quick)
        with (
            closing(two),
            pytest.raises(LockedError, match=f"bed a is used by process {os.getpid()}"),
        ):
            two.join_beds({"a": {}})
    # Closed without leaving, as the end of a process: the next one in that directory goes on.
    with closing(store(tmp_path / "1", shared, quick)) as again:
        again.join_beds({"a": {}})
        again.release_bed("a")
        assert again.state.exclusion_reasons == {"a": "its worker has stopped"}
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}
    assert not open_files(tmp_path)


@pytest.mark.stack
def test_a_decision_is_on_record_whole_or_made_again(
    shared: tuple[StudyDatabase, SharedStudy], tmp_path: Path
) -> None:
    attempts = []
    with closing(store(tmp_path, shared)) as one:
        one.join_beds({"a": {}})

        def decision() -> int:
            number = trial(one, "a")
            attempts.append(number)
            if len(attempts) == 1:
                with shared[0].engine.connect() as other:
                    other.execute(text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'autotune' AND pid <> pg_backend_pid()"
                    ))  # fmt: skip
            return number

        assert one.run_decision(decision) == 0
        assert attempts == [0, 0]
        assert [t.number for t in one.state.trials] == [0]
        assert one.state == replay_records(shared[0].read_records(shared[1]))


@pytest.mark.stack
def test_what_opens_a_storage_as_it_restarts_waits_for_it(opened: StudyDatabase) -> None:
    """A worker that joins at that moment would end, and its bed stand idle."""
    waiting = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'autotune' AND wait_event = 'advisory'"
    )
    outcome: list[StudyDatabase | BaseException] = []
    url = another_database(opened, "unmade")

    def open_another() -> None:
        try:
            outcome.append(StudyDatabase(url, retry_seconds=60.0))
        except BaseException as error:  # noqa: BLE001  # looked at below
            outcome.append(error)

    thread = threading.Thread(target=open_another)
    with lock_of_the_tables(url) as connection:
        thread.start()
        # As a server that shuts down does to a session.
        while not connection.execute(text(waiting)).all():
            time.sleep(0.02)
    thread.join()
    (another,) = outcome
    assert isinstance(another, StudyDatabase), another
    another.close()


@pytest.mark.stack
def test_a_storage_of_today_is_opened_without_waiting_for_others(
    opened: StudyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of workers would open it one after the other."""
    url = opened.url.set(drivername="postgresql").render_as_string()
    with lock_of_the_tables(url):
        monkeypatch.setenv("PGOPTIONS", "-c lock_timeout=100")  # milliseconds
        StudyDatabase(url).close()


@pytest.mark.stack
def test_a_storage_is_opened_on_as_many_connections_as_a_worker_keeps(
    opened: StudyDatabase,
) -> None:
    """`max_connections` is set for so many, and all workers may begin at once."""
    with opened.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE ROLE narrow LOGIN CONNECTION LIMIT 2"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO narrow"))
    StudyDatabase(
        opened.url.set(drivername="postgresql", username="narrow").render_as_string()
    ).close()


@pytest.mark.stack
def test_one_worker_at_a_time_writes_optunas_tables_and_another_goes_on(
    shared: tuple[StudyDatabase, SharedStudy], tmp_path: Path
) -> None:
    database, study = shared
    space = SearchSpace((dimension("web.nginx.x", baseline=1, low=1, high=9),), (), {})
    peak = Peak(100.0, 95.0, 105.0, 0.03, "measured", None)

    def search(tables: RDBStorage) -> Searcher:
        return Searcher(tables, study.name, space, "random", 1)

    def told() -> list[int]:
        search = optuna.load_study(study_name=study.name, storage=database.optuna_storage)
        return [t.user_attrs["trial"] for t in search.trials]

    with closing(store(tmp_path, shared)) as one:
        one.join_beds({"a": {}})

        def measure() -> None:
            trial = one.begin_trial(Phase.BASELINE, space.build_candidate({}), bed="a")
            one.record_peak(trial, peak, reading_count=1, load_seconds=1.0)

        measure()
        with (
            database.claim_optuna_writer(study) as tables,
            copy_in_background(database, study, search, poll_seconds=0.01),
        ):
            assert tables is not None
            assert study.name not in optuna.study.get_all_study_names(database.optuna_storage)
        for _ in range(2):  # the second finds what the first has written
            with copy_in_background(database, study, search, poll_seconds=0.01):
                measure()
        assert told() == [0, 1, 2]


@pytest.mark.stack
def test_a_transaction_that_ended_unheard_of_adds_nothing_twice(
    shared: tuple[StudyDatabase, SharedStudy],
) -> None:
    for _ in range(2):
        shared[0].run_transaction(
            lambda c: append_records(c, shared[1].study_id, "key", [{"event": "x"}, {"event": "y"}])
        )
    assert [r["event"] for r in shared[0].read_records(shared[1])] == ["study", "x", "y"]


@pytest.mark.stack
def test_tables_of_an_earlier_version_are_migrated_and_of_a_later_one_refused(
    opened: StudyDatabase,
) -> None:
    url = another_database(opened, "early")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database_schema, "MIGRATIONS", database_schema.MIGRATIONS[:1])
        with closing(StudyDatabase(url)) as early:
            early.run_transaction(lambda c: c.execute(text(
                "WITH study AS (INSERT INTO autotune_studies (name, target)"
                " VALUES ('begun-then', 'name: x') RETURNING id), head AS ("
                "INSERT INTO autotune_heads SELECT id, 1 FROM study)"
                " INSERT INTO autotune_records SELECT id, 1, 'first', :record FROM study"
            ), {"record": compress_record(FIRST)}))  # fmt: skip
            study = early.find_study("begun-then")
            files = [{"event": "deployed", "trial": 0, "files": {"x": "0"}}]
            with pytest.raises(AutotuneError, match="autotune_files"):
                early.copy_files(study, files, Path("/none"))
    with closing(StudyDatabase(url)) as today:
        assert today.read_records(today.find_study("begun-then")) == [FIRST]
        today.run_transaction(
            lambda c: append_records(c, study.study_id, "k", [{"event": "x"}], {"0": b"y"})
        )
        today.run_transaction(lambda c: c.execute(text("INSERT INTO autotune_schema VALUES (99)")))
    with pytest.raises(AutotuneError, match="unsupported storage version 99") as raised:
        StudyDatabase(url)
    assert raised.value.hint is not None


@pytest.mark.stack
def test_a_line_break_of_another_writer_breaks_no_journal(
    shared: tuple[StudyDatabase, SharedStudy], tmp_path: Path
) -> None:
    def packed(record: dict[str, Any]) -> bytes:
        return zlib.compress(json.dumps(record, indent=1).encode())

    with (
        pytest.MonkeyPatch.context() as patch,
        closing(store(tmp_path / "1", shared)) as other,
        closing(store(tmp_path / "2", shared)) as one,
    ):
        patch.setattr(database_records, "compress_record", packed)
        other.join_beds({"a": {}})
        other.run_decision(lambda: trial(other, "a"))
        one.refresh_state()
    with closing(store(tmp_path / "2", shared)) as again:
        assert again.state == replay_records(shared[0].read_records(shared[1]))
        assert len(again.state.trials) == 1


@pytest.mark.stack
@pytest.mark.parametrize(
    ("trial", "name"),
    [(0, "../../../outside"), ("../..", "outside"), ("{}", "outside"), (0, "a/\0")],
)
def test_files_of_another_worker_stay_in_their_study(
    trial: int | str, name: str, shared: tuple[StudyDatabase, SharedStudy], tmp_path: Path
) -> None:
    database, study = shared
    record = {"event": "deployed", "trial": f"{trial}".format(tmp_path), "files": {name: "0"}}
    database.run_transaction(
        lambda c: append_records(c, study.study_id, study.name, [record], {"0": b"x"})
    )
    with pytest.raises(AutotuneError, match="is outside of"):
        database.copy_study(study, tmp_path / "studies")
    assert not [*tmp_path.rglob("outside")]


@pytest.mark.stack
@pytest.mark.parametrize("name", ["../outside", "{}/outside"])
def test_a_study_of_a_storage_is_not_copied_elsewhere(
    name: str, opened: StudyDatabase, tmp_path: Path
) -> None:
    assert opened.create_study(name.format(tmp_path), "name: x", [FIRST])
    with pytest.raises(AutotuneError, match="is outside of"):
        opened.copy_study(opened.find_study(name.format(tmp_path)), tmp_path / "studies")
    assert not (tmp_path / "outside").exists()


def test_a_study_of_this_machine_keeps_its_target_beside_one_of_that_name_in_a_storage(
    tmp_path: Path,
) -> None:
    with closing(journal.Journal(tmp_path / "events.jsonl")) as events:
        events.append_record({**FIRST, "started": "earlier"})
    (tmp_path / "target.yaml").write_text("name: own")
    with pytest.raises(AutotuneError, match="another study of that name"):
        write_study_target(SharedStudy(1, "x", "name: x", FIRST), tmp_path)
    assert (tmp_path / "target.yaml").read_text() == "name: own"


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:secret@h/d", "postgresql://u@h/d?password=secret", "mysql://u:secret@h/d",
     "secret", "postgresql://u:secret@h:x/d"],
)  # fmt: skip
def test_no_password_on_a_command_line_and_none_in_a_message(url: str) -> None:
    result = CliRunner().invoke(app, ["status", "--storage", url])
    assert isinstance(result.exception, AutotuneError)
    assert "secret" not in f"{result.exception} {result.exception.hint}"


def test_the_driver_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_database, "find_spec", lambda name: None)
    with pytest.raises(AutotuneError, match="needs psycopg") as raised:
        StudyDatabase("postgresql://u@h/d")
    assert "pipx inject autotune 'psycopg[binary]'" in (raised.value.hint or "")


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match="cannot use storage") as raised:
        StudyDatabase(f"postgresql://u@/d?host={tmp_path}")
    assert "psql" in (raised.value.hint or "")


def test_a_copy_of_a_shared_study_is_not_gone_on_with_alone(tmp_path: Path) -> None:
    with closing(journal.Journal(tmp_path / "events.jsonl")) as events:
        events.append_record(FIRST)
    with pytest.raises(AutotuneError, match="is in a shared database"):
        StudyStore(tmp_path)


def test_with_a_storage_beds_are_named(tmp_path: Path) -> None:
    words = ["run", str(target(tmp_path).path), "--storage", "postgresql://u@h/d"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, AutotuneError)
    assert "--beds" in result.exception.message


def test_a_bed_that_joins_late_does_not_make_a_study_longer() -> None:
    records: list[dict[str, Any]] = [
        FIRST,
        {"event": "joined", "bed": "a"},
        {"event": "spent", "seconds": {"load": 100.0}, "bed": "a"},
        {"event": "joined", "bed": "b"},
    ]
    state = replay_records(records)
    assert (state.compute_bed_elapsed_seconds("b"), state.elapsed_seconds) == (100.0, 100.0)
    gone = replay_records(
        [{"event": "bed", "bed": "b", "set_aside": "gone"}, records[2], records[3]], state
    )
    assert gone.active_beds == ("a", "b")
    assert gone.compute_bed_elapsed_seconds("b") == 200.0


def test_what_another_worker_began_meanwhile_is_not_proposed_again() -> None:
    def state(*suggested: int) -> State:
        return replay_records([{"event": "trial", "trial": number, "phase": "search", "of": None,
                        "asked": None, "settings": {}, "suggested": {"x": value}, "bindings": []}
                       for number, value in enumerate(suggested)])  # fmt: skip

    proposal = Proposal(Suggestion(0, {"x": 3}), trial_count=2, finished_count=0)
    assert proposal.is_still_new(state(3, 1))  # which its model knew
    assert proposal.is_still_new(state(3, 1, 2))
    assert not proposal.is_still_new(state(3, 1, 2, 3))
    final = replace(proposal, suggestion=Suggestion(0, {"x": 3}, 0.01))
    assert final.is_still_new(state(3, 1))
    assert not replace(final, finished_count=1).is_still_new(state(3, 1))
