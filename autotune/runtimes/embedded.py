"""Runtime `embedded`: the whole stack as private processes below the study's run directory."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from autotune import durable
from autotune.deploy import private_servers, run_directories
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedFile,
    ObservedHost,
    ObservedUnit,
)
from autotune.deploy.private_servers import ProcessFailed, Running
from autotune.deploy.programs import local_programs
from autotune.deploy.runtime import (
    Cases,
    Check,
    Invalid,
    Layout,
    NeedsPrograms,
    Note,
    Runtime,
    RuntimeHost,
    describe_finishing,
)
from autotune.deploy.stack import Part, Stack, StackContext, build
from autotune.errors import AutotuneError
from autotune.services.base import Action, Argv, ConfigFile, Own, TrialStart, config_files
from autotune.space.facts import HostFacts
from autotune.target.model import Target
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import host_facts
from autotune.transports.local import LocalTransport
from autotune.transports.parallel import HostResults

UP_SECONDS = 15.0
T = TypeVar("T")
Files = Mapping[str, bytes]


class PrivateLayout(Layout):
    """Layout with files below each part's directory. A process is identified by its part's name."""

    removes_inactive = True

    def path(self, part: Part, path: str) -> str:
        return f"{part.site.directory}/{path}"

    def mode(self, file: ConfigFile) -> int:
        return file.mode

    def unit(self, part: Part) -> str | None:
        return part.name if part.service.socket(part.site) is not None else None


LAYOUT = PrivateLayout()


class Embedded(Runtime):
    """Runtime whose servers start and stop with the study on this machine."""

    installed = False
    layout = LAYOUT

    def transports(self, file: TargetFile) -> dict[str, Transport]:
        return {name: LocalTransport(name) for name in file.target.hosts}

    def facts(self, target: Target, transports: Mapping[str, Transport]) -> dict[str, HostFacts]:
        here = host_facts(LocalTransport())
        return {name: here.within(host) for name, host in target.hosts.items()}

    def programs(
        self,
        needed: Mapping[str, Sequence[NeedsPrograms]],
        transports: Mapping[str, Transport],
    ) -> dict[str, dict[str, str]]:
        programs = local_programs(needs for needing in needed.values() for needs in needing)
        return dict.fromkeys(needed, programs)

    def lay_out(
        self,
        file: TargetFile,
        directory: str,
        facts: Mapping[str, HostFacts],
        programs: Mapping[str, Mapping[str, str]],
        own: Mapping[str, Own],
    ) -> Stack:
        """Return the stack on ports that are free now. Raises AutotuneError."""
        owner = private_servers.account() or (None, None)
        ports = private_servers.allocate_ports(file)
        return build(file.target, StackContext(directory, ports, programs, facts, *owner))

    def refusals(self, transport: Transport, cases: Cases) -> list[str | None]:
        return [_refusal(part, files, transport) for part, files in cases]

    def status(self, stack: Stack, transports: Mapping[str, Transport]) -> tuple[str, ...]:
        """Return the addresses on which servers would listen."""
        endpoints = (str(part.site.listen) for part in stack.parts if part.service.programs)
        return (f"ports: {', '.join(dict.fromkeys(endpoints))}",)

    def run_directory(self, study: Path) -> str:
        drops = private_servers.account() is not None
        return str(run_directories.make(study, for_others=drops))

    def hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: Note
    ) -> Processes:
        return Processes(stack, study, transports, note)


RUNTIME = Embedded()


class Processes:
    """Servers of ``stack`` that this process started. None outlives the study."""

    def __init__(
        self, stack: Stack, study: Path, transports: Mapping[str, Transport], note: Note
    ) -> None:
        self._study = study
        self._hosts = {
            name: ProcessHost(name, stack, transports[name], note) for name in stack.hosts
        }

    def __getitem__(self, name: str) -> ProcessHost:
        return self._hosts[name]

    def gather(self, names: Iterable[str], work: Callable[[RuntimeHost], T]) -> HostResults[T]:
        """Run ``work`` on one host after another, in dependency order of the tiers."""
        gathered: HostResults[T] = HostResults()
        for name in names:
            try:
                gathered.results[name] = work(self._hosts[name])
            except AutotuneError as error:
                gathered.errors[name] = error
        return gathered

    def take(self) -> None:
        """Do nothing: the study's lock is held."""

    def release(self, *, restored: bool) -> None:
        """Stop every server, starting with the entry, and remove the run directory."""
        for host in reversed(self._hosts.values()):
            host.stop_all()
        run_directories.remove(self._study)


class ProcessHost:
    """The servers of one target host, all on this machine."""

    def __init__(self, name: str, stack: Stack, transport: Transport, note: Note) -> None:
        self.name, self.transport, self._note = name, transport, note
        self._parts = {part.name: part for part in stack.parts if part.site.host == name}
        self._running: dict[str, Running] = {}

    @property
    def original(self) -> HostState:
        """Return the state before the study, in which no server of the study ran."""
        units = filter(None, map(LAYOUT.unit, self._parts.values()))
        return HostState(units=dict.fromkeys(units, False))

    def check_held(self) -> None:
        """Do nothing: the study's lock is held, and no process survives a reboot."""

    def save(
        self, desired: HostState, leaves: Iterable[str] = (), checks: Sequence[Check] = ()
    ) -> None:
        """Do nothing: all files below the run directory belong to the study."""

    def observe(self, desired: HostState) -> ObservedHost:
        files = {path: _observed(Path(path)) for path in desired.files}
        return ObservedHost(files, {name: self._observed_unit(name) for name in desired.units})

    def observe_and_ask(
        self, desired: HostState, questions: Sequence[tuple[Part, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        answers = [
            self.transport.run(argv, cwd=part.site.directory, timeout=10.0)
            for part, argv in questions
        ]
        return self.observe(desired), [f"{done.stdout}\n{done.stderr}" for done in answers]

    def stage(self, desired: HostState, plan: HostPlan, checks: Sequence[Check] = ()) -> None:
        for check in checks:
            refusal = _refusal(check.part, check.files, self.transport, check.how)
            if refusal is not None:
                raise Invalid(f"{check.part.name}: {refusal}")

    def accepted(self, original: HostState, observed: ObservedHost) -> tuple[HostState, list[str]]:
        return original, []  # no state existed before the study

    def discard(self, plan: HostPlan) -> None:
        """Do nothing: staged files are deleted after their check."""

    def apply(self, desired: HostState, plan: HostPlan) -> None:
        for name in reversed([*self._parts]):
            if name in plan.stop:
                self._stop(name)
        for path in plan.remove:
            Path(path).unlink(missing_ok=True)
        for part in self._parts.values():
            paths = [path for path in plan.write if path in _paths(part)]
            if paths:
                _make_directory(part)
            for path in paths:
                _write(Path(path), desired.files[path])
        for name in self._parts:
            if name in plan.act:
                self._act(self._parts[name], plan.act[name], desired)

    def persist(self, desired: HostState) -> None:
        """Do nothing: private servers stop with the study."""

    def complaints(self) -> list[str]:
        ended = (running for running in self._running.values() if not running.alive)
        return [f"{running.name} has exited: {running.last_words()}" for running in ended]

    def stop_all(self) -> None:
        """Stop every server in reverse dependency order."""
        for name in reversed([*self._parts]):
            self._stop(name)

    def _observed_unit(self, name: str) -> ObservedUnit:
        running = self._running.get(name)
        active = running is not None and running.alive
        return ObservedUnit(
            exists=True, active=active, enabled="", pid=running.pid if running else 0, restarts=0
        )

    def _act(self, part: Part, action: Action, desired: HostState) -> None:
        files = {name: desired.files[path].content or b"" for path, name in _paths(part).items()}
        argv, place = part.service.start(part.site, files), part.service.socket(part.site)
        assert argv is not None
        assert place is not None
        running = self._running.get(part.name)
        if action is Action.RELOAD and running and part.service.reload_signal:
            left = private_servers.reload(running, part.service.reload_signal)
            if left:
                self._note(describe_finishing(self.name, part.name, left))
        else:
            self._stop(part.name)
            running = private_servers.start(part.service.name, argv, Path(part.site.directory))
            self._running[part.name] = running
        private_servers.wait_until(
            lambda: private_servers.is_up(running, place), running, UP_SECONDS, "starting"
        )

    def _stop(self, name: str) -> None:
        if running := self._running.pop(name, None):
            private_servers.stop(running)


def _refusal(
    part: Part, files: Files, transport: Transport, how: Argv | TrialStart | None = None
) -> str | None:
    """Return the software's objection to ``files``, checked in a temporary directory, or ``None``."""
    how = how or part.service.validate(part.site, files)
    if how is None:
        return None
    with _staged(part, files) as staging:
        if isinstance(how, TrialStart):
            return _start_failure(part, how, staging)
        done = transport.run(how, cwd=str(staging), timeout=20.0)
        return None if done.ok else done.error_text or "no message"


@contextmanager
def _staged(part: Part, files: Files) -> Iterator[Path]:
    """Create a temporary directory next to the part's own with its new files."""
    directory = Path(part.site.directory)
    staging = directory.with_name(f".staging.{directory.name}")
    modes = {file.path: file.mode for file in config_files(part.service, part.site)}
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        for path, content in files.items():
            _write(staging / path, FileState(content, modes[path]))
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _start_failure(part: Part, trial: TrialStart, staging: Path) -> str | None:
    if part.site.user:
        shutil.chown(staging, part.site.user, part.site.group)
    running = private_servers.start(part.service.name, trial.argv, staging)
    try:
        private_servers.wait_until(
            lambda: private_servers.is_up(running, trial.socket), running, 10.0, "starting on trial"
        )
    except ProcessFailed as error:
        return error.message
    finally:
        private_servers.stop(running)
    return None


def _paths(part: Part) -> dict[str, str]:
    """Map the absolute path of each file of a part to the service's path."""
    return {LAYOUT.path(part, file.path): file.path
            for file in config_files(part.service, part.site)}  # fmt: skip


def _make_directory(part: Part) -> None:
    directory = Path(part.site.directory)
    if not directory.exists():
        directory.mkdir(mode=0o755)
        if part.site.user:
            shutil.chown(directory, part.site.user, part.site.group)


def _write(path: Path, state: FileState) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644 if state.mode is None else state.mode
    durable.write(path, state.content or b"", mode, sync=False)


def _observed(path: Path) -> ObservedFile:
    if not path.exists():
        return ObservedFile("absent")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return ObservedFile("file", path.stat().st_mode & 0o7777, detail=digest)
