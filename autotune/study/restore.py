"""Putting back what a killed study left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from autotune.deploy.ground import remove_run_directory
from autotune.deploy.restoring import restore_hosts, restore_study
from autotune.errors import AutotuneError, LockedError
from autotune.runtimes.server_process import end_left_behind
from autotune.study.lock import holder, is_held
from autotune.study.store import first_record, state_of
from autotune.target.read import TargetFile, read
from autotune.transports.base import Transport
from autotune.transports.hosts import transports


def studies_of(target: Path, root: Path) -> list[Path]:
    """The studies under ``root`` that were made of this target file. Raises TargetError."""
    name = read(target).target.name
    found = [study for study in root.glob(f"{name}*") if _is_of(study, target)]
    # What was changed last is put back first: it found what an earlier one had left on purpose.
    return sorted(found, key=lambda study: (study / "target.yaml").stat().st_mtime, reverse=True)


def restore(studies: Sequence[Path]) -> list[str]:
    """Restore studies; what was done, a line each.

    Raises LockedError when a living tuner holds one of them: end that first.
    """
    return [line for study in studies for line in _restore(study)]


def restore_target(target: Path) -> list[str]:
    """Restore a target's hosts from their own copies, for which no study is needed."""
    file = read(target)
    if {tier.runtime for tier in file.target.tiers.values()} != {"systemd"}:
        return []
    with _ways(file) as ways:
        return restore_hosts(Path(file.target.name), ways)


def _is_of(study: Path, target: Path) -> bool:
    try:
        return Path(first_record(study)["source"]) == target.resolve()
    except AutotuneError:
        return False


def _restore(study: Path) -> list[str]:
    lock = study / "lock"
    if is_held(lock):
        raise LockedError(
            f"{study.name} is being tuned by {holder(lock)}", hint="stop that one: it restores too"
        )
    lines = _restore_hosts(study)
    run = study / "run"
    if not run.exists() and not run.is_symlink():
        return lines
    ended = end_left_behind(run.resolve())
    remove_run_directory(study)
    lines += [f"{study.name}: ended {name}" for name in ended]
    return [*lines, f"{study.name}: run directory removed"]


def _restore_hosts(study: Path) -> list[str]:
    state = state_of(study)
    if not (study / "originals").exists() and (state.verdict is not None or not state.started):
        return []
    file = _as_run(study)
    if {tier.runtime for tier in file.target.tiers.values()} != {"systemd"}:
        return []
    with _ways(file) as ways:
        return [f"{study.name}: {line}" for line in restore_study(study, ways)]


@contextmanager
def _ways(file: TargetFile) -> Iterator[dict[str, Transport]]:
    """The way to every host that has a tier."""
    ways = transports(file)
    try:
        yield {host: ways[host] for tier in file.target.tiers.values() for host in tier.hosts}
    finally:
        for way in ways.values():
            way.close()


def _as_run(study: Path) -> TargetFile:
    """The target as the study ran it; paths in it are relative to where it was read from."""
    kept = read(study / "target.yaml")
    source = Path(first_record(study)["source"])
    return TargetFile(kept.target, replace(kept.document, path=source))
