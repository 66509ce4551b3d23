"""Restore hosts after a study was killed and left its changes in place."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from autotune import foreign_files
from autotune.deploy import run_directories
from autotune.deploy.backup import BackupStore
from autotune.deploy.managed_hosts import restore_hosts
from autotune.deploy.private_servers import stop_orphaned
from autotune.errors import AutotuneError, LockedError, join_errors
from autotune.runtimes import load_runtime
from autotune.study import ownership
from autotune.study.directory import EVENTS_FILE, describe_lock_holder, is_locked
from autotune.study.entry_check import await_correct_entries
from autotune.study.study_store import load_state, read_study_start
from autotune.target.beds import BEDS_DIRECTORY, find_bed_directory, needs_bed
from autotune.target.read_target import TARGET_FILE_NAME, TargetFile, read_addresses
from autotune.transports.target_hosts import create_transports

NOT_OWN_HINT = "move {study} to another directory; `run --from` can use its best settings"


@dataclass
class RestoreReport:
    """Lines about everything that was restored, and the errors of the steps that failed."""

    lines: list[str] = field(default_factory=list)
    errors: list[AutotuneError] = field(default_factory=list)

    @contextmanager
    def collect_error(self) -> Iterator[None]:
        """Collect an AutotuneError or a system error, so that the steps after this block still run."""
        try:
            yield
        except AutotuneError as error:
            self.errors.append(error)
        except OSError as error:
            self.errors.append(
                AutotuneError(f"{error.filename or 'a file'}: {error.strerror or error}")
            )

    def add_lines(self, lines: Iterable[str], prefix: str = "") -> None:
        """Add lines that were not reported before.

        The restore of a study and of its target may report the same file. Only the lines of a study
        start with its name.
        """
        known_lines = {*self.lines, *(line.partition(": ")[2] for line in self.lines)}
        new_lines = (f"{prefix}{line}" for line in lines)
        self.lines += [line for line in new_lines if line not in known_lines]

    def unwrap(self) -> list[str]:
        """Return the lines. Raises an AutotuneError that names all failures."""
        if self.errors:
            raise join_errors(self.errors, first_lines=self.lines)
        return self.lines


def restore_study(study: Path, report: RestoreReport) -> None:
    """Restore everything that a study changed, and add a line or an error for each action.

    Raises LockedError if a tuner is running the study, and AutotuneError if this account did not start
    the study on this machine. If some hosts cannot be restored, all others are restored.
    """
    ownership.check_own_study(study, ownership.RESTORE_TARGET_HINT)
    _reject_running_studies([study])
    line_prefix = f"{study.name}: "
    with report.collect_error():
        for target_file, bed in _list_changed_beds(study):
            with report.collect_error():
                report.add_lines(_restore_bed(target_file, study, bed), line_prefix)
    with report.collect_error():
        for directory in _list_directories(study):
            with report.collect_error():
                report.add_lines(_stop_private_servers(directory), line_prefix)


def restore_target(target: Path, root: Path, report: RestoreReport) -> None:
    """Undo the changes by all studies of a target file under ``root``, then restore its hosts.

    No study is needed, because the hosts contain copies of the original files.

    Studies that this account did not start on this machine are not used; the final error names them.
    Raises LockedError if a tuner is running one of the studies, and TargetError if the target is
    invalid.
    """
    file = read_addresses(target)
    directory_names: tuple[str, ...] = ()
    with report.collect_error():
        directory_names = foreign_files.list_names(root)
    # With `--name` and in sweeps, the name of a study differs from the target's name.
    candidate_directories = [
        root / directory_name
        for directory_name in directory_names
        if _read_target_path(root / directory_name) == target.resolve()
    ]
    studies = [study for study in candidate_directories if ownership.is_own_study(study)]
    foreign_studies = [study for study in candidate_directories if study not in studies]
    # The last study is restored first, because its backup includes intended changes by earlier studies.
    studies.sort(key=lambda study: (study / EVENTS_FILE).stat().st_mtime, reverse=True)
    _reject_running_studies(studies)
    for study in studies:
        with report.collect_error():
            restore_study(study, report)
    beds: list[str | None] = [*([] if needs_bed(file.target) else [None]), *file.target.beds]
    # This directory does not exist, and is not created, because the disk may be full.
    no_study = root / f".no-study-{secrets.token_hex(8)}" / file.target.name
    for bed in beds:
        with report.collect_error():
            report.add_lines(_restore_bed(file, no_study, bed, prefers_host_copies=True))
    for study in foreign_studies:
        with report.collect_error():
            ownership.check_own_study(study, NOT_OWN_HINT)


def _reject_running_studies(studies: Sequence[Path]) -> None:
    for study in studies:
        if is_locked(lock_path := study / "lock"):
            raise LockedError(
                f"{study.name} is being tuned by {describe_lock_holder(lock_path) or 'another process'}",
                hint="stop that process; it restores the hosts itself",
            )


def _read_target_path(study: Path) -> Path | None:
    """Return the path of a study's target file; ``None`` if it is not recorded or not readable."""
    try:
        recorded_path = read_study_start(study).source
    except (AutotuneError, OSError):
        return None
    return Path(recorded_path) if recorded_path else None


def _stop_private_servers(directory: Path) -> list[str]:
    """Stop the private servers of a study or bed. Return a line for each action."""
    run_directory = run_directories.find_run_directory(directory)
    if run_directory is None:
        return []
    stopped_servers = stop_orphaned(run_directory)
    run_directories.remove_run_directory(directory)
    return [*(f"stopped {server_name}" for server_name in stopped_servers), "run directory removed"]


def has_saved_originals(study: Path) -> bool:
    """True if hosts of a study, or of its beds, have not been restored yet."""
    return any(BackupStore(directory).list_hosts() for directory in _list_directories(study))


def _list_directories(study: Path) -> list[Path]:
    """Return the directories of a study and its beds, which may contain saved originals."""
    beds = foreign_files.list_names(study, BEDS_DIRECTORY)
    return [study, *(find_bed_directory(study, bed) for bed in beds)]


def _list_changed_beds(study: Path) -> list[tuple[TargetFile, str | None]]:
    """Return a study's target with each test bed that the study may have changed. The bed is ``None``
    if the target has no test beds.
    """
    # Saved original files must be restored even if the journal is incomplete.
    if not has_saved_originals(study):
        state = load_state(study)
        if state.verdict is not None or not state.started:
            return []
    target_file = read_addresses(study / TARGET_FILE_NAME, foreign=True)
    # Paths in the target are relative to the directory that it was read from.
    target_path = _read_target_path(study) or study / TARGET_FILE_NAME
    located_file = TargetFile(target_file.target, replace(target_file.document, path=target_path))
    return [(located_file, bed) for bed in _list_study_beds(study) or [None]]


def _list_study_beds(study: Path) -> tuple[str, ...]:
    """Return the recorded test beds of a study, or else the beds with saved originals."""
    saved_beds = foreign_files.list_names(study, BEDS_DIRECTORY)
    try:
        return tuple(read_study_start(study).beds or saved_beds)
    except AutotuneError:
        return saved_beds


def _restore_bed(
    file: TargetFile, study: Path, bed: str | None, *, prefers_host_copies: bool = False
) -> list[str]:
    """Restore the hosts that a study of this target changes: tier and load hosts. Return a line for
    each action.
    """
    line_prefix = ""
    if bed is not None:
        file = _find_bed_file(file, study, bed)
        study, line_prefix = find_bed_directory(study, bed), f"bed {bed}: "
    target = file.target
    if target.simulated is not None:
        return []
    managers = [load_runtime(tier.runtime).service_manager for tier in target.tiers.values()]
    manager = managers[0] if managers and None not in managers else None
    if manager is None:
        return []
    load_hosts = (
        host_name for host_name in target.load.hosts if target.hosts[host_name].transport != "local"
    )
    changed_hosts = {*load_hosts, *(host for tier in target.tiers.values() for host in tier.hosts)}
    transports = create_transports(file)
    try:
        action_lines = restore_hosts(
            study,
            {
                host_name: transports[host_name]
                for host_name in transports
                if host_name in changed_hosts
            },
            manager,
            partial(await_correct_entries, file, transports),
            prefers_host_copies=prefers_host_copies,
        )
        return [f"{line_prefix}{line}" for line in action_lines]
    finally:
        for transport in transports.values():
            transport.close()


def _find_bed_file(file: TargetFile, study: Path, bed: str) -> TargetFile:
    """Return the target of a test bed: from the worker's own target if this machine joined a shared
    study, or else from ``file``.
    """
    directory = find_bed_directory(study, bed)
    if foreign_files.exists(directory, TARGET_FILE_NAME):
        if not ownership.has_valid_bed_seal(study, bed):
            raise AutotuneError(
                f"the target of bed {bed} has no valid seal, so the hosts of this bed are not restored",
                hint=ownership.RESTORE_TARGET_HINT,
            )
        bed_file = read_addresses(directory / TARGET_FILE_NAME, foreign=True)
        file = replace(file, target=bed_file.target)
    if bed not in file.target.beds:
        raise AutotuneError(
            f"bed {bed} is not in the target of the study, so its hosts are not restored",
            hint=ownership.RESTORE_TARGET_HINT,
        )
    return file.for_bed(bed)
