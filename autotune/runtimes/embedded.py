"""Runtime `embedded`: the whole stack runs as private processes below the study's run directory."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from autotune import durable_files
from autotune.deploy import private_servers, run_directories
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedFile,
    ObservedHost,
    ObservedUnit,
)
from autotune.deploy.private_servers import ProcessFailed, ServerProcess
from autotune.deploy.programs import find_local_programs
from autotune.deploy.runtime import (
    ConfigurationCheck,
    InvalidConfiguration,
    NoteCallback,
    ProgramUser,
    Runtime,
    RuntimeHost,
    RuntimeLayout,
    ValidationCases,
    describe_draining,
)
from autotune.deploy.stack import ServiceInstance, Stack, StackContext, build_stack
from autotune.deploy.unit_start import UnitStart
from autotune.errors import AutotuneError
from autotune.services.base import (
    Action,
    AdoptedConfig,
    Argv,
    ConfigFile,
    TrialStart,
    resolve_config_files,
)
from autotune.space.facts import HostFacts
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import read_host_facts
from autotune.transports.local import LocalTransport
from autotune.transports.parallel_hosts import HostResults

T = TypeVar("T")
ContentsByPath = Mapping[str, bytes]


class PrivateLayout(RuntimeLayout):
    """The layout of private processes, with files below the directory of each service instance. Each
    process is identified by the name of its service instance.
    """

    removes_inactive = True

    def path_for(self, instance: ServiceInstance, path: str) -> str:
        return f"{instance.placement.directory}/{path}"

    def mode_for(self, file: ConfigFile) -> int:
        return file.mode

    def unit_for(self, instance: ServiceInstance) -> str | None:
        return (
            instance.name if instance.service.get_socket(instance.placement) is not None else None
        )


LAYOUT = PrivateLayout()


class Embedded(Runtime):
    """Runtime whose servers run on this machine, and start and stop with the study."""

    installed = False
    layout = LAYOUT

    def create_transports(self, file: TargetFile) -> dict[str, Transport]:
        return {name: LocalTransport(name) for name in file.target.hosts}

    def read_facts(
        self, target: Target, transports: Mapping[str, Transport]
    ) -> dict[str, HostFacts]:
        local_facts = read_host_facts(LocalTransport())
        return {name: local_facts.limit_to_host(host) for name, host in target.hosts.items()}

    def find_programs(
        self,
        needed: Mapping[str, Sequence[ProgramUser]],
        transports: Mapping[str, Transport],
    ) -> dict[str, dict[str, str]]:
        programs = find_local_programs(
            program_user for program_users in needed.values() for program_user in program_users
        )
        return dict.fromkeys(needed, programs)

    def build_stack(
        self,
        file: TargetFile,
        directory: str,
        facts: Mapping[str, HostFacts],
        programs: Mapping[str, Mapping[str, str]],
        adopted_configs: Mapping[str, AdoptedConfig],
    ) -> Stack:
        """Return the stack, with ports that are currently free. Raises AutotuneError."""
        server_account = private_servers.find_server_account() or (None, None)
        ports = private_servers.allocate_ports(file)
        return build_stack(
            file.target, StackContext(directory, ports, programs, facts, *server_account)
        )

    def find_validation_errors(
        self, transport: Transport, cases: ValidationCases
    ) -> list[str | None]:
        return [_find_validation_error(instance, files, transport) for instance, files in cases]

    def describe_hosts(self, stack: Stack, transports: Mapping[str, Transport]) -> tuple[str, ...]:
        """Return a line with the addresses on which the stack's servers would listen."""
        endpoints = (
            str(instance.placement.listen)
            for instance in stack.instances
            if instance.service.programs
        )
        return (f"ports: {', '.join(dict.fromkeys(endpoints))}",)

    def make_run_directory(self, study: Path) -> str:
        drops_privileges = private_servers.find_server_account() is not None
        return str(run_directories.make_run_directory(study, is_shared=drops_privileges))

    def create_hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: NoteCallback
    ) -> ProcessHosts:
        return ProcessHosts(stack, study, transports, note)


RUNTIME = Embedded()


class ProcessHosts:
    """The servers in ``stack`` that this process started. No server outlives the study."""

    def __init__(
        self, stack: Stack, study: Path, transports: Mapping[str, Transport], note: NoteCallback
    ) -> None:
        self._study = study
        self._hosts = {
            name: ProcessHost(name, stack, transports[name], note) for name in stack.hosts
        }

    def __getitem__(self, name: str) -> ProcessHost:
        return self._hosts[name]

    def run_on_hosts(
        self, host_names: Iterable[str], work: Callable[[RuntimeHost], T]
    ) -> HostResults[T]:
        """Run ``work`` on one host after another, in the tiers' dependency order."""
        host_results: HostResults[T] = HostResults()
        for host_name in host_names:
            try:
                host_results.results[host_name] = work(self._hosts[host_name])
            except AutotuneError as error:
                host_results.errors[host_name] = error
        return host_results

    def lock(self) -> None:
        """Take no lock, because the study's lock is already held."""

    def unlock(self, *, restored: bool) -> None:
        """Stop every server (the entry tier first), and remove the run directory."""
        for host in reversed(self._hosts.values()):
            host.stop_all()
        if run_directory := run_directories.find_run_directory(self._study):
            private_servers.stop_orphaned(run_directory)  # started just before an interrupt
        run_directories.remove_run_directory(self._study)


class ProcessHost:
    """The servers of one target host, all of which run on this machine."""

    def __init__(
        self, host_name: str, stack: Stack, transport: Transport, note: NoteCallback
    ) -> None:
        self.name, self.transport, self._note = host_name, transport, note
        self._instances = {
            instance.name: instance
            for instance in stack.instances
            if instance.placement.host == host_name
        }
        self._running: dict[str, ServerProcess] = {}

    @property
    def original_state(self) -> HostState:
        """Return the host's state before the study, when none of the study's servers was running."""
        unit_names = filter(None, map(LAYOUT.unit_for, self._instances.values()))
        return HostState(units=dict.fromkeys(unit_names, False))

    def assert_locked(self) -> None:
        """Check nothing, because the study's lock is held and no process survives a reboot."""

    def back_up(
        self,
        desired: HostState,
        created_files: Iterable[str] = (),
        checks: Sequence[ConfigurationCheck] = (),
    ) -> None:
        """Save nothing: all files below the run directory belong to the study."""

    def observe(self, desired: HostState) -> ObservedHost:
        observed_files = {path: _observe_file(Path(path)) for path in desired.files}
        return ObservedHost(
            observed_files, {name: self._observe_unit(name) for name in desired.units}
        )

    def observe_and_query(
        self, desired: HostState, queries: Sequence[tuple[ServiceInstance, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        command_results = [
            self.transport.run(argv, cwd=instance.placement.directory, timeout=10.0)
            for instance, argv in queries
        ]
        return self.observe(desired), [
            f"{command_result.stdout}\n{command_result.stderr}"
            for command_result in command_results
        ]

    def stage(
        self, desired: HostState, plan: HostPlan, checks: Sequence[ConfigurationCheck] = ()
    ) -> None:
        for check in checks:
            error_text = _find_validation_error(
                check.instance, check.files, self.transport, check.method
            )
            if error_text is not None:
                raise InvalidConfiguration(f"{check.instance.name}: {error_text}")

    def select_restorable(
        self, original: HostState, observed: ObservedHost
    ) -> tuple[HostState, list[str]]:
        return original, []  # no server existed before the study

    def discard_staged(self, plan: HostPlan) -> None:
        """Delete nothing, because staged files were already deleted after their check."""

    def apply(self, desired: HostState, plan: HostPlan) -> dict[str, float]:
        for instance_name in reversed([*self._instances]):
            if instance_name in plan.units_to_stop:
                self._stop_server(instance_name)
        for path in plan.files_to_remove:
            Path(path).unlink(missing_ok=True)
        for instance in self._instances.values():
            paths = [path for path in plan.files_to_write if path in _map_service_paths(instance)]
            if paths:
                _make_instance_directory(instance)
            for path in paths:
                _write_file(Path(path), desired.files[path])
        boot_seconds = {}
        for instance_name in self._instances:
            if instance_name in plan.unit_actions:
                start_time = time.monotonic()
                self._apply_action(
                    self._instances[instance_name], plan.unit_actions[instance_name], desired
                )
                boot_seconds[instance_name] = time.monotonic() - start_time
        return boot_seconds

    def persist_state(self, desired: HostState) -> None:
        """Change nothing, because private servers stop with the study."""

    def find_failures(self) -> list[str]:
        exited_servers = (server for server in self._running.values() if not server.is_alive)
        return [f"{server.name} has exited: {server.read_log_tail()}" for server in exited_servers]

    def stop_all(self) -> None:
        """Stop every server in reverse dependency order."""
        for instance_name in reversed([*self._instances]):
            self._stop_server(instance_name)

    def _observe_unit(self, unit_name: str) -> ObservedUnit:
        running_server = self._running.get(unit_name)
        is_active = running_server is not None and running_server.is_alive
        return ObservedUnit(
            exists=True,
            active=is_active,
            enabled="",
            pid=running_server.pid if running_server else 0,
            restarts=0,
        )

    def _apply_action(self, instance: ServiceInstance, action: Action, desired: HostState) -> None:
        contents_by_name = {
            name: desired.files[path].content or b""
            for path, name in _map_service_paths(instance).items()
        }
        argv = instance.service.build_start_command(instance.placement, contents_by_name)
        listen_socket = instance.service.get_socket(instance.placement)
        assert argv is not None
        assert listen_socket is not None
        running_server = self._running.get(instance.name)
        if action is Action.RELOAD and running_server and instance.service.reload_signal:
            draining_count = private_servers.reload_server(
                running_server, instance.service.reload_signal
            )
            if draining_count:
                self._note(describe_draining(self.name, instance.name, draining_count))
        else:
            self._stop_server(instance.name)
            running_server = private_servers.start_server(
                instance.service.name, argv, Path(instance.placement.directory)
            )
            self._running[instance.name] = running_server
        private_servers.wait_until(
            lambda: private_servers.is_accepting(running_server, listen_socket),
            running_server,
            desired.starts.get(instance.name, UnitStart()).seconds,
            "starting",
        )

    def _stop_server(self, instance_name: str) -> None:
        if running_server := self._running.get(instance_name):
            private_servers.stop_server(running_server)
            del self._running[instance_name]  # after an interrupt, `stop_all` stops it again


def _find_validation_error(
    instance: ServiceInstance,
    contents_by_name: ContentsByPath,
    transport: Transport,
    validation: Argv | TrialStart | None = None,
) -> str | None:
    """Return the software's error message about the files in ``contents_by_name``, or ``None``. The
    files are validated in a temporary directory.
    """
    validation = validation or instance.service.build_validation(
        instance.placement, contents_by_name
    )
    if validation is None:
        return None
    with _stage_files(instance, contents_by_name) as staging_directory:
        if isinstance(validation, TrialStart):
            return _find_start_failure(instance, validation, staging_directory)
        command_result = transport.run(validation, cwd=str(staging_directory), timeout=20.0)
        return None if command_result.ok else command_result.error_text or "no message"


@contextmanager
def _stage_files(instance: ServiceInstance, contents_by_name: ContentsByPath) -> Iterator[Path]:
    """Write the files to a temporary directory next to the instance's own directory, and remove the
    directory at the end.
    """
    directory = Path(instance.placement.directory)
    staging_directory = directory.with_name(f".staging.{directory.name}")
    modes_by_path = {
        file.path: file.mode for file in resolve_config_files(instance.service, instance.placement)
    }
    shutil.rmtree(staging_directory, ignore_errors=True)
    staging_directory.mkdir(parents=True)
    try:
        for path, content in contents_by_name.items():
            _write_file(staging_directory / path, FileState(content, modes_by_path[path]))
        yield staging_directory
    finally:
        shutil.rmtree(staging_directory, ignore_errors=True)


def _find_start_failure(
    instance: ServiceInstance, trial_start: TrialStart, staging_directory: Path
) -> str | None:
    if instance.placement.user:
        shutil.chown(staging_directory, instance.placement.user, instance.placement.group)
    running_server = private_servers.start_server(
        instance.service.name, trial_start.argv, staging_directory
    )
    try:
        private_servers.wait_until(
            lambda: private_servers.is_accepting(running_server, trial_start.socket),
            running_server,
            10.0,
            "starting on trial",
        )
    except ProcessFailed as error:
        return error.message
    finally:
        private_servers.stop_server(running_server)
    return None


def _map_service_paths(instance: ServiceInstance) -> dict[str, str]:
    """Return the service's own path of each of an instance's files, by absolute path."""
    return {
        LAYOUT.path_for(instance, file.path): file.path
        for file in resolve_config_files(instance.service, instance.placement)
    }


def _make_instance_directory(instance: ServiceInstance) -> None:
    directory = Path(instance.placement.directory)
    if not directory.exists():
        directory.mkdir(mode=0o755)
        if instance.placement.user:
            shutil.chown(directory, instance.placement.user, instance.placement.group)


def _write_file(path: Path, file_state: FileState) -> None:
    """Write a file atomically, with the content and mode in ``file_state``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644 if file_state.mode is None else file_state.mode
    durable_files.write_file(path, file_state.content or b"", mode, sync=False)


def _observe_file(path: Path) -> ObservedFile:
    if not path.exists():
        return ObservedFile("absent")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return ObservedFile("file", path.stat().st_mode & 0o7777, detail=digest)
