"""Restore what a killed study left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from autotune.deploy import restoring
from autotune.deploy.private_servers import end_left_behind, remove_run_directory
from autotune.errors import AutotuneError, LockedError, joined
from autotune.study.directory import holder, is_held
from autotune.study.store import first_record, state_of
from autotune.target.read import TargetFile, read
from autotune.transports.base import Transport
from autotune.transports.hosts import transports


def restore_study(study: Path) -> list[str]:
    """Restore what a study changed; what was done, a line each.

    Raises LockedError while a living tuner holds it, AutotuneError naming each host that could not be
    restored, after all others are.
    """
    _refuse_living([study])
    return _restore(study)


def restore_target(target: Path, root: Path) -> list[str]:
    """Restore what the studies of a target file under ``root`` changed, then its hosts from their own
    copies, for which no study is needed.

    Raises LockedError while a living tuner holds one of the studies, TargetError, and AutotuneError
    as ``restore_study`` does.
    """
    file = read(target)
    studies = _studies_of(target, file.target.name, root)
    _refuse_living(studies)
    return _each([*(partial(_restore, study) for study in studies), partial(_by_own_copies, file)])


def _each(steps: Sequence[Callable[[], list[str]]]) -> list[str]:
    """Every step to its end; raises what went wrong in any of them afterwards."""
    lines: list[str] = []
    errors: list[AutotuneError] = []
    for step in steps:
        try:
            lines += step()
        except AutotuneError as error:
            errors.append(error)
    if errors:
        raise joined(errors, after=lines)
    return lines


def _refuse_living(studies: Sequence[Path]) -> None:
    for study in studies:
        if is_held(lock := study / "lock"):
            raise LockedError(
                f"{study.name} is being tuned by {holder(lock)}",
                hint="stop that one: it restores too",
            )


def _studies_of(target: Path, name: str, root: Path) -> list[Path]:
    studies = [study for study in root.glob(f"{name}*") if _is_of(study, target)]
    # What was changed last is put back first: it found what an earlier one had left on purpose.
    return sorted(studies, key=lambda study: (study / "target.yaml").stat().st_mtime, reverse=True)


def _is_of(study: Path, target: Path) -> bool:
    try:
        return Path(first_record(study)["source"]) == target.resolve()
    except AutotuneError:
        return False


def _restore(study: Path) -> list[str]:
    return _each([partial(_restore_hosts, study), partial(_end_private_servers, study)])


def _end_private_servers(study: Path) -> list[str]:
    run = study / "run"
    if not run.exists() and not run.is_symlink():
        return []
    ended = end_left_behind(run.resolve())
    remove_run_directory(study)
    return [
        *(f"{study.name}: ended {name}" for name in ended),
        f"{study.name}: run directory removed",
    ]


def _restore_hosts(study: Path) -> list[str]:
    state = state_of(study)
    if not (study / "originals").exists() and (state.verdict is not None or not state.started):
        return []
    file = _as_run(study)
    if not _changes_hosts(file):
        return []
    with _transports(file) as reached:
        return [f"{study.name}: {line}" for line in restoring.restore_study(study, reached)]


def _by_own_copies(file: TargetFile) -> list[str]:
    if not _changes_hosts(file):
        return []
    with _transports(file) as reached:
        return restoring.restore_hosts(Path(file.target.name), reached)


def _changes_hosts(file: TargetFile) -> bool:
    return all(tier.installed for tier in file.target.tiers.values())


@contextmanager
def _transports(file: TargetFile) -> Iterator[dict[str, Transport]]:
    """The transport of every host that a study changes: those of tiers, and those that make load."""
    target = file.target
    loading = (name for name in target.load.hosts if target.hosts[name].transport != "local")
    changed = {*loading, *(host for tier in target.tiers.values() for host in tier.hosts)}
    every = transports(file)
    try:
        yield {name: transport for name, transport in every.items() if name in changed}
    finally:
        for transport in every.values():
            transport.close()


def _as_run(study: Path) -> TargetFile:
    """The target as the study ran it; paths in it are relative to where it was read from."""
    kept = read(study / "target.yaml")
    source = Path(first_record(study)["source"])
    return TargetFile(kept.target, replace(kept.document, path=source))
