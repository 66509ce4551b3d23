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
from autotune.deploy.private_servers import stop_orphaned
from autotune.errors import AutotuneError, LockedError, join_errors
from autotune.study import ownership
from autotune.study.directory import EVENTS_FILE, describe_lock_holder, is_locked
from autotune.study.entry_check import await_entry
from autotune.study.study_store import load_state, read_first_record
from autotune.target.beds import BEDS_DIRECTORY, bed_directory, needs_bed
from autotune.target.read_target import TARGET_FILE_NAME, TargetFile, read_addresses
from autotune.target.runtimes import import_runtime
from autotune.transports.base import Transport
from autotune.transports.target_hosts import create_transports

NOT_OWN_HINT = "move {study} out of the directory of studies; `run --from` uses its best settings"
RestoreHosts = Callable[
    [Path, Mapping[str, Transport], ServiceManager, Callable[[], str] | None], list[str]
]


def restore_study(study: Path) -> list[str]:
    """Restore what a study changed. Returns what was done, a line each.

    Raises LockedError while a living tuner holds it, AutotuneError for a study that this account did
    not begin here, and naming each host that could not be restored, after all others are.
    """
    ownership.check_own_study(study, ownership.RESTORE_TARGET_HINT)
    _reject_running_studies([study])
    return _restore_unlocked(study)


def restore_target(target: Path, root: Path) -> list[str]:
    """Restore what the studies of a target file under ``root`` changed, then its hosts from their own
    copies, for which no study is needed.

    Copies of studies that this account did not begin here are not used: the error at the end names
    them. Raises LockedError while a living tuner holds one of the studies, TargetError, and
    AutotuneError as ``restore_study`` does.
    """
    file = read_addresses(target)
    names = (name for name in foreign_files.list_names(root) if name.startswith(file.target.name))
    every = [root / name for name in names if _read_target_path(root / name) == target.resolve()]
    studies = [study for study in every if ownership.is_own_study(study)]
    others = [study for study in every if study not in studies]
    # The study that changed hosts last is restored first: its backup has what an earlier one had left
    # on purpose.
    studies.sort(key=lambda study: (study / EVENTS_FILE).stat().st_mtime, reverse=True)
    _reject_running_studies(studies)
    refusals = [partial(_reject_foreign_study, study) for study in others]
    with TemporaryDirectory() as empty:
        own = _plan_host_restores(file, Path(empty) / file.target.name)
        return _run_all_steps(
            [*(partial(_restore_unlocked, study) for study in studies), *own, *refusals]
        )


def _plan_host_restores(file: TargetFile, study: Path) -> list[Callable[[], list[str]]]:
    """Restore each host from its own copy; ``study`` is a directory that does not exist."""
    restore_hosts = managed_hosts.restore_hosts
    own: list[Callable[[], list[str]]] = []
    if not needs_bed(file.target):
        own = [partial(_restore_over_transports, file, study, restore_hosts)]
    if beds := tuple(file.target.beds):
        own += _plan_bed_restores(file, study, beds, restore_hosts)
    return own


def _reject_foreign_study(study: Path) -> list[str]:
    ownership.check_own_study(study, NOT_OWN_HINT)
    return []


def _plan_bed_restores(
    file: TargetFile, study: Path, beds: Sequence[str], restore_hosts: RestoreHosts
) -> list[Callable[[], list[str]]]:
    """``restore_hosts`` on each test bed, with its name before each line; without beds, on the hosts."""
    if not beds:
        return [partial(_restore_over_transports, file, study, restore_hosts)]

    def on(bed: str) -> list[str]:
        lines = _restore_over_transports(
            file.for_bed(bed), bed_directory(study, bed), restore_hosts
        )
        return [f"bed {bed}: {line}" for line in lines]

    return [partial(on, bed) for bed in beds]


def _run_all_steps(steps: Sequence[Callable[[], list[str]]]) -> list[str]:
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
        raise join_errors(errors, first_lines=lines)
    return lines


def _reject_running_studies(studies: Sequence[Path]) -> None:
    for study in studies:
        if is_locked(lock := study / "lock"):
            raise LockedError(
                f"{study.name} is being tuned by {describe_lock_holder(lock)}",
                hint="stop that one: it restores too",
            )


def _read_target_path(study: Path) -> Path | None:
    """The target file that the study was begun with; ``None`` where nothing says so."""
    try:
        return Path(read_first_record(study)["source"])
    except (AutotuneError, KeyError, TypeError):
        return None


def _restore_unlocked(study: Path) -> list[str]:
    beds = foreign_files.list_names(study, BEDS_DIRECTORY)
    directories = (study, *(bed_directory(study, bed) for bed in beds))
    ending = [partial(_stop_private_servers, study, directory) for directory in directories]
    return _run_all_steps([partial(_restore_hosts, study), *ending])


def _stop_private_servers(study: Path, directory: Path) -> list[str]:
    run = run_directories.find_run_directory(directory)
    if run is None:
        return []
    ended = stop_orphaned(run)
    run_directories.remove_run_directory(directory)
    lines = [*(f"ended {name}" for name in ended), "run directory removed"]
    return [f"{study.name}: {line}" for line in lines]


def _restore_hosts(study: Path) -> list[str]:
    # With originals there is something to restore, whatever the journal says or has lost.
    beds = (bed_directory(study, bed) for bed in foreign_files.list_names(study, BEDS_DIRECTORY))
    if not any(BackupStore(directory).list_hosts() for directory in (study, *beds)):
        state = load_state(study)
        if state.verdict is not None or not state.started:
            return []
    file = read_addresses(study / TARGET_FILE_NAME, foreign=True)
    # Paths in the target are relative to where it was read from.
    source = _read_target_path(study) or study / TARGET_FILE_NAME
    as_run = TargetFile(file.target, replace(file.document, path=source))
    lines = _run_all_steps(
        _plan_bed_restores(as_run, study, _list_study_beds(study), managed_hosts.restore_study)
    )
    return [f"{study.name}: {line}" for line in lines]


def _list_study_beds(study: Path) -> tuple[str, ...]:
    """The test beds that a study is to measure on, or else those that it has originals of."""
    kept = foreign_files.list_names(study, BEDS_DIRECTORY)
    try:
        return tuple(read_first_record(study).get("beds") or kept)
    except AutotuneError:
        return kept


def _restore_over_transports(
    file: TargetFile,
    study: Path,
    restore_hosts: RestoreHosts,
) -> list[str]:
    """``restore_hosts``, with the transports of the hosts that a study of this target changes: those of
    tiers, and those that make load."""
    target = file.target
    if target.simulated is not None:
        return []
    managers = [import_runtime(tier.runtime).RUNTIME.service_manager
                for tier in target.tiers.values()]  # fmt: skip
    if None in managers or not managers:
        return []
    loading = (name for name in target.load.hosts if target.hosts[name].transport != "local")
    changed = {*loading, *(host for tier in target.tiers.values() for host in tier.hosts)}
    every = create_transports(file)
    try:
        reached = {name: every[name] for name in every if name in changed}
        return restore_hosts(study, reached, managers[0], partial(await_entry, file, every))
    finally:
        for transport in every.values():
            transport.close()
