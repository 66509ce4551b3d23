"""The interface of runtimes and their hosts. Deployments use every runtime through this interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from autotune.deploy.host_state import HostPlan, HostState, ObservedHost, ServiceManager
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.errors import AutotuneError
from autotune.services.base import (
    AdoptedConfig,
    Argv,
    ConfigFile,
    Service,
    Settings,
    TrialStart,
    Value,
)
from autotune.space.facts import HostFacts
from autotune.target.messages import format_count
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import HostResults

T = TypeVar("T")
NoteCallback = Callable[[str], None]  # receives progress lines
# Each case is an instance with the contents of its files, keyed by the paths that the service uses.
ValidationCases = Sequence[tuple[ServiceInstance, Mapping[str, bytes]]]


class InvalidConfiguration(AutotuneError):
    """The software refuses the configuration. The error contains the software's message."""


class ApplyFailed(AutotuneError):
    """A unit or kernel value could not be changed, so the configuration may be at fault. The message
    contains the output from the host.
    """


@dataclass(frozen=True)
class ConfigurationCheck:
    """Validation of an instance's new files with its software, before the files are deployed.

    ``files`` and ``changed_files`` use the service's own paths.
    """

    instance: ServiceInstance
    method: Argv | TrialStart
    files: Mapping[str, bytes]
    changed_files: tuple[str, ...]


class RuntimeLayout:
    """Names of files and processes in a runtime. The defaults apply to installed units."""

    # true if files of services that are not part of the deployed configuration are removed
    removes_inactive = False
    # true if services have their own file systems and limits, as in containers
    isolated = False

    def path_for(self, instance: ServiceInstance, path: str) -> str:
        """Return the absolute path of one of the instance's files on the host."""
        return path

    def mode_for(self, file: ConfigFile) -> int | None:
        """Return the permissions (mode bits) of a file, or ``None`` to keep the current mode."""
        return None

    def unit_defined_by(self, path: str) -> str | None:
        """Return the unit whose definition contains a file. A change to the file restarts the unit."""
        return None

    def can_reload(self, service: Service) -> bool:
        """True if the service can reread its files without a restart."""
        return service.reload_signal is not None

    def unit_for(self, instance: ServiceInstance) -> str | None:
        """Return the unit that runs ``instance``, or ``None`` if the instance has no process."""
        return instance.service.get_unit(instance.placement)

    def build_unit_files(
        self, active: Sequence[ServiceInstance], settings: Settings
    ) -> dict[str, tuple[str, bytes]]:
        """Return the path and content of the file that defines each unit of a host.

        A change to the file restarts the unit.
        """
        return {}


class RuntimeHost(Protocol):
    """One host that is observed, backed up and changed. Most methods make one round trip to the
    host.
    """

    name: str

    @property
    def transport(self) -> Transport: ...

    @property
    def original_state(self) -> HostState:
        """Return the state of the host before the first change."""
        ...

    def assert_locked(self) -> None:
        """Raise AutotuneError if another tuner has locked the host, or if the host was rebooted
        after this tuner locked it.
        """
        ...

    def back_up(
        self,
        desired: HostState,
        created_files: Iterable[str] = (),
        checks: Sequence[ConfigurationCheck] = (),
    ) -> None:
        """Back up the files, units and kernel values in ``desired`` that have no backup yet.

        ``created_files`` are paths that the software itself creates. ``checks`` validate the original
        files.
        """
        ...

    def observe(self, desired: HostState) -> ObservedHost:
        """Return the current state of all files, units and kernel values in ``desired``."""
        ...

    def observe_and_query(
        self, desired: HostState, queries: Sequence[tuple[ServiceInstance, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        """Return the result of ``observe``, and the output of each command. The commands must not
        change anything.
        """
        ...

    def stage(
        self, desired: HostState, plan: HostPlan, checks: Sequence[ConfigurationCheck] = ()
    ) -> None:
        """Write new files to paths at which they have no effect, and validate the new files with the
        software.

        Raises InvalidConfiguration.
        """
        ...

    def discard_staged(self, plan: HostPlan) -> None:
        """Remove the files that were staged for ``plan``."""
        ...

    def select_restorable(
        self, original: HostState, observed: ObservedHost
    ) -> tuple[HostState, list[str]]:
        """Return ``original`` without the files that the software now refuses, and the software's
        messages.

        All other files are staged.
        """
        ...

    def apply(self, desired: HostState, plan: HostPlan) -> Mapping[str, float]:
        """Apply the plan and return the boot time of each restarted unit in seconds.

        Raises ApplyFailed with the output of the unit or kernel value that could not be changed, and
        AutotuneError if a file could not be written.
        """
        ...

    def persist_state(self, desired: HostState) -> None:
        """Make the deployment survive a reboot. Raises the errors of ``apply``.

        Kernel values are written to a separate file. Units that autotune started are enabled, and units
        that autotune stopped are disabled.
        """
        ...

    def find_failures(self) -> list[str]:
        """Return the last log messages of units that should be running but have stopped."""
        ...


class LockedHosts(Protocol):
    """All hosts of a stack, which may be changed between ``lock`` and ``unlock``."""

    def __getitem__(self, name: str) -> RuntimeHost: ...

    def run_on_hosts(
        self, host_names: Iterable[str], work: Callable[[RuntimeHost], T]
    ) -> HostResults[T]:
        """Call ``work`` for each host in ``host_names``, and return results and errors by host."""
        ...

    def lock(self) -> None:
        """Prepare every host for changes. Raises LockedError if another tuner holds the lock on a
        host.
        """
        ...

    def unlock(self, *, restored: bool) -> None:
        """Release the hosts. If ``restored`` is true, restore their original state first.

        Raises AutotuneError with the hosts that could not be restored, after restoring all other
        hosts.
        """
        ...


def describe_draining(
    host: str, unit_name: str, process_count: int, client_addresses: Sequence[str] = ()
) -> str:
    """Return the message about old workers that still serve connections made before a reload."""
    clients_text = f" ({', '.join(client_addresses)})" if client_addresses else ""
    return (
        f"{host}: earlier connections are still served by {format_count(process_count, 'old worker')} "
        f"of {unit_name}{clients_text}. New connections use the new configuration"
    )


class ProgramUser(Protocol):
    """A service or a load generator, with the programs that it needs."""

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def packages(self) -> tuple[str, ...]: ...

    @property
    def package_source(self) -> str: ...


class Runtime(ABC):
    """A runtime, which runs the services of a stack. Each file in `autotune/runtimes` defines one
    runtime as ``RUNTIME``.

    ``installed`` is true if services are installed on their hosts and keep running after a study.
    Only deployments of installed services can be exported or kept. ``service_manager`` starts and
    stops services on hosts that are locked and restored.
    """

    installed: ClassVar[bool]
    layout: ClassVar[RuntimeLayout]
    service_manager: ClassVar[ServiceManager | None] = None

    def read_isolated_files(
        self, transport: Transport, instances: Sequence[ServiceInstance]
    ) -> dict[str, bytes]:
        """Return the files inside containers, by the paths that the runtime uses."""
        return {}

    @abstractmethod
    def create_transports(self, file: TargetFile) -> dict[str, Transport]:
        """Return the transport of each host of a target. Transports connect at their first use."""

    @abstractmethod
    def read_facts(
        self, target: Target, transports: Mapping[str, Transport]
    ) -> dict[str, HostFacts]:
        """Return the facts of each host, such as its CPU count, within limits in the target."""

    @abstractmethod
    def find_programs(
        self,
        needed: Mapping[str, Sequence[ProgramUser]],
        transports: Mapping[str, Transport],
    ) -> dict[str, dict[str, str]]:
        """Return the path of each program, by host and program.

        Raises AutotuneError with all missing programs and the command to install them.
        """

    @abstractmethod
    def build_stack(
        self,
        file: TargetFile,
        directory: str,
        facts: Mapping[str, HostFacts],
        programs: Mapping[str, Mapping[str, str]],
        adopted_configs: Mapping[str, AdoptedConfig],
    ) -> Stack:
        """Return the stack of a target. Private files are below ``directory``."""

    @abstractmethod
    def find_validation_errors(
        self, transport: Transport, validation_cases: ValidationCases
    ) -> list[str | None]:
        """Return the software's message about the files of each case, or ``None`` for accepted files."""

    def read_file_values(
        self, transport: Transport, validation_cases: ValidationCases
    ) -> list[Mapping[str, Value]]:
        """Return the values that the software reads from the files of each case, by bare parameter
        name.

        The values of a case are empty if the runtime or the software cannot print values.
        """
        return [{} for _ in validation_cases]

    @abstractmethod
    def describe_hosts(self, stack: Stack, transports: Mapping[str, Transport]) -> Iterable[str]:
        """Return lines about the hosts for the output of `autotune check`."""

    @abstractmethod
    def make_run_directory(self, study: Path) -> str:
        """Create the directory for a study's stack, and return its path."""

    @abstractmethod
    def create_hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: NoteCallback
    ) -> LockedHosts:
        """Return the hosts of a stack for the study in the directory ``study``, without changing a
        host.
        """

    def build_archive_command(self, target: Target, tier: str, paths: Sequence[str]) -> Argv:
        """Return the command that prints an archive of ``paths``, read from the file system of the
        tier's service.

        The output is a tar archive, encoded as one line of base64. Only runtimes that isolate
        services need this command.
        """
        raise NotImplementedError
