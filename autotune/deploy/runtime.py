"""What a runtime has to offer, so that one deployment serves them all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from autotune.deploy.host_state import HostPlan, HostState, ObservedHost, ServiceManager
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, Argv, ConfigFile, Settings, TrialStart
from autotune.space.facts import HostFacts
from autotune.target.messages import format_count
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.target.runtimes import DEFAULT_RUNTIME, import_runtime
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import HostResults

T = TypeVar("T")
NoteCallback = Callable[[str], None]  # hears of progress, a line at a time
# Parts with files by the paths their services know.
ValidationCases = Sequence[tuple[ServiceInstance, Mapping[str, bytes]]]


class InvalidConfiguration(AutotuneError):
    """The software refuses the configuration; the message is its own."""


class ApplyFailed(AutotuneError):
    """A file, unit or kernel value could not be changed; the message holds the host's own words."""


@dataclass(frozen=True)
class ConfigurationCheck:
    """How the software of a part validates its files before they replace what runs.

    ``files`` are all files of the part, by the paths its service knows; ``changed_files`` those that
    change.
    """

    instance: ServiceInstance
    method: Argv | TrialStart
    files: Mapping[str, bytes]
    changed_files: tuple[str, ...]


class RuntimeLayout:
    """The names by which a runtime knows files and processes: here, those of installed units."""

    # Whether files of a deployment that is not chosen are taken away.
    removes_inactive = False
    # Whether services have file systems and limits of their own, apart from their host's.
    isolated = False

    def path_for(self, instance: ServiceInstance, path: str) -> str:
        """The absolute path on the host of a file of ``instance``."""
        return path

    def mode_for(self, file: ConfigFile) -> int | None:
        """The bits a file is to have; ``None`` keeps those of the file it replaces."""
        return None

    def unit_defined_by(self, path: str) -> str | None:
        """The unit whose definition a file is part of, so that a change of the file restarts it."""
        return None

    def unit_for(self, instance: ServiceInstance) -> str | None:
        """What is started, reloaded and stopped for ``instance``; ``None`` without a process."""
        return instance.service.get_unit(instance.placement)

    def build_unit_files(
        self, active: Sequence[ServiceInstance], settings: Settings
    ) -> dict[str, tuple[str, bytes]]:
        """Files that define the units of a host: by unit, where its file is and what is in it. A
        change of one restarts its unit."""
        return {}


class RuntimeHost(Protocol):
    """One host: observed, backed up, changed and asked. Each method is one exchange with it."""

    name: str

    @property
    def transport(self) -> Transport: ...

    @property
    def original_state(self) -> HostState:
        """The host as it was before the first change."""
        ...

    def assert_locked(self) -> None:
        """Raises AutotuneError where the host was taken over, or booted, since it was taken."""
        ...

    def back_up(
        self,
        desired: HostState,
        created_files: Iterable[str] = (),
        checks: Sequence[ConfigurationCheck] = (),
    ) -> None:
        """Back up everything that is about to change and has no backup yet.

        ``created_files`` are paths that the software itself is going to make; ``checks`` are how it
        validates what is backed up.
        """
        ...

    def observe(self, desired: HostState) -> ObservedHost:
        """The present state of everything ``desired`` speaks of; changes nothing."""
        ...

    def observe_and_query(
        self, desired: HostState, queries: Sequence[tuple[ServiceInstance, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        """As ``observe``, with what each command printed; none may change anything."""
        ...

    def stage(
        self, desired: HostState, plan: HostPlan, checks: Sequence[ConfigurationCheck] = ()
    ) -> None:
        """Let the software validate new files where they disturb nothing. Raises Invalid."""
        ...

    def discard_staged(self, plan: HostPlan) -> None:
        """Take staged files away."""
        ...

    def select_restorable(
        self, original: HostState, observed: ObservedHost
    ) -> tuple[HostState, list[str]]:
        """``original_state`` without the files that their software refuses by now, and what it says
        against them; all other files are staged."""
        ...

    def apply(self, desired: HostState, plan: HostPlan) -> Mapping[str, float]:
        """Apply the plan and return the boot time of each restarted unit in seconds.

        Raises ApplyFailed.
        """
        ...

    def persist_state(self, desired: HostState) -> None:
        """What is deployed outlives a reboot: kernel values are in a file of autotune's own, units
        that were started or stopped are enabled or disabled. Raises ApplyFailed."""
        ...

    def find_failures(self) -> list[str]:
        """The last words of units that ought to run and do not."""
        ...


class LockedHosts(Protocol):
    """All hosts of a stack, ready for changes between ``lock`` and ``unlock``."""

    def __getitem__(self, name: str) -> RuntimeHost: ...

    def run_on_hosts(
        self, names: Iterable[str], work: Callable[[RuntimeHost], T]
    ) -> HostResults[T]:
        """``work`` on each of these hosts; its results and errors by their names."""
        ...

    def lock(self) -> None:
        """Get every host ready for changes. Raises LockedError while another tuner has one."""
        ...

    def unlock(self, *, restored: bool) -> None:
        """Release the hosts: restored to how they were before, or as they are now.

        Raises AutotuneError naming the hosts that could not be restored, when all others are.
        """
        ...


def describe_draining(host: str, name: str, processes: int, peers: Sequence[str] = ()) -> str:
    """The note on old workers that serve connections from before a reload."""
    clients = f" ({', '.join(peers)})" if peers else ""
    return (
        f"{host}: {format_count(processes, 'old worker')} of {name} still finish connections from before "
        f"the reload{clients}; new connections get the new configuration"
    )


class ProgramUser(Protocol):
    """A service or a load generator."""

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def packages(self) -> tuple[str, ...]: ...

    @property
    def package_source(self) -> str: ...


class Runtime(ABC):
    """How the services of a stack are run: ``RUNTIME`` in a file of `autotune/runtimes`.

    ``installed``: services are installed on their hosts and go on after a study, so that a deployment
    can be exported or kept; otherwise they are private to the study and end with it.
    ``service_manager``: what starts and stops services on hosts that are locked and restored.
    """

    installed: ClassVar[bool]
    layout: ClassVar[RuntimeLayout]
    service_manager: ClassVar[ServiceManager | None] = None

    def read_isolated_files(
        self, transport: Transport, instances: Sequence[ServiceInstance]
    ) -> dict[str, bytes]:
        """The own files of services that are isolated, by the paths that the runtime gives them."""
        return {}

    @abstractmethod
    def create_transports(self, file: TargetFile) -> dict[str, Transport]:
        """The transport of each host of a target; none is connected before its first use."""

    @abstractmethod
    def read_facts(
        self, target: Target, transports: Mapping[str, Transport]
    ) -> dict[str, HostFacts]:
        """What each host has, within what the target grants of it."""

    @abstractmethod
    def find_programs(
        self,
        needed: Mapping[str, Sequence[ProgramUser]],
        transports: Mapping[str, Transport],
    ) -> dict[str, dict[str, str]]:
        """Host → name of a program → its path there.

        Raises AutotuneError with every missing one and the command that brings it.
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
        """The stack of a target; what is private to the study lies below ``directory``."""

    @abstractmethod
    def find_validation_errors(
        self, transport: Transport, cases: ValidationCases
    ) -> list[str | None]:
        """What the software on a host says against files; ``None`` where it accepts them."""

    @abstractmethod
    def describe_hosts(self, stack: Stack, transports: Mapping[str, Transport]) -> Iterable[str]:
        """What else `check` finds out about the hosts, a line each."""

    @abstractmethod
    def make_run_directory(self, study: Path) -> str:
        """Where the stack of a study lives; made anew."""

    @abstractmethod
    def create_hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: NoteCallback
    ) -> LockedHosts:
        """The hosts of a stack for the study in a directory; none is changed yet."""

    def build_archive_command(self, target: Target, tier: str, paths: Sequence[str]) -> Argv:
        """Words for the service manager of a host that print each of these paths as a tier's service
        sees it, as a tar archive in one line of base64. For a layout that is ``isolated``."""
        raise NotImplementedError


def installed_layout() -> RuntimeLayout:
    """The default runtime's layout, for hosts whose services nobody starts, such as a model's."""
    layout: RuntimeLayout = import_runtime(DEFAULT_RUNTIME).RUNTIME.layout
    return layout
