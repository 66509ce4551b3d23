"""Restore what a killed study left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from autotune import foreign_files
from autotune.deploy import managed_hosts, run_directories
from autotune.deploy.backup import BackupStore
from autotune.deploy.host_state import ServiceManager
from autotune.deploy.private_servers import end_left_behind
from autotune.errors import AutotuneError, LockedError, joined
from autotune.study import origin
from autotune.study.directory import EVENTS, holder, is_held
from autotune.study.store import first_record, state_of
from autotune.target.beds import DIRECTORY, directory_of, needs_bed
from autotune.target.read import TARGET, TargetFile, read_addresses
from autotune.target.runtimes import runtime_module
from autotune.transports.base import Transport
from autotune.transports.hosts import transports

NOT_USED = "move {study} out of the directory of studies; `run --from` uses its best settings"
RestoreHosts = Callable[[Path, Mapping[str, Transport], ServiceManager], list[str]]


def restore_study(study: Path) -> list[str]:
    """Restore what a study changed. Returns what was done, a line each.

    Raises LockedError while a living tuner holds it, AutotuneError for a study that this account did
    not begin here, and naming each host that could not be restored, after all others are.
    """
    origin.check_own(study, origin.FROM_HOSTS)
    _refuse_living([study])
    return _restore(study)


def restore_target(target: Path, root: Path) -> list[str]:
    """Restore what the studies of a target file under ``root`` changed, then its hosts from their own
    copies, for which no study is needed.

    Copies of studies that this account did not begin here are not used: the error at the end names
    them. Raises LockedError while a living tuner holds one of the studies, TargetError, and
    AutotuneError as ``restore_study`` does.
    """
    file = read_addresses(target)
    names = (name for name in foreign_files.names(root) if name.startswith(file.target.name))
    every = [root / name for name in names if _source(root / name) == target.resolve()]
    studies = [study for study in every if origin.is_own(study)]
    others = [study for study in every if study not in studies]
    # The study that changed hosts last is restored first: its backup has what an earlier one had left
    # on purpose.
    studies.sort(key=lambda study: (study / EVENTS).stat().st_mtime, reverse=True)
    _refuse_living(studies)
    refusals = [partial(_refuse, study) for study in others]
    with TemporaryDirectory() as empty:
        own = _by_own_copies(file, Path(empty) / file.target.name)
        return _each([*(partial(_restore, study) for study in studies), *own, *refusals])


def _by_own_copies(file: TargetFile, study: Path) -> list[Callable[[], list[str]]]:
    """Restore each host from its own copy; ``study`` is a directory that does not exist."""
    restore_hosts = managed_hosts.restore_hosts
    own: list[Callable[[], list[str]]] = []
    if not needs_bed(file.target):
        own = [partial(_by_transports, file, study, restore_hosts)]
    if beds := tuple(file.target.beds):
        own += _on_beds(file, study, beds, restore_hosts)
    return own


def _refuse(study: Path) -> list[str]:
    origin.check_own(study, NOT_USED)
    return []


def _on_beds(
    file: TargetFile, study: Path, beds: Sequence[str], restore: RestoreHosts
) -> list[Callable[[], list[str]]]:
    """``restore`` on each test bed, with its name before each line; without beds, on the hosts."""
    if not beds:
        return [partial(_by_transports, file, study, restore)]

    def on(bed: str) -> list[str]:
        lines = _by_transports(file.of_bed(bed), directory_of(study, bed), restore)
        return [f"bed {bed}: {line}" for line in lines]

    return [partial(on, bed) for bed in beds]


def _each(steps: Sequence[Callable[[], list[str]]]) -> list[str]:
    """Run every step to its end, then raise what went wrong in any of them."""
    lines: list[str] = []
    errors: list[AutotuneError] = []
    for step in steps:
        try:
            # What lies on a host is reported by its study, with that name in front, and again by its
            # target: one line is enough.
            named = {*lines, *(line.partition(": ")[2] for line in lines)}
            lines += [line for line in step() if line not in named]
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


def _source(study: Path) -> Path | None:
    """The target file that the study was begun with; ``None`` where nothing says so."""
    try:
        return Path(first_record(study)["source"])
    except (AutotuneError, KeyError, TypeError):
        return None


def _restore(study: Path) -> list[str]:
    beds = foreign_files.names(study, DIRECTORY)
    directories = (study, *(directory_of(study, bed) for bed in beds))
    ending = [partial(_end_private_servers, study, directory) for directory in directories]
    return _each([partial(_restore_hosts, study), *ending])


def _end_private_servers(study: Path, directory: Path) -> list[str]:
    run = run_directories.of_study(directory)
    if run is None:
        return []
    ended = end_left_behind(run)
    run_directories.remove(directory)
    lines = [*(f"ended {name}" for name in ended), "run directory removed"]
    return [f"{study.name}: {line}" for line in lines]


def _restore_hosts(study: Path) -> list[str]:
    # With originals there is something to restore, whatever the journal says or has lost.
    beds = (directory_of(study, bed) for bed in foreign_files.names(study, DIRECTORY))
    if not any(BackupStore(directory).hosts() for directory in (study, *beds)):
        state = state_of(study)
        if state.verdict is not None or not state.started:
            return []
    file = read_addresses(study / TARGET, foreign=True)
    # Paths in the target are relative to where it was read from.
    source = _source(study) or study / TARGET
    as_run = TargetFile(file.target, replace(file.document, path=source))
    lines = _each(_on_beds(as_run, study, _beds(study), managed_hosts.restore_study))
    return [f"{study.name}: {line}" for line in lines]


def _beds(study: Path) -> tuple[str, ...]:
    """The test beds that a study is to measure on, or else those that it has originals of."""
    kept = foreign_files.names(study, DIRECTORY)
    try:
        return tuple(first_record(study).get("beds") or kept)
    except AutotuneError:
        return kept


def _by_transports(
    file: TargetFile,
    study: Path,
    restore: RestoreHosts,
) -> list[str]:
    """``restore``, with the transports of the hosts that a study of this target changes: those of
    tiers, and those that make load."""
    target = file.target
    if target.simulated is not None:
        return []
    managers = [runtime_module(tier.runtime).RUNTIME.service_manager
                for tier in target.tiers.values()]  # fmt: skip
    if None in managers or not managers:
        return []
    loading = (name for name in target.load.hosts if target.hosts[name].transport != "local")
    changed = {*loading, *(host for tier in target.tiers.values() for host in tier.hosts)}
    every = transports(file)
    try:
        reached = {name: every[name] for name in every if name in changed}
        return restore(study, reached, managers[0])
    finally:
        for transport in every.values():
            transport.close()
