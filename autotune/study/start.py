"""Starting a study and continuing one."""

from __future__ import annotations

import shlex
from pathlib import Path

from autotune.environments.base import Bed
from autotune.environments.registry import prepare
from autotune.errors import AutotuneError, TargetError
from autotune.optimize.searcher import Searcher, sqlite
from autotune.optimize.transfer import transferred
from autotune.study import loop, ranking, session
from autotune.study.progress import Narrator
from autotune.study.records import State
from autotune.study.store import first_record, state_of
from autotune.study.trial import Bench
from autotune.study.verdict import Verdict
from autotune.target.compare import differences
from autotune.target.read import TargetFile, read


def start(
    bed: Bed,
    directory: Path,
    narrator: Narrator,
    *,
    keep: bool = False,
    earlier: Path | None = None,
) -> None:
    """Run a new study of a target to its end, in a directory that is not there yet.

    ``keep``: the winner, if it is proven, is left on the hosts. ``earlier``: the directory of a
    study whose leaders are tried first, as far as they apply here. Raises AutotuneError where the
    target's services cannot stay.
    """
    with session.opened(bed, directory, narrator) as bench:
        if keep and not bench.equipment.fleet.keeps:
            raise AutotuneError(
                "private servers end with their study: there is nothing to keep",
                hint="`autotune export` writes the winner's files",
            )
        open_study(bed, bench, directory)
        if earlier is not None:
            _take_over(bed, bench, earlier)
        verdict = _run(bed, bench, directory)
        if keep:
            _keep(bench, verdict)


def _take_over(bed: Bed, bench: Bench, earlier: Path) -> None:
    """Put the leaders of an earlier study on record, to be tried first."""
    state = state_of(earlier)
    stock = ranking.baseline(state)
    estimates = ranking.contenders(state)
    ranked = sorted(estimates, key=lambda trial: -estimates[trial].log_mean)
    found = transferred(
        [state.by_number(trial).settings for trial in ranked],
        stock.settings if stock else {},
        bed.space,
    )
    bench.store.transferred(earlier.name, found)
    bench.narrator.note(f"{len(found)} configurations of study {earlier.name} apply here")


def open_study(bed: Bed, bench: Bench, directory: Path) -> None:
    """Put on record what is run, from where and on what."""
    bench.store.open_study(
        directory.name,
        bed.file.path.read_text(encoding="utf-8"),
        source=str(bed.file.path.resolve()),
        facts={name: dict(facts.names()) for name, facts in bed.facts.items()},
    )
    bench.store.open_session(session.versions())


def unfinished(directory: Path) -> Bed:
    """A study that can be continued, understood on today's hosts.

    Raises TargetError when the target has changed so that earlier readings no longer speak of it.
    """
    state = state_of(directory)
    if state.verdict is not None:
        raise AutotuneError(
            f"study {directory.name} is finished",
            hint=f"autotune report {shlex.quote(directory.name)}",
        )
    return _understood(directory, state)


def resume(bed: Bed, directory: Path, narrator: Narrator) -> None:
    """Continue a study where it stopped; nothing that was measured is measured again."""
    with session.opened(bed, directory, narrator) as bench:
        bench.store.open_session(session.versions())
        _run(bed, bench, directory)


def searcher(bed: Bed, directory: Path) -> Searcher:
    """The search of the study in ``directory``, with all that it has been told."""
    target = bed.file.target
    return Searcher(
        sqlite(directory / "study.db"),
        directory.name,
        bed.space,
        target.search.sampler,
        target.search.seed,
        target.budget.trials,
    )


def finished(directory: Path) -> Bed:
    """A study that has been run, understood on today's hosts. Raises TargetError, AutotuneError."""
    return _understood(directory, state_of(directory))


def _understood(directory: Path, state: State) -> Bed:
    """Raises AutotuneError where something is tuned today that the study knows nothing of."""
    bed = prepare(_target_of(directory))
    known = state.trials[0].settings if state.trials else bed.space.baseline
    if new := [d.name for d in bed.space.tunable if d.name not in known]:
        more = f" and {len(new) - 1} more" if len(new) > 1 else ""
        raise AutotuneError(
            f"study {directory.name} knows nothing of {new[0]}{more}: it was begun with another "
            "version of autotune, or on other hosts",
            hint=f"a new one can begin with what it found: autotune run TARGET --from "
            f"{shlex.quote(directory.name)}",
        )
    return bed


def _run(bed: Bed, bench: Bench, directory: Path) -> Verdict:
    with bench.clock.on("search"):
        search = searcher(bed, directory)
    bench.narrator.note(f"sampler {search.chosen.name}: {search.chosen.why}")
    return loop.tune(bench, search, bed.file.target.budget)


def _keep(bench: Bench, verdict: Verdict) -> None:
    """Deploy the winner once more, to stay; without one everything is put back as ever."""
    if verdict.verdict != "improved" or verdict.best is None:
        bench.narrator.note("nothing is kept: no configuration is proven to be better")
        return
    fleet = bench.equipment.fleet
    fleet.deploy(bench.store.state.by_number(verdict.best).settings)
    fleet.keep()
    bench.narrator.note(f"the configuration of trial {verdict.best} stays on the hosts")


def _target_of(directory: Path) -> TargetFile:
    """The target as the user has it now, if it still means the same; else as the study ran it."""
    source = Path(first_record(directory)["source"])
    kept = read(directory / "target.yaml")
    if not source.exists():
        return kept
    today = read(source)
    changes = differences(kept.target, today.target)
    if breaking := [change for change in changes if change.breaks]:
        listed = "\n".join(f"  {change}" for change in breaking)
        raise TargetError(
            f"{source} has changed since study {directory.name} began, and its readings no longer "
            f"speak of it:\n{listed}",
            hint="change it back to resume, or start a new study with `autotune run`",
        )
    return today
