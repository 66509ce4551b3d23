"""Backups of hosts, on the controller and on the host, made before the first change.

Before a deployment first changes a path, unit or kernel value, the backup records the original
state. Recorded states are never overwritten. Digests of new files are added before each change.
Each of the two copies is enough to restore a host.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune import account_key, durable_files, foreign_files
from autotune.deploy.host_state import (
    BOOT_STATES,
    FileState,
    HostState,
    ObservedFile,
    ObservedHost,
    merge_sysctl_file,
)
from autotune.deploy.unit_start import UNKNOWN_BOOT_SECONDS, UnitStart
from autotune.errors import AutotuneError
from autotune.strict_parsing import parse_file_mode, parse_json

SCHEMA_VERSION = 1
BACKUP_DIRECTORY = "originals"  # directory in a study that contains the controller's copies
SEAL_PURPOSE = "originals"  # seals for this purpose are valid only for backup copies
RESTORE_HINT = "`autotune restore TARGET` restores a host from its own copy"
_SEAL_PATTERN = re.compile(rb',\n "seal": "([0-9a-f]{64})"\n\}\Z')
# File with the kernel values of a kept deployment. The file's name sorts last, so the file overrides
# all other files at boot.
SYSCTL_FILE = "/etc/sysctl.d/zz-autotune.conf"
# used instead of a digest: autotune or the software wrote the file, so its content does not matter
ANY_DIGEST = "any"
# maximum number per path: the current file, and the file that a killed tuner was about to write
_MAX_DIGESTS = 2


@dataclass(frozen=True)
class BackupCheck:
    """Validation of ``files`` with the software of ``unit``, for a restore without a target.

    If ``socket`` is set, the software is started in ``directory`` and must accept connections on
    ``socket``.
    """

    unit: str
    argv: tuple[str, ...]
    files: tuple[str, ...]
    directory: str
    socket: str | None = None


@dataclass(frozen=True)
class HostBackup:
    """Original state of one host. ``enabled``, ``definitions`` and ``starts`` are keyed by unit.

    ``last_written`` maps paths to digests of files that autotune wrote, and names of kernel values to
    values that autotune set. If a host's current file or value is neither the original nor in
    ``last_written``, someone else changed it. ``last_written`` also contains the units that autotune
    enabled or disabled.
    """

    host: str
    study: str
    state: HostState = field(default_factory=HostState)
    enabled: Mapping[str, str] = field(default_factory=dict)
    last_written: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checks: tuple[BackupCheck, ...] = ()
    definitions: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, UnitStart] = field(default_factory=dict)

    def replaceable_digests(self, path: str) -> tuple[str, ...]:
        """Return the digests of file versions at a path that autotune may replace without a copy."""
        return (self.state.files[path].digest, *self.last_written.get(path, ()))

    @property
    def toggled_units(self) -> dict[str, bool]:
        """Return the units that autotune enabled or disabled. The values are true for units that
        originally started at boot.
        """
        original_boot_starts = {
            unit: BOOT_STATES.get(self.enabled.get(unit, "")) for unit in self.state.units
        }
        return {
            unit: starts_at_boot
            for unit, starts_at_boot in original_boot_starts.items()
            if starts_at_boot is not None and unit in self.last_written
        }

    def build_persistent_state(self, desired: HostState, sysctl_file: bytes) -> HostState:
        """Return the state that makes ``desired`` survive a reboot.

        The state contains a file with the changed kernel values. The file keeps the lines in
        ``sysctl_file``, its present content, that set other kernel values, or desired values. An export
        or another target's deployment may have written them. Units that autotune started are enabled,
        and units that autotune stopped are disabled.
        """
        sysctls = {
            name: value
            for name, value in desired.sysctls.items()
            if value != self.state.sysctls.get(name)
        }
        content = merge_sysctl_file(sysctl_file, sysctls, desired.sysctls)
        file = FileState(content, 0o644, "0:0") if content else FileState()
        enabled_by_unit = {}
        for unit, runs in desired.units.items():
            starts_at_boot = BOOT_STATES.get(self.enabled.get(unit, ""))
            if starts_at_boot is not None:
                enabled_by_unit[unit] = starts_at_boot if runs == self.state.units[unit] else runs
        return HostState({SYSCTL_FILE: file}, desired.units, enabled=enabled_by_unit)

    def is_foreign_value(self, sysctl_name: str, current_value: str | None) -> bool:
        """True if a kernel value is neither the original value nor a value that autotune set."""
        return current_value not in {
            self.state.sysctls[sysctl_name],
            *self.last_written.get(sysctl_name, ()),
        }

    def with_written_digests(
        self, digests: Mapping[str, str], replaced: Mapping[str, str] | None = None
    ) -> HostBackup:
        """Return the backup, extended by the digests of files and the kernel values that are about to
        be written. The backup must be written to disk before the change.

        ``replaced`` contains the state before the change: digests of files by path, and kernel values by
        name. If autotune wrote the current file, its digest stays recorded even after failed deployments.
        """
        written_digests = dict(self.last_written)
        for changed_name, digest in digests.items():
            replaced_digest = (replaced or {}).get(changed_name)
            earlier_digests = sorted(
                (d for d in written_digests.get(changed_name, ()) if d != digest),
                key=lambda d: d == replaced_digest,
            )
            written_digests[changed_name] = (*earlier_digests, digest)[-_MAX_DIGESTS:]
        return replace(self, last_written=written_digests)

    def merge_later(self, later: HostBackup) -> HostBackup:
        """Return this backup, extended by files, units and kernel values that only ``later`` contains.
        The merged backup describes the state before both changes. A file that only ``later`` wrote has
        its content from before that deployment.
        """
        earlier_files = {
            path: file
            for path, file in self.state.files.items()
            # autotune may have removed a file that was missing later
            if path in self.last_written or later.state.files.get(path, FileState()).is_absent
        }
        written_digests = {
            name: (*self.last_written.get(name, ()), *later.last_written.get(name, ()))
            for name in {**self.last_written, **later.last_written}
        }
        return replace(
            self,
            state=HostState(
                {**later.state.files, **earlier_files},
                {**later.state.units, **self.state.units},
                {**later.state.sysctls, **self.state.sysctls},
            ),
            enabled={**later.enabled, **self.enabled},
            definitions={**later.definitions, **self.definitions},
            starts={**later.starts, **self.starts},
            last_written=written_digests,
            checks=tuple(dict.fromkeys((*self.checks, *later.checks))),
        )

    def list_foreign_versions(self, later: HostBackup) -> dict[str, bytes]:
        """Return the files, by path, that others changed between this backup's deployment and
        ``later``. A restore of both backups would lose these changes.
        """
        return {
            path: file.content
            for path, file in later.state.files.items()
            if file.content is not None
            and path in self.state.files.keys() & self.last_written.keys()
            and not {file.digest, ANY_DIGEST} & {*self.replaceable_digests(path)}
        }

    def with_observed_state(
        self, observed: ObservedHost, contents: Mapping[str, bytes]
    ) -> HostBackup:
        """Return the backup extended by the observed state of files, units and kernel values.
        States that the backup already contains do not change.

        Raises AutotuneError for a path that is neither a file nor a link nor absent.
        """
        files = {
            path: _build_original(path, file, contents)
            for path, file in observed.files.items()
            if file.kind != "directory"
        }
        sysctls = {name: value for name, value in observed.sysctls.items() if value is not None}
        existing_units = {name: unit for name, unit in observed.units.items() if unit.exists}
        units = {name: unit.active for name, unit in existing_units.items()}
        enabled_by_unit = {name: unit.enabled for name, unit in existing_units.items()}
        definitions = {
            name: unit.definition for name, unit in existing_units.items() if unit.definition
        }
        return replace(
            self,
            state=HostState(
                {**files, **self.state.files},
                {**units, **self.state.units},
                {**sysctls, **self.state.sysctls},
            ),
            enabled={**enabled_by_unit, **self.enabled},
            definitions={**definitions, **self.definitions},
        )

    def with_starts(self, starts: Mapping[str, UnitStart]) -> HostBackup:
        """Return the backup with the start order and readiness checks of its units.

        A restore without a target needs both. It allows each unit at least the time that is usual
        while boot times are unknown.
        """
        new_starts = {
            unit: replace(start, seconds=max(start.seconds, UNKNOWN_BOOT_SECONDS))
            for unit, start in starts.items()
            if unit in self.state.units
        }
        return replace(self, starts={**new_starts, **self.starts})

    @property
    def ordered_state(self) -> HostState:
        """Return the original state with the start order of its units."""
        return replace(self.state, starts=self.starts)

    def is_confirmed_by(self, record: HostBackup | None, kept: HostBackup | None) -> bool:
        """True if the host's own record confirms that the host has not been restored since this
        backup.

        If ``record`` is ``None``, the record of a kept deployment (``kept``) is used. It must contain a
        change of this backup. The host's record may lack the last change.
        """
        if record is not None:
            recorded_values = {**record.state.files, **record.state.sysctls}
            backed_up_values = {**self.state.files, **self.state.sysctls}
            has_same_values = all(
                backed_up_values[name] == recorded_values[name]
                for name in backed_up_values.keys() & recorded_values.keys()
            )
            return record.study == self.study and has_same_values
        if kept is None:
            return False
        if not self.recorded_changes:  # this backup's study may have kept a host without changes
            return not kept.recorded_changes and self.is_confirmed_by(kept, None)
        return self.recorded_changes <= kept.recorded_changes

    def reverts(self, other: HostBackup) -> bool:
        """True if a restore of this backup also reverts the deployment that ``other`` recorded.

        If only one of the two backups wrote a file, others may have changed the file between them.
        """
        original_values, other_values = (
            {**{path: file.digest for path, file in state.files.items()}, **state.sysctls}
            for state in (self.state, other.state)
        )
        return self.study == other.study and not any(
            original_values[name] != other_values[name]
            and (name in self.last_written or original_values[name] in digests)
            for name, digests in other.last_written.items()
            if name in original_values and name in other_values
        )

    @property
    def recorded_changes(self) -> frozenset[tuple[str, str]]:
        """Return the names and digests in ``last_written``. Files that the software creates are
        excluded, because they are recorded before the first change.
        """
        return frozenset(
            (name, digest)
            for name, digests in self.last_written.items()
            for digest in digests
            if digest != ANY_DIGEST or name not in self.state.files
        )

    def without_foreign_changes(self, observed: ObservedHost) -> HostBackup:
        """Return the part of the backup for files and kernel values that autotune set and no one
        else has changed since.

        If all files and kernel values were changed by others, the result has an empty state.
        Otherwise, the result also contains all units and the files that the software created, because
        autotune cannot determine who changed them.
        """
        written_digests = self.last_written
        files = {
            path: file
            for path, file in self.state.files.items()
            if observed.files[path].detail in written_digests.get(path, ())
            and not observed.files[path].matches(file)
        }
        sysctls = {
            name: value
            for name, value in self.state.sysctls.items()
            if observed.sysctls[name] in written_digests.get(name, ())
            and observed.sysctls[name] != value
        }
        if not files and not sysctls:
            return replace(self, state=HostState())
        kept_paths = {
            path
            for path in self.state.files
            if ANY_DIGEST in written_digests.get(path, ())
            or observed.files[path].kind == "directory"
        }
        files |= {
            path: self.state.files[path] for path in kept_paths if self.state.files[path].is_absent
        }
        return replace(self, state=HostState(files, self.state.units, sysctls))

    def find_missing(self, desired: HostState) -> HostState:
        """Return the part of ``desired`` that has no backup yet."""
        backed_up = self.state
        return HostState(
            {path: file for path, file in desired.files.items() if path not in backed_up.files},
            {unit: runs for unit, runs in desired.units.items() if unit not in backed_up.units},
            {name: v for name, v in desired.sysctls.items() if name not in backed_up.sysctls},
        )


def encode_backup(backup: HostBackup) -> bytes:
    """Return the backup as JSON text, with which a person can restore the host by hand."""
    original_state = backup.state
    record = {
        "schema": SCHEMA_VERSION,
        "host": backup.host,
        "study": backup.study,
        "files": {path: _encode_file(file) for path, file in sorted(original_state.files.items())},
        "units": {
            unit: {
                "active": is_running,
                "enabled": backup.enabled.get(unit, ""),
                **(
                    {"definition": definition}
                    if (definition := backup.definitions.get(unit))
                    else {}
                ),
                **({"start": backup.starts[unit].to_record()} if unit in backup.starts else {}),
            }
            for unit, is_running in original_state.units.items()
        },
        "sysctls": dict(sorted(original_state.sysctls.items())),
        "checks": [asdict(check) for check in backup.checks],
        "written": {name: list(digests) for name, digests in sorted(backup.last_written.items())},
    }
    return json.dumps(record, indent=1, ensure_ascii=False).encode()


def decode_backup(content: bytes, record_name: str) -> HostBackup:
    """Return the backup in a JSON record. ``record_name`` names the record in messages.

    Raises AutotuneError if the content is not a valid backup.
    """
    try:
        record = parse_json(content)
        if record["schema"] != SCHEMA_VERSION:
            raise AutotuneError(
                f"{record_name} was written by another version of autotune", hint=RESTORE_HINT
            )
        return HostBackup(
            str(record["host"]),
            str(record["study"]),
            HostState(
                {
                    _validate_path(path): _decode_file(file)
                    for path, file in record["files"].items()
                },
                {
                    unit: bool(unit_record["active"])
                    for unit, unit_record in record["units"].items()
                },
                {name: str(value) for name, value in record["sysctls"].items()},
            ),
            {unit: str(unit_record["enabled"]) for unit, unit_record in record["units"].items()},
            {name: _parse_strings(digests) for name, digests in record["written"].items()},
            tuple(_parse_check(check) for check in record["checks"]),
            {
                unit: str(unit_record["definition"])
                for unit, unit_record in record["units"].items()
                if "definition" in unit_record
            },
            {
                unit: UnitStart.from_record(unit_record["start"])
                for unit, unit_record in record["units"].items()
                if "start" in unit_record
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutotuneError(
            f"{record_name} is not a valid backup: {error}", hint=RESTORE_HINT
        ) from error


class BackupStore:
    """Backup copies on the controller, ``<study>/originals/<host>.json``, which only their owner can
    read.

    Each copy is sealed with this account's key. Copies without a valid seal are never restored.
    """

    def __init__(self, study: Path) -> None:
        self.study, self.directory = study, study / BACKUP_DIRECTORY

    def path_for(self, host: str) -> Path:
        return self.directory / f"{host}.json"

    def list_hosts(self) -> tuple[str, ...]:
        """Return the hosts that have not been restored yet."""
        copy_names = foreign_files.list_names(self.study, BACKUP_DIRECTORY)
        return tuple(name.removesuffix(".json") for name in copy_names if name.endswith(".json"))

    def read(self, host: str) -> HostBackup | None:
        """Return the backup copy for a host, or ``None`` if no copy exists.

        Raises AutotuneError if the copy is damaged or cannot be read, or if this account did not write
        it.
        """
        path, name = self.path_for(host), f"{BACKUP_DIRECTORY}/{host}.json"
        try:
            content = foreign_files.read_bytes(self.study, name, foreign_files.MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AutotuneError(
                f"{path} cannot be read: {error.strerror}", hint=RESTORE_HINT
            ) from error
        _check_seal(content, host, path)
        backup = decode_backup(content, str(path))
        if backup.host != host:
            raise AutotuneError(
                f"{path} contains the backup of another host, {backup.host}", hint=RESTORE_HINT
            )
        return backup

    def write(self, backup: HostBackup) -> None:
        """Write a backup copy to disk atomically."""
        durable_files.make_directory(self.study, 0o700)
        foreign_files.make_directories(self.study, BACKUP_DIRECTORY)
        durable_files.sync_directory(self.study)
        path = foreign_files.check_writable_path(
            self.study, f"{BACKUP_DIRECTORY}/{backup.host}.json"
        )
        durable_files.write_file(path, add_seal(encode_backup(backup), backup.host), 0o600)

    def archive(self, host: str) -> Path:
        """Rename a backup copy that is no longer needed for a restore, and return the copy's new path."""
        path = self.path_for(host)
        return path.rename(
            path.with_name(f"{host}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        )

    def remove(self, host: str) -> None:
        """Remove the backup copy of a host that has been restored."""
        path = self.path_for(host)
        for stale_path in (path, *durable_files.find_orphaned_files(path)):
            stale_path.unlink(missing_ok=True)
        # Hosts are restored concurrently, and the last restore removes the directory.
        with contextlib.suppress(OSError):
            self.directory.rmdir()


def add_seal(content: bytes, host: str) -> bytes:
    """Return the encoded backup with this account's seal as its last key. Raises AutotuneError."""
    seal = account_key.create_seal(SEAL_PURPOSE, host.encode(), content)
    return content.removesuffix(b"\n}") + f',\n "seal": "{seal}"\n}}'.encode()


def _check_seal(content: bytes, host: str, path: Path) -> None:
    """Raise AutotuneError if the seal of this account is missing or invalid. The seal is the last key
    of an encoded backup, and covers all other keys.
    """
    seal_match = _SEAL_PATTERN.search(content)
    if seal_match and account_key.is_valid_seal(
        seal_match[1].decode(), SEAL_PURPOSE, host.encode(), content[: seal_match.start()] + b"\n}"
    ):
        return
    raise AutotuneError(
        f"{path} is damaged, or was not written by this account on this machine: nothing is restored "
        "from it",
        hint=RESTORE_HINT,
    )


def _validate_path(path: str) -> str:
    """Return ``path`` unchanged if it is a valid absolute file path, or raise ValueError."""
    path_components = path.split("/")
    if (
        len(path_components) < 2
        or path_components[0]
        or any(path_component in ("", ".", "..") for path_component in path_components[1:])
        or not path.isprintable()
    ):
        raise ValueError(f"{path[:200]!r} is not a valid file path")
    return path


def _parse_strings(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("expected a list of text")
    return tuple(values)


def _parse_check(record: Mapping[str, Any]) -> BackupCheck:
    unit, directory, *socket = _parse_strings(
        [record["unit"], record["directory"], *filter(None, [record["socket"]])]
    )
    argv, files = _parse_strings(record["argv"]), _parse_strings(record["files"])
    return BackupCheck(unit, argv, files, directory, *socket)


def _build_original(path: str, observed: ObservedFile, contents: Mapping[str, bytes]) -> FileState:
    if observed.kind == "absent":
        return FileState()
    if observed.kind == "link" and (observed.staging_directory or "\ufffd" in observed.detail):
        reason = (
            "in a directory to which other accounts can write"
            if observed.staging_directory
            else "to a path that is not UTF-8"
        )
        raise AutotuneError(
            f"{path} is a link {reason}", hint="use the path of the file that it points to"
        )
    if observed.kind == "link":
        return FileState(
            owner=observed.owner, link_target=observed.detail, modified=observed.modified
        )
    if observed.kind == "file":
        content, access_list = contents.get(path, b""), observed.acl
        return FileState(
            content, observed.mode, observed.owner, modified=observed.modified, acl=access_list
        )
    if observed.kind == "hard-linked":
        raise AutotuneError(
            f"{path} is one of several hard links to a file, so autotune does not replace it",
            hint=f"list its names with `find / -xdev -samefile {path}`, and replace the link with a copy",
        )
    if observed.kind == "refused":
        raise AutotuneError(
            f"{path} cannot be changed safely: {observed.detail}",
            hint="let root own the directories on its path, or remove its tier from the target",
        )
    raise AutotuneError(f"{path} is neither a file nor a link, so autotune does not replace it")


def _encode_file(file: FileState) -> dict[str, Any]:
    if file.is_absent:
        return {"kind": "absent"}
    common_fields = {"owner": file.owner, "time": file.modified}
    if file.link_target is not None:
        return {"kind": "link", "to": file.link_target, **common_fields}
    content = file.content or b""
    try:
        content_field = {"text": content.decode()}
    except UnicodeDecodeError:
        content_field = {"base64": base64.b64encode(content).decode()}
    access_field = {} if file.acl is None else {"access": file.acl}
    return {
        "kind": "file",
        "mode": f"{file.mode or 0:04o}",
        **common_fields,
        **access_field,
        **content_field,
    }


def _decode_file(record: Mapping[str, str]) -> FileState:
    if record["kind"] == "absent":
        return FileState()
    if any(not isinstance(value, str) for value in record.values()):
        raise TypeError("invalid file properties: expected text")
    if record["kind"] == "link":
        return FileState(owner=record["owner"], link_target=record["to"], modified=record["time"])
    content_text = record.get("text")
    content = base64.b64decode(record["base64"]) if content_text is None else content_text.encode()
    return FileState(
        content,
        parse_file_mode(record["mode"]),
        record["owner"],
        modified=record["time"],
        acl=record.get("access"),
    )
