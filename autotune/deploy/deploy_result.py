"""The interface of a fleet (all tiers of a stack), deployment results, and records of hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.deploy.desired_state import DesiredState
from autotune.deploy.host_state import HostState
from autotune.errors import AutotuneError
from autotune.masking import mask_secret_bytes, outline_unknown_syntax
from autotune.services.base import Action, Settings, Value
from autotune.unified_diff import Hunk, find_hunks


@dataclass(frozen=True)
class SettingMismatch:
    """A setting whose effective value differs from the requested value."""

    parameter: str
    requested: Value
    effective: Value

    def __str__(self) -> str:
        return f"{self.parameter}: requested {self.requested}, effective {self.effective}"


class DeployFailed(AutotuneError):
    """A configuration failed validation, did not start, or did not respond correctly.

    The last good configuration is deployed again before the error is raised.
    """


@dataclass(frozen=True)
class DeployResult:
    """Actions and effective values of a deployment.

    ``hosts`` contains a record of each host, but no records for private servers. ``prefilled`` is
    true if restarted caches were filled again.
    """

    files: Mapping[str, bytes]
    actions: Mapping[str, Action]
    effective: Mapping[str, Value] = field(default_factory=dict)
    mismatches: tuple[SettingMismatch, ...] = ()
    hosts: Mapping[str, HostRecord] = field(default_factory=dict)
    prefilled: bool = False

    @property
    def restarted_instances(self) -> frozenset[str]:
        """Return the names of restarted instances, which lost the contents of their memory."""
        return frozenset(n for n, action in self.actions.items() if action is Action.RESTART)


class Fleet(Protocol):
    """All tiers of a stack. A deployment takes effect on all tiers or on none.

    ``outlives_tuner`` is true if the services can keep running after autotune exits.
    """

    outlives_tuner: bool = False

    def deploy(self, settings: Settings) -> DeployResult:
        """Make ``settings`` take effect with the least disruptive actions. Raises DeployFailed."""
        ...

    def verify(self) -> None:
        """Check that all units have kept running since the deployment, and that its files and kernel
        values have not changed.

        Raises DeployFailed if a unit stopped or restarted. Raises AutotuneError if another process
        changed or locked a host, or if a host was rebooted.
        """
        return

    def await_service(self, *, is_answer_doubtful: bool) -> None:
        """Wait until load balancers use all servers. Called before each reading.

        If ``is_answer_doubtful``, also wait for a correct response; this is needed after errors.
        Raises ServersDown if servers are still down after the longest wait.
        """
        return

    def restore(self) -> None:
        """Restore the original state of every host."""
        ...

    def confirm_restored(self) -> None:
        """Wait until the restored stack responds, and report the result as a progress message.

        The user may interrupt the wait.
        """
        return

    def keep_deployed(self) -> None:
        """Keep the deployment when hosts are released. The method ``restore`` then does not revert
        the deployment, but the command `autotune restore` still does.
        """
        return


@dataclass(frozen=True)
class OriginalHost:
    """State of a host before the study. ``files`` maps paths to SHA-256 digests (``None`` for absent
    files), ``units`` is true for active units, and ``sysctls`` are kernel values.

    ``settings`` are the parameter values in the host's files, or ``None`` if unknown.
    """

    files: Mapping[str, str | None] = field(default_factory=dict)
    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    settings: Settings | None = None


@dataclass(frozen=True)
class DeployedFile:
    """A deployed file. ``sha256`` is the digest of the file on the host, with unmasked secrets.

    ``edits`` turn the host's own file into the deployed file. ``edits`` is ``None`` if the whole file
    is replaced, or if the edits are unknown.
    """

    sha256: str
    edits: tuple[Hunk, ...] | None = None


@dataclass(frozen=True)
class HostRecord:
    """Record of a host: units, kernel values and files in a deployment, and the host's original
    state.

    Commands and file modes are not recorded, because the services define commands and file modes.
    """

    units: Mapping[str, bool] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    original: OriginalHost = field(default_factory=OriginalHost)
    files: Mapping[str, DeployedFile] = field(default_factory=dict)


def build_host_records(
    desired: DesiredState,
    originals: Mapping[str, HostState],
    baseline: DesiredState | None = None,
) -> dict[str, HostRecord]:
    """Return the record of each host.

    ``originals`` contains the backed-up state of each host. ``baseline`` is the state of the hosts
    with the baseline settings.
    """
    records = {}
    for host, state in desired.hosts.items():
        backup = originals.get(host, HostState())
        original_host = _build_original(backup, _read_settings(desired, host, backup, baseline))
        files = _build_deployed_files(desired, host, backup)
        records[host] = HostRecord(dict(state.units), dict(state.sysctls), original_host, files)
    return records


def _read_settings(
    desired_state: DesiredState, host: str, backup: HostState, baseline: DesiredState | None
) -> Settings | None:
    """Return the settings of a host's services before the study; ``None`` if the host's files did
    not match the baseline files.
    """
    if baseline is None or any(
        path not in backup.files or backup.files[path].digest != file.digest
        for path, file in baseline.hosts[host].files.items()
    ):
        return None
    owners = tuple(f"{instance.parameter_prefix}." for instance in desired_state.instances_on(host))
    return {name: value for name, value in baseline.settings.items() if name.startswith(owners)}


def _build_deployed_files(
    desired: DesiredState, host: str, backup: HostState
) -> dict[str, DeployedFile]:
    """Return the deployed files of a host, with the edits to files that the host already had."""
    files = {
        path: DeployedFile(file.digest)
        for path, file in desired.hosts[host].files.items()
        if file.content is not None
    }
    for instance in desired.instances_on(host):
        for name, masked_content in (
            desired.rendered_files[instance.name].items() if instance.placement.adopted else ()
        ):
            path = desired.layout.path_for(instance, name)
            backed_up_file = backup.files.get(path)
            desired_file = desired.hosts[host].files[path]
            if path in files and backed_up_file and backed_up_file.content is not None:
                outliner = desired.find_outliner(host, path) or outline_unknown_syntax
                file_edits = find_hunks(
                    backed_up_file.content,
                    desired_file.content or b"",
                    mask_secret_bytes(backed_up_file.content, outliner),
                    mask_secret_bytes(masked_content),
                )
                files[path] = DeployedFile(desired_file.digest, file_edits)
    return files


def _build_original(backup: HostState, settings: Settings | None) -> OriginalHost:
    digests = {
        path: None if file.is_absent else hashlib.sha256(file.content or b"").hexdigest()
        for path, file in backup.files.items()
        if file.link_target is None
    }
    return OriginalHost(digests, dict(backup.units), dict(backup.sysctls), settings)
