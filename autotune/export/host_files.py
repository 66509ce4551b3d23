"""The files, units and kernel values that a trial changes on each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from autotune.deploy.deploy_result import HostRecord, OriginalHost
from autotune.errors import AutotuneError
from autotune.export.derived_hosts import DerivedHosts, derive_hosts
from autotune.export.export_error import APPLY_HINT, ExportError
from autotune.export.host_records import read_record
from autotune.export.host_setup import HostSetup
from autotune.export.masked_lines import find_placeholders, split_hunk
from autotune.export.record_checks import ORDINARY_TEXT_PATTERN
from autotune.export.unit_commands import can_run_commands
from autotune.masking import has_placeholder
from autotune.report.conclusion import find_conclusion
from autotune.report.diff import read_rendered_files
from autotune.report.studies import Study
from autotune.study.study_state import Trial
from autotune.target import runtimes
from autotune.unified_diff import Hunk, split_lines

ABSENT_DIGEST = "absent"  # stands for the digest of a missing file
SAFETY_NOTICE = (
    "The script changes files in directories of other accounts in the same way as `autotune apply`. "
    "The host then needs Perl or Python 3. If a file cannot be changed safely, the script changes "
    "nothing and shows why."
)
MODEL_NOTICE = (
    "This is the result of a model. No host was measured, and the gain on real hosts is unknown."
)


@dataclass(frozen=True)
class HostFile:
    """One file on one host. The command ``check`` validates the file.

    ``units`` maps each unit that reads the file to its action after a change: ``reload`` or
    ``restart``. ``original`` is the SHA-256 of the replaced file, ``absent`` for a missing file, or
    ``None`` if nothing was recorded. ``edits`` change the host's own file; in this case, ``deployed``
    is the digest of the edited file, and ``content`` contains placeholders.
    """

    host: str
    tier: str
    path: str
    content: bytes
    mode: int
    check: tuple[str, ...] | None
    units: Mapping[str, str]
    original: str | None = None
    edits: tuple[Hunk, ...] | None = None
    deployed: str = ""

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the new file on the host."""
        return self.deployed if self.edits is not None else sha256(self.content).hexdigest()

    @property
    def steps(self) -> tuple[Hunk, ...]:
        """Return the edits, split so that each line with masked values is a separate edit."""
        return tuple(step for hunk in self.edits or () for step in split_hunk(hunk))

    @property
    def has_masked_edits(self) -> bool:
        """True if changed lines contain masked values."""
        return any(find_placeholders("".join(hunk.added)) for hunk in self.edits or ())

    @property
    def sets_unit(self) -> bool:
        """True if a service manager reads the file. In such a file, a line may continue the
        previous line.
        """
        return can_run_commands(self.path)


@dataclass(frozen=True)
class ExportedHosts:
    """The exported files, and for each host its units (true if running) and kernel values.

    ``before`` contains the hosts' units and kernel values before the study.
    """

    files: tuple[HostFile, ...]
    units: Mapping[str, Mapping[str, bool]]
    sysctls: Mapping[str, Mapping[str, str]]
    before: Mapping[str, OriginalHost] = field(default_factory=dict)

    def list_files(self, host: str) -> tuple[HostFile, ...]:
        return tuple(file for file in self.files if file.host == host)

    def needs_start(self, host: str, unit: str) -> bool:
        """True if a unit is not recorded as running."""
        return self.before[host].units.get(unit) is not True if host in self.before else True

    def needs_reload_only(self, host: str, unit: str) -> bool:
        """True if a unit needs only a reload, provided that the host is in its state before the
        study.
        """
        files = self.list_files(host)
        needed_actions = {file.units[unit] for file in files if unit in file.units}
        has_originals = all(file.original for file in files) and not self.sysctls[host]
        return has_originals and needed_actions == {"reload"} and not self.needs_start(host, unit)


def list_changed_hosts(
    study: Study, trial: Trial, *, include_unchanged: bool = False
) -> ExportedHosts:
    """Return the changes that a trial makes to the hosts' state before the study.

    With ``include_unchanged``, returns the trial's whole deployment.

    Raises AutotuneError if the trial ran private processes, or if a host is not in the target.
    """
    _check_runtimes(study)
    records = _read_records(study, trial)
    # A host's name becomes part of a path and of a script that root runs. Only names in the target are
    # accepted.
    if unknown_hosts := sorted(records.keys() - study.target.hosts.keys()):
        raise ExportError(
            study, f"the study deployed to {unknown_hosts[0]!r}, which is not in its target"
        )
    baseline_and_files = read_baseline(study)
    derived_hosts = derive_hosts(
        study, trial, read_rendered_files(study.directory, trial), records, baseline_and_files
    )
    setups_by_host = derived_hosts.setups
    for host_setup in setups_by_host.values():
        _check_names(study, [*host_setup.units, *host_setup.sysctls, *host_setup.sysctls.values()])
    original_files = _collect_originals(study, records, baseline_and_files)
    for original_host in original_files.values():
        _check_names(study, original_host.sysctls.values())
    files = tuple(
        _build_host_file(content_key, derived_hosts, records, original_files)
        for content_key in derived_hosts.contents
    )
    hosts = ExportedHosts(
        files,
        {host: host_setup.units for host, host_setup in setups_by_host.items()},
        {host: host_setup.sysctls for host, host_setup in setups_by_host.items()},
        original_files,
    )
    chosen_hosts = hosts if include_unchanged else _select_changed_hosts(hosts, setups_by_host)
    for file in chosen_hosts.files:
        _check_masked_words(study, file)
    return chosen_hosts


def read_baseline(study: Study) -> tuple[Trial, dict[str, bytes]] | None:
    """Return the baseline's trial and files; ``None`` if the baseline was never deployed, for example
    because its software refuses the configuration.
    """
    baseline = find_conclusion(study.state).baseline
    if baseline is None or (baseline.trial.failure is not None and not baseline.trial.files):
        return None
    return baseline.trial, read_rendered_files(study.directory, baseline.trial)


def _check_runtimes(study: Study) -> None:
    """Raise AutotuneError if other tools cannot configure the services of the study."""
    tiers = study.target.tiers.values()
    if not all(tier.installed for tier in tiers):
        runtime_names = runtimes.format_runtime_names(installed=True)
        raise AutotuneError(
            f"study {study.name!r} ran private processes: there are no hosts to configure",
            hint=f"use --format files, yaml or json, or a target with {runtime_names}",
        )
    if any(tier.isolated for tier in tiers):
        raise AutotuneError(
            f"study {study.name!r} ran services that do not use the file system of their host",
            hint=APPLY_HINT,
        )


def _build_host_file(
    content_key: tuple[str, str, str],
    derived_hosts: DerivedHosts,
    records: Mapping[str, HostRecord],
    original_hosts: Mapping[str, OriginalHost],
) -> HostFile:
    tier, host, path = content_key
    file, digests = derived_hosts.setups[host].files[path], original_hosts[host].files
    original_digest = (digests[path] or ABSENT_DIGEST) if path in digests else None
    edits = derived_hosts.edits.get((host, path))
    return HostFile(
        tier=tier,
        host=host,
        path=path,
        content=derived_hosts.contents[content_key],
        mode=file.mode,
        check=file.check_command,
        units=file.units,
        original=original_digest,
        edits=edits,
        deployed=records[host].files[path].sha256 if edits is not None else "",
    )


def _check_masked_words(study: Study, file: HostFile) -> None:
    """Raise AutotuneError if the host cannot fill in masked values, or if edits do not match the
    file's content.
    """
    if file.edits is None:
        if has_placeholder(file.content):
            raise AutotuneError(
                f"{file.path} on {file.host} contains masked values", hint=APPLY_HINT
            )
        return
    content_lines, line_shift = split_lines(file.content), 0
    for hunk in file.edits:
        first_line = hunk.start_line - 1 + line_shift
        if tuple(content_lines[first_line : first_line + len(hunk.added)]) != hunk.added:
            raise ExportError(
                study, f"the recorded edits of {file.path} do not match the recorded file"
            )
        line_shift += len(hunk.added) - len(hunk.removed)
        try:
            split_hunk(hunk)
        except ValueError as error:
            raise ExportError(
                study, f"line {hunk.start_line} of {file.path} on {file.host} {error}", APPLY_HINT
            ) from error


def _read_records(study: Study, trial: Trial) -> dict[str, HostRecord]:
    """Return the hosts' records from a trial's newest deployment. Raises AutotuneError."""
    trial_numbers = (trial.number, trial.source_trial)
    deploy_records = [
        r for r in study.records if r["event"] == "deployed" and r["trial"] in trial_numbers
    ]
    hosts = deploy_records[-1].get("hosts") if deploy_records else None
    if not isinstance(hosts, Mapping) or not hosts:
        raise ExportError(study, f"the study does not record the hosts of trial {trial.number}")
    return {host: read_record(study, host, record) for host, record in hosts.items()}


def group_by_host(files: Mapping[str, bytes]) -> dict[tuple[str, str, str], bytes]:
    """Return files, keyed by ``tier.host.service/path``, as contents by tier, host and path."""
    files_by_place = {}
    for file_key, content in files.items():
        instance_name, _, path = file_key.partition("/")
        tier, host, _ = instance_name.split(".", 2)
        files_by_place[tier, host, f"/{path}"] = content
    return files_by_place


def _collect_originals(
    study: Study,
    records: Mapping[str, HostRecord],
    baseline: tuple[Trial, Mapping[str, bytes]] | None,
) -> dict[str, OriginalHost]:
    """Return the hosts' original state before the study, from backups or, for a simulated stack,
    from the baseline.
    """
    baseline_records = _read_records(study, baseline[0]) if baseline else {}
    digests_by_host: dict[str, dict[str, str | None]] = {host: {} for host in records}
    for (_, host, path), content in (group_by_host(baseline[1]) if baseline else {}).items():
        if not has_placeholder(content):
            digests_by_host.setdefault(host, {})[path] = sha256(content).hexdigest()
    originals = {}
    for host, record in records.items():
        original_host, baseline_record = record.original, baseline_records.get(host, HostRecord())
        originals[host] = OriginalHost(
            {**digests_by_host[host], **original_host.files},
            {**baseline_record.units, **original_host.units},
            {**baseline_record.sysctls, **original_host.sysctls},
            original_host.settings,
        )
    return originals


def _select_changed_hosts(hosts: ExportedHosts, setups: Mapping[str, HostSetup]) -> ExportedHosts:
    """Return the files and kernel values that differ from the hosts' original state, and the units
    that use them.
    """
    files = tuple(file for file in hosts.files if file.digest != file.original)
    sysctls = {
        host: {
            kernel_setting: value
            for kernel_setting, value in kernel_values.items()
            if value != hosts.before[host].sysctls.get(kernel_setting)
        }
        for host, kernel_values in hosts.sysctls.items()
    }
    units = {}
    for host, unit_states in hosts.units.items():
        units_before, restarts = hosts.before[host].units, setups[host].restarts
        affected_units = {unit for file in files if file.host == host for unit in file.units}
        for kernel_setting in sysctls[host]:
            affected_units |= set(restarts[kernel_setting])
        units[host] = {
            unit: runs
            for unit, runs in unit_states.items()
            if (unit in affected_units and runs) or units_before.get(unit, False) is not runs
        }
    changed_hosts = {file.host for file in files} | {h for h in units if units[h] or sysctls[h]}
    return ExportedHosts(
        files,
        {host: units[host] for host in units if host in changed_hosts},
        {host: sysctls[host] for host in sysctls if host in changed_hosts},
        hosts.before,
    )


def _check_names(study: Study, exported_names: Iterable[str]) -> None:
    """Raise ExportError for names or values that are unsafe as words in commands that root runs."""
    if unsafe_names := [
        name for name in exported_names if not ORDINARY_TEXT_PATTERN.fullmatch(name)
    ]:
        raise ExportError(study, f"{unsafe_names[0]!r} is neither a unit nor a kernel value")
