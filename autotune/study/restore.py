"""Restore hosts after a study was killed and left its changes in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from autotune import foreign_files
from autotune.deploy import run_directories
from autotune.deploy.backup import BackupStore
from autotune.deploy.managed_hosts import restore_hosts
from autotune.deploy.private_servers import stop_orphaned
from autotune.errors import AutotuneError, LockedError, join_errors
from autotune.runtimes import load_runtime
from autotune.study import ownership
from autotune.study.directory import EVENTS_FILE, describe_lock_holder, is_locked
from autotune.study.entry_check import await_entry
from autotune.study.study_store import load_state, read_study_start
from autotune.target.beds import BEDS_DIRECTORY, find_bed_directory, needs_bed
from autotune.target.read_target import TARGET_FILE_NAME, TargetFile, read_addresses
from autotune.transports.target_hosts import create_transports

NOT_OWN_HINT = "move {study} to another directory; `run --from` can use its best settings"
RestoreStep = Callable[[], list[str]]  # returns lines about its actions


def restore_study(study: Path) -> list[str]:
    """Restore everything that a study changed. Return a line for each action.

    Raises LockedError if a tuner is running the study, and AutotuneError if this account did not start
    it on this machine. If some hosts cannot be restored, all others are restored, and the AutotuneError
    names the failures.
    """
    ownership.check_own_study(study, ownership.RESTORE_TARGET_HINT)
    _reject_running_studies([study])
    return _run_all_steps(_plan_study_restore(study))


def restore_target(target: Path, root: Path) -> list[str]:
    """Undo the changes by all studies of a target file under ``root``, then restore its hosts.

    The copies of original files on the hosts are used for this, so no study is needed.

    Studies that this account did not start on this machine are not used; the final error names them.
    Raises LockedError if a tuner is running one of the studies, TargetError if the target is invalid,
    and AutotuneError as in ``restore_study``.
    """
    file = read_addresses(target)
    # With `--name` and in sweeps, the name of a study differs from the target's name.
    candidates = [
        root / name
        for name in foreign_files.list_names(root)
        if _read_target_path(root / name) == target.resolve()
    ]
    studies = [study for study in candidates if ownership.is_own_study(study)]
    foreign_studies = [study for study in candidates if study not in studies]
    # The last study is restored first, because its backup includes intended changes by earlier studies.
    studies.sort(key=lambda study: (study / EVENTS_FILE).stat().st_mtime, reverse=True)
    _reject_running_studies(studies)
    refusals = [partial(_reject_foreign_study, study) for study in foreign_studies]
    with TemporaryDirectory() as empty:
        study_steps = (step for study in studies for step in _plan_study_restore(study))
        host_steps = _plan_host_restores(file, Path(empty) / file.target.name)
        return _run_all_steps([*study_steps, *host_steps, *refusals])


def _plan_host_restores(file: TargetFile, study: Path) -> list[RestoreStep]:
    """Return steps that restore each host from the original files saved on it, without a study on
    disk.
    """
    steps: list[RestoreStep] = []
    if not needs_bed(file.target):
        steps = [partial(_restore_over_transports, file, study, prefers_host_copies=True)]
    if beds := tuple(file.target.beds):
        steps += _plan_bed_restores(file, study, beds, prefers_host_copies=True)
    return steps


def _reject_foreign_study(study: Path) -> list[str]:
    ownership.check_own_study(study, NOT_OWN_HINT)
    return []


def _plan_bed_restores(
    file: TargetFile, study: Path, beds: Sequence[str], *, prefers_host_copies: bool
) -> list[RestoreStep]:
    """Return a step that restores the hosts of each test bed, or of a target without test beds."""
    if not beds:
        return [
            partial(_restore_over_transports, file, study, prefers_host_copies=prefers_host_copies)
        ]

    def restore_bed(bed: str) -> list[str]:
        directory = find_bed_directory(study, bed)
        lines = _restore_over_transports(
            file.for_bed(bed), directory, prefers_host_copies=prefers_host_copies
        )
        return [f"bed {bed}: {line}" for line in lines]

    return [partial(restore_bed, bed) for bed in beds]


def _run_all_steps(steps: Sequence[RestoreStep]) -> list[str]:
    """Run every step, then raise all errors together. Return the lines from all steps."""
    lines: list[str] = []
    errors: list[AutotuneError] = []
    for step in steps:
        try:
            # The steps of a study and of its target may report the same restored file. Only the lines of
            # a study start with its name. Repeated lines are dropped.
            reported_lines = {*lines, *(line.partition(": ")[2] for line in lines)}
            lines += [line for line in step() if line not in reported_lines]
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
                hint="stop that process; it restores the hosts itself",
            )


def _read_target_path(study: Path) -> Path | None:
    """Return the path of a study's target file; ``None`` if it is not recorded or not readable."""
    try:
        source = read_study_start(study).source
    except (AutotuneError, OSError):
        return None
    return Path(source) if source else None


def _plan_study_restore(study: Path) -> list[RestoreStep]:
    """Return steps that restore the hosts of a study, then stop its private servers."""
    return [partial(_restore_hosts, study), partial(_stop_private_servers, study)]


def _stop_private_servers(study: Path) -> list[str]:
    beds = foreign_files.list_names(study, BEDS_DIRECTORY)
    directories = (study, *(find_bed_directory(study, bed) for bed in beds))
    return _run_all_steps(
        [partial(_stop_servers_of, study, directory) for directory in directories]
    )


def _stop_servers_of(study: Path, directory: Path) -> list[str]:
    run_directory = run_directories.find_run_directory(directory)
    if run_directory is None:
        return []
    stopped_servers = stop_orphaned(run_directory)
    run_directories.remove_run_directory(directory)
    lines = [*(f"stopped {name}" for name in stopped_servers), "run directory removed"]
    return [f"{study.name}: {line}" for line in lines]


def _restore_hosts(study: Path) -> list[str]:
    # Saved original files must be restored even if the journal is incomplete.
    beds = (
        find_bed_directory(study, bed) for bed in foreign_files.list_names(study, BEDS_DIRECTORY)
    )
    if not any(BackupStore(directory).list_hosts() for directory in (study, *beds)):
        state = load_state(study)
        if state.verdict is not None or not state.started:
            return []
    file = read_addresses(study / TARGET_FILE_NAME, foreign=True)
    # Paths in the target are relative to the directory that it was read from.
    source = _read_target_path(study) or study / TARGET_FILE_NAME
    located_file = TargetFile(file.target, replace(file.document, path=source))
    lines = _run_all_steps(
        _plan_bed_restores(located_file, study, _list_study_beds(study), prefers_host_copies=False)
    )
    return [f"{study.name}: {line}" for line in lines]


def _list_study_beds(study: Path) -> tuple[str, ...]:
    """Return the recorded test beds of a study, or else the beds with saved originals."""
    saved_beds = foreign_files.list_names(study, BEDS_DIRECTORY)
    try:
        return tuple(read_study_start(study).beds or saved_beds)
    except AutotuneError:
        return saved_beds


def _restore_over_transports(
    file: TargetFile, study: Path, *, prefers_host_copies: bool
) -> list[str]:
    """Restore all hosts that a study of this target changes: tier and load hosts."""
    target = file.target
    if target.simulated is not None:
        return []
    managers = [load_runtime(tier.runtime).service_manager for tier in target.tiers.values()]
    manager = managers[0] if managers and None not in managers else None
    if manager is None:
        return []
    load_hosts = (name for name in target.load.hosts if target.hosts[name].transport != "local")
    changed_hosts = {*load_hosts, *(host for tier in target.tiers.values() for host in tier.hosts)}
    transports = create_transports(file)
    try:
        changed_transports = {
            name: transports[name] for name in transports if name in changed_hosts
        }
        await_answer = partial(await_entry, file, transports)
        return restore_hosts(
            study,
            changed_transports,
            manager,
            await_answer,
            prefers_host_copies=prefers_host_copies,
        )
    finally:
        for transport in transports.values():
            transport.close()
