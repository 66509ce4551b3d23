"""What a runtime has to offer, so that one deployment serves them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from autotune.deploy.host_state import HostState, ObservedHost
from autotune.deploy.plan import HostPlan
from autotune.deploy.stack import Part
from autotune.errors import AutotuneError
from autotune.services.base import Argv, ConfigFile, TrialStart
from autotune.transports.base import Transport
from autotune.transports.parallel import HostResults

T = TypeVar("T")


class Invalid(AutotuneError):
    """The software refuses the configuration; the message is its own."""


class ApplyFailed(AutotuneError):
    """A file, unit or kernel value could not be changed; the message holds the host's own words."""


@dataclass(frozen=True)
class Check:
    """How the software of a part validates its files before they replace what runs.

    ``files`` are all files of the part, by the paths its service knows; ``new`` those that change.
    """

    part: Part
    how: Argv | TrialStart
    files: Mapping[str, bytes]
    new: tuple[str, ...]


class Layout:
    """The names by which a runtime knows files and processes: here, those of installed units."""

    # Whether files of a deployment that is not chosen are taken away.
    removes_inactive = False

    def path(self, part: Part, path: str) -> str:
        """The absolute path on the host of a file of ``part``."""
        return path

    def mode(self, file: ConfigFile) -> int | None:
        """The bits a file is to have; ``None`` keeps those of the file it replaces."""
        return None

    def unit(self, part: Part) -> str | None:
        """What is started, reloaded and stopped for ``part``; ``None`` without a process."""
        return part.service.unit(part.site)


class Runtime:
    """How the services of a stack are run: ``RUNTIME`` in a file of `autotune/runtimes`.

    ``installed``: services are those installed on their hosts, which go on after a study, so that a
    deployment can be exported or kept; others are private ones of the study and end with it.
    """

    installed: ClassVar[bool]


class RuntimeHost(Protocol):
    """One host: observed, backed up, changed and asked. Each method is one exchange with it."""

    name: str

    @property
    def transport(self) -> Transport: ...

    @property
    def original(self) -> HostState:
        """The host as it was before the first change."""
        ...

    def save(self, desired: HostState, leaves: Iterable[str] = ()) -> None:
        """Back up everything that is about to change and has no backup yet.

        ``leaves`` are paths that the software itself is going to make.
        """
        ...

    def observe(self, desired: HostState) -> ObservedHost:
        """The present state of everything ``desired`` speaks of; changes nothing."""
        ...

    def observe_and_ask(
        self, desired: HostState, questions: Sequence[tuple[Part, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        """As ``observe``, with what each command printed; none may change anything."""
        ...

    def stage(self, desired: HostState, plan: HostPlan, checks: Sequence[Check] = ()) -> None:
        """Let the software validate new files where they disturb nothing. Raises Invalid."""
        ...

    def discard(self, plan: HostPlan) -> None:
        """Take staged files away."""
        ...

    def apply(self, desired: HostState, plan: HostPlan) -> None:
        """Carry out the plan. Raises ApplyFailed."""
        ...

    def complaints(self) -> list[str]:
        """The last words of units that ought to run and do not."""
        ...


class HeldHosts(Protocol):
    """All hosts of a stack, ready for changes between ``take`` and ``give_back``."""

    @property
    def installed(self) -> bool:
        """As `Runtime.installed`."""
        ...

    @property
    def layout(self) -> Layout: ...

    def __getitem__(self, name: str) -> RuntimeHost: ...

    def gather(self, names: Iterable[str], work: Callable[[RuntimeHost], T]) -> HostResults[T]:
        """``work`` on each of these hosts; its results and errors by their names."""
        ...

    def take(self) -> None:
        """Get every host ready for changes. Raises LockedError while another tuner has one."""
        ...

    def give_back(self, *, restored: bool) -> None:
        """Release the hosts: restored to how they were before, or as they are now.

        Raises AutotuneError naming the hosts that could not be restored, when all others are.
        """
        ...
