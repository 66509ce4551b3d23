"""Starting a study and continuing one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from optuna.storages import BaseStorage

from autotune import foreign_files
from autotune.environments.base import Environment, prepare
from autotune.environments.beds import Beds
from autotune.environments.beds import prepare as prepare_beds
from autotune.errors import AutotuneError, TargetError
from autotune.loads.registry import digests
from autotune.optimize.ranking import transferred
from autotune.optimize.searcher import Searcher
from autotune.optimize.storage import open_sqlite, storage_errors
from autotune.study import journal, loop, origin, ranking
from autotune.study.beds import tune as tune_on_beds
from autotune.study.context import (
    ProgressReporter,
    TrialContext,
    held,
    open_study,
    opened,
    record_study,
    versions,
)
from autotune.study.directory import EVENTS
from autotune.study.ranking import Verdict
from autotune.study.recorded import RecordedEnvironment
from autotune.study.records import APPLIED, MEASURED
from autotune.study.store import Store, first_record, state_of
from autotune.target.beds import chosen
from autotune.target.messages import plural
from autotune.target.read import TargetFile, read, read_recorded
from autotune.target.write import differences

STORAGE = "study.db"
EXPLAINED = "`autotune report {study}` shows what the study found; explain it where it was begun"


def start(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    *,
    keep: bool = False,
    earlier: Path | None = None,
) -> None:
    """Run a new study of a target to its end, in a directory that is not there yet.

    ``keep``: the winner, if it is proven, is left on the hosts. ``earlier``: the directory of a
    study whose leaders are tried first, as far as they apply here.
    """
    if isinstance(environment, Beds):
        with held(environment, directory, progress) as store:
            record_study(environment, store, directory)
            if earlier is not None:
                _take_over(environment, store, progress, earlier)
            _run_on_beds(environment, store, progress)
        return
    with opened(environment, directory, progress) as context:
        open_study(environment, context, directory)
        if earlier is not None:
            _take_over(environment, context.store, progress, earlier)
        verdict = _run(environment, context, directory)
        if keep:
            _keep(context, verdict)


def _take_over(
    environment: Environment, store: Store, progress: ProgressReporter, earlier: Path
) -> None:
    """Put the leaders of an earlier study on record, to be tried first."""
    with origin.reading(earlier):
        state = state_of(earlier)
        stock = ranking.baseline(state)
        estimates = ranking.candidates(state)
        ranked = sorted(estimates, key=lambda trial: -estimates[trial].log_mean)
        configurations = transferred(
            [state.by_number(trial).in_effect for trial in ranked],
            stock.in_effect if stock else {},
            environment.space,
        )
    store.transferred(earlier.name, configurations)
    leaders = plural(len(configurations), "configuration")
    progress.note(f"tried first, from study {earlier.name}: {leaders}")


def unfinished(directory: Path, beds: str | None = None) -> Environment:
    """The environment of a study that can be continued, on today's hosts; ``beds`` are the test beds
    that `--beds` names, ``None`` all that the study has. Raises as `finished` does, and AutotuneError
    for a study that is finished, is only read, or is no study."""
    state, name = state_of(directory), shlex.quote(directory.name)
    if state.purpose:
        again = {APPLIED: f"autotune restore {name}", MEASURED: "autotune measure TARGET"}
        raise AutotuneError(
            f"{directory.name} is no study: a configuration was {state.purpose}",
            hint=again.get(state.purpose),
        )
    if state.verdict is not None:
        raise AutotuneError(
            f"study {directory.name} is finished",
            hint=f"autotune report {name}",
        )
    origin.check_own(directory, origin.BEGIN_ANOTHER)
    return finished(directory, beds)


def finished(directory: Path, beds: str | None = None) -> Environment:
    """The environment of a study that has been run, on today's hosts.

    Raises TargetError when the target has changed so that earlier readings no longer apply to it,
    AutotuneError where a parameter is tuned today that the study has no values of.
    """
    origin.check_own(directory, EXPLAINED)
    environment = _prepared(directory, beds)
    trials = state_of(directory).trials
    recorded = trials[0].settings if trials else environment.space.baseline
    if new := [d.name for d in environment.space.tunable if d.name not in recorded]:
        more = f" and {len(new) - 1} more" if len(new) > 1 else ""
        raise AutotuneError(
            f"study {directory.name} has no values of {new[0]}{more}: it was begun with another "
            "version of autotune, or on other hosts",
            hint="start a new study with its best configurations: autotune run TARGET --from "
            f"{shlex.quote(directory.name)}",
        )
    return environment


def _prepared(directory: Path, beds: str | None) -> Environment:
    """The environment that a study was begun on. On test beds, those of the study that ``beds`` names,
    or all. For a study in a storage, one of the beds that joined, which are alike."""
    file, first = _target_of(directory), first_record(directory)
    if first.get("shared"):
        return _joined(file, directory)
    recorded = first.get("beds")
    if recorded is None and beds is None:
        return prepare(file)
    if recorded is None:
        raise AutotuneError(
            f"study {directory.name} is not on test beds",
            hint="leave `--beds` out: a study stays where it was begun",
        )
    names = chosen(file.target, beds) if beds else tuple(recorded)
    if new := [name for name in names if name not in recorded]:
        raise AutotuneError(
            f"study {directory.name} was not begun on bed {new[0]}",
            hint=f"its beds: {', '.join(recorded)}",
        )
    return prepare_beds(file, names, {name: recorded[name]["adopted"] for name in names})


def _joined(file: TargetFile, directory: Path) -> Environment:
    """The first bed that joined a study in a storage and is in its target: workers may bring others."""
    adopted = {r["bed"]: r.get("adopted") or {} for r in journal.read(directory / EVENTS)
               if r["event"] == "joined"}  # fmt: skip
    bed = next((bed for bed in adopted if bed in file.target.beds), None)
    if bed is None:
        raise AutotuneError(
            f"no test bed that joined study {directory.name} is in its target",
            hint=f"{shlex.quote(directory.name)} has joined: {', '.join(adopted) or 'none yet'}; add one "
            f"to `beds:` of {file.path}",
        )
    return prepare_beds(file, (bed,), {bed: adopted[bed]})


def resume(environment: Environment, directory: Path, progress: ProgressReporter) -> None:
    """Continue a study where it stopped; nothing that was measured is measured again."""
    if isinstance(environment, Beds):
        with held(environment, directory, progress) as store:
            store.open_session(versions(), tuple(environment.environments))
            _run_on_beds(environment, store, progress)
        return
    with opened(environment, directory, progress) as context:
        context.store.open_session(versions())
        _run(environment, context, directory)


@contextmanager
def open_search(environment: Environment, directory: Path) -> Iterator[Searcher]:
    """The search of the study in ``directory``, with all that it has recorded, until the block ends.

    Raises AutotuneError for a storage that cannot be used, OSError if the disk is full.
    """
    path = foreign_files.writable(directory, STORAGE, foreign_files.DATABASE)
    with storage_errors(path):
        path.touch(mode=0o600)
        with open_sqlite(path) as storage:
            yield search(environment, directory.name, storage)


def search(
    environment: Environment | RecordedEnvironment,
    name: str,
    storage: BaseStorage,
    *,
    condensed: bool = False,
) -> Searcher:
    """The search of the study of this name in ``storage``."""
    target = environment.file.target
    return Searcher(
        storage,
        name,
        environment.space,
        target.search.sampler,
        target.search.seed,
        target.budget.trials,
        several=isinstance(environment, Beds),
        condensed=condensed,
    )


def _run_on_beds(environment: Beds, store: Store, progress: ProgressReporter) -> None:
    with open_search(environment, store.directory) as asking:
        progress.note(f"sampler {asking.chosen.name}: {asking.chosen.why}")
        tune_on_beds(environment, store, asking, environment.file.target.budget, progress)


def _run(environment: Environment, context: TrialContext, directory: Path) -> Verdict:
    with _open_timed(environment, context, directory) as asking:
        context.progress.note(f"sampler {asking.chosen.name}: {asking.chosen.why}")
        return loop.tune(context, asking, environment.file.target.budget)


@contextmanager
def _open_timed(
    environment: Environment, context: TrialContext, directory: Path
) -> Iterator[Searcher]:
    """The study's search; the time to open it counts as time spent searching."""
    with ExitStack() as stack:
        with context.clock.on("search"):
            asking = stack.enter_context(open_search(environment, directory))
        yield asking


def _keep(context: TrialContext, verdict: Verdict) -> None:
    """Deploy the winner once more, to stay; without one everything is restored."""
    if verdict.verdict != "improved" or verdict.best is None:
        context.progress.note("nothing is kept: no configuration is proven to be better")
        return
    fleet, settings = context.session.fleet, context.store.state.by_number(verdict.best).settings
    context.space.check(settings)
    fleet.deploy(settings)
    fleet.keep()
    context.progress.note(f"the configuration of trial {verdict.best} stays on the hosts")


def _target_of(directory: Path) -> TargetFile:
    """The target as the user has it now, or as the study ran it if that file is gone. Raises TargetError
    where it means something else by now."""
    record = first_record(directory)
    source, adopted = Path(record["source"]), record.get("adopted", {})
    kept = read_recorded(directory)
    if not source.exists():
        return replace(kept, adopted=adopted)
    today = read(source, [(option, value) for option, value in record.get("overrides", ())])
    changes = differences(kept.target, today.target)
    breaking = [str(change) for change in changes if change.breaks]
    if not breaking:
        asked = record.get("asked", {})
        now = digests(today) if asked else {}
        breaking = [
            f"{name}: other requests than then" for name in asked if now[name] != asked[name]
        ]
    if breaking:
        listed = "\n".join(f"  {change}" for change in breaking)
        raise TargetError(
            f"{source} has changed since study {directory.name} began, and its readings no longer "
            f"speak of it:\n{listed}",
            hint="change it back to resume, or start a new study with `autotune run`",
        )
    return replace(today, adopted=adopted)
