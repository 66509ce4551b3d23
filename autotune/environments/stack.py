"""A stack of real servers on any runtime: see `deploy.runtime.Runtime`."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy import adopted_files
from autotune.deploy.boot_times import BootTimes
from autotune.deploy.changes import HostChanges
from autotune.deploy.deployment import Deployment
from autotune.deploy.host_state import HostState, list_differences
from autotune.deploy.managed_hosts import LoadHosts
from autotune.deploy.readiness import RightAnswer
from autotune.deploy.runtime import NoteCallback, ProgramUser, Runtime
from autotune.deploy.stack import ServiceInstance, Stack, find_entry_tiers
from autotune.deploy.stack_readiness import EntryProbe
from autotune.diagnose.faulty_hosts import find_answer_error
from autotune.discovery.host_templates import (
    HostTemplates,
    from_record,
    read_host_templates,
)
from autotune.environments.answer_check import NOT_COMPARED_NOTE, AnswerCheck
from autotune.environments.base import CheckResult, Preview, describe_size
from autotune.environments.data_loss import fix_restart_parameters
from autotune.environments.edit_proof import NO_PROOF, EditProof, prove_edits
from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.host_requirements import require_applications, require_ready_servers
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession, build_search_limits
from autotune.environments.stack_files import (
    StackFiles,
    exclude_rejected_choices,
    find_template_overrides,
)
from autotune.errors import AutotuneError, NotRestoredError
from autotune.loads import load_host, target_request
from autotune.loads.base import LoadGenerator
from autotune.loads.headroom import TRIVIAL_SERVER, measure_headroom
from autotune.loads.load_host import PortWait
from autotune.loads.reading_run import inspect_generator
from autotune.loads.registry import find_generator
from autotune.loads.target_request import find_traits, list_load_addresses
from autotune.monitor.host_watch import WatchedHost, build_watched_hosts
from autotune.parameter_name import ParameterName
from autotune.runtimes import load_runtime
from autotune.services.base import Action, AdoptedConfig, Role, Settings
from autotune.services.registry import expected_body, list_target_services
from autotune.space import kernel
from autotune.space.dimension import NAMED_SETTINGS
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.strict_parsing import split_lines
from autotune.study_argument import format_study_argument
from autotune.target.beds import find_study_directory
from autotune.target.messages import format_count
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.curl import CurlAnswer, describe_answer
from autotune.transports.local import LocalTransport
from autotune.transports.parallel_hosts import STOP_SIGNALS, run_on_all
from autotune.transports.request import Request

INSECURE_NOTE = (
    "`insecure: true` accepts any certificate, so autotune cannot verify the site's identity"
)


@dataclass(frozen=True)
class StackEnvironment:
    """Environment of a target with real servers: see `environments.base.Environment`.

    ``programs`` contains, by host, the path of each program that the services need. ``adopted``
    contains templates that were made from the hosts' own files. ``is_resumed`` is true if the
    baseline is the record of a study, instead of the hosts' present values.
    """

    file: TargetFile
    space: SearchSpace
    facts: Mapping[str, HostFacts]
    runtime: Runtime
    transports: Mapping[str, Transport]
    load_hosts: tuple[Transport, ...]
    load: LoadGenerator
    programs: Mapping[str, Mapping[str, str]]
    adopted: Mapping[str, AdoptedConfig]
    excluded: tuple[str, ...] = ()
    edit_proof: EditProof = NO_PROOF
    is_resumed: bool = False

    def describe_load(self, *, study: bool = True) -> str:
        target = self.file.target
        load, entry_tier = target.load, find_entry_tiers(target)[0]
        # Raise errors now instead of during the study.
        target_request.build_request(self.file, self.build_stack("<study>/run"))
        request_text = f"to {load.url}" if load.url else f"to {load.path}"
        duration_text = (
            f" for about {format_count(target.budget.time / 60, 'minute')}" if study else ""
        )
        load_text = (
            f"Sends up to {load.max_rate:g} requests/s {request_text} on "
            f"{', '.join(list_load_addresses(target))} (tier "
            f"{entry_tier}){duration_text}, and to no other host."
        )
        if load.insecure:
            load_text += f"\n{INSECURE_NOTE}."
        if not self.runtime.installed:
            return load_text
        hosts = dict.fromkeys(host for tier in target.tiers.values() for host in tier.hosts)
        edited_tiers = {instance.partition(".")[0] for instance in self.adopted}
        replaced_tiers = [name for name in target.tiers if name not in edited_tiers]
        replacement_text = (
            f" Files of {', '.join(replaced_tiers)} are replaced completely."
            if replaced_tiers
            else ""
        )
        return (
            f"{load_text}\nServices of {', '.join(hosts)} are reconfigured, reloaded and restarted "
            f"during the study. Their files are restored at the end.{replacement_text}"
        )

    @property
    def _stack_files(self) -> StackFiles:
        return StackFiles(self.file, self.runtime, self.transports)

    def build_stack(self, directory: str) -> Stack:
        """Return the stack, with private files below ``directory``. Raises AutotuneError."""
        return self.runtime.build_stack(
            self.file, directory, self.facts, self.programs, self.adopted
        )

    def read_software(self) -> dict[str, dict[str, str]]:
        def read_host_software(host: Transport) -> dict[str, str]:
            paths = sorted(set(self.programs.get(host.name, {}).values()))
            release = host.run(["uname", "-r"]).stdout.strip()
            digest_lines = split_lines(host.run(["sha256sum", *paths]).stdout) if paths else []
            digest_pairs = (line.split(maxsplit=1) for line in digest_lines)
            return {"kernel": release, **{path: digest[:12] for digest, path in digest_pairs}}

        hosts = {self.transports[name].name: name for name in self.file.target.hosts}
        software_by_host = run_on_all(
            (self.transports[name] for name in hosts.values()), read_host_software
        ).unwrap()
        return {hosts[name]: host_software for name, host_software in software_by_host.items()}

    def check(self) -> CheckResult:
        """Validate each preset of every deployment with the software on the hosts, and return the
        result.
        """
        load = self.file.target.load
        with _create_temporary_directory() as directory:
            stack = self.build_stack(directory)
            target_request.build_request(
                self.file, stack
            )  # raises an error if no request can be built
            self._stack_files.validate_host_states(
                self._stack_files.build_desired_state(
                    stack, self.space.build_candidate(preset).settings
                )
                for _, preset in self.space.iterate_presets(NAMED_SETTINGS)
            )
        programs = {Path(path).name for paths in self.programs.values() for path in paths.values()}
        return CheckResult(
            held=(
                describe_size(self.file, self.space),
                f"programs: {', '.join(sorted(programs))}",
                *self.runtime.describe_hosts(stack, self.transports),
                f"{', '.join(NAMED_SETTINGS)}: rendered and accepted by the software",
                *((f"correct response: {load.expect}",) if load.expect else ()),
                *self.edit_proof.describe_proven(),
                *(self._describe_current_state() if self.runtime.installed else ()),
            ),
            left_out=self.excluded,
            not_checked=(
                *((INSECURE_NOTE,) if load.insecure else ()),
                *((self.load.unchecked_tls,) if self.load.unchecked_tls and load.uses_tls else ()),
                *self.edit_proof.describe_unproven(),
                "responses and capacity of the stack: use `autotune measure`",
                "maximum load of the generator: use `--headroom`",
            ),
        )

    def measure_headroom(self) -> str:
        """Measure the maximum rate of each load host, with a trivial server on that host, and return a
        description of the result.
        """
        hosts = {host.name: host for host in self.load_hosts}
        servers = self.runtime.find_programs({name: [TRIVIAL_SERVER] for name in hosts}, hosts)
        server_paths = {
            name: programs[TRIVIAL_SERVER.program] for name, programs in servers.items()
        }
        max_rate = self.file.target.load.max_rate
        headroom = measure_headroom(self.load, self.load_hosts, server_paths, max_rate)
        suffix = " of plain HTTP" if self.file.target.load.uses_tls else ""
        generated_rate = min(headroom.rate, max_rate)
        summary = f"{self.load.name} generates at least {generated_rate:g} requests/s{suffix}"
        return headroom.find_shortage(max_rate) or f"{summary} on {', '.join(hosts)}"

    def build_preview(self) -> Preview:
        stack = self.build_stack("<study>/run")
        return Preview(
            entry=", ".join(
                entry.url for entry in target_request.build_request(self.file, stack).per_endpoint()
            ),
            servers=tuple(
                instance.name
                for instance in stack.instances
                if instance.service.programs and instance.placement.role is not Role.HOST
            ),
            render_files=lambda settings: (
                self._stack_files.build_desired_state(stack, settings).files
            ),
            # Alternative deployments may share an instance, such as PHP settings.
            host_settings=tuple(
                dict.fromkeys(part.name for part in stack.instances_with_role(Role.HOST))
            ),
            is_installed=self.runtime.installed,
            compute_changes=self._compute_changes if self.runtime.installed else None,
            request_answers=self._request_answers,
            restarted_units=self._find_restarted_units(stack),
            answer_checks=self._describe_answer_checks(),
        )

    def _compute_changes(self, settings: Settings) -> dict[str, HostChanges]:
        with _create_temporary_directory() as directory:
            return self.create_deployment(Path(directory), lambda _: None).preview_changes(settings)

    def _request_answers(self) -> dict[str, CurlAnswer | str]:
        """Return each entry's current response.

        The result is empty if no server is running yet, or if a request may change data.
        """
        request = target_request.build_request(self.file, self.build_stack("<study>/run"))
        if not self.runtime.installed or request.method not in ("GET", "HEAD"):
            return {}
        return {
            f"{entry_request.method} {entry_request.url}"
            + (f" at {entry_request.endpoint}" if entry_request.host else ""): curl.send_request(
                self.load_hosts[0], entry_request
            )
            for entry_request in request.per_endpoint()
        }

    def _describe_answer_checks(self) -> str:
        """Return a description of how correct responses are recognized."""
        load = self.file.target.load
        if load.requests_one_page and expected_body(self.file.target) is not None:
            return "the known body of the application"
        if load.script:
            return NOT_COMPARED_NOTE
        comparison_text = "similar to the responses before the first trial"
        if load.expect is None:
            return comparison_text
        return str(load.expect) if load.expect.body else f"{load.expect}; {comparison_text}"

    def _find_restarted_units(self, stack: Stack) -> dict[str, tuple[str, ...]]:
        restart_prefixes = {
            ParameterName.parse(dimension.name).service_prefix
            for dimension in self.space.tunable_dimensions
            if dimension.parameter.action is Action.RESTART
        }
        hosts_by_unit: dict[str, tuple[str, ...]] = {}
        for instance in stack.instances:
            unit = self.runtime.layout.unit_for(instance)
            if unit and instance.parameter_prefix in restart_prefixes:
                hosts_by_unit[unit] = (*hosts_by_unit.get(unit, ()), instance.placement.host)
        return hosts_by_unit

    def _describe_current_state(self) -> Iterator[str]:
        """Yield the differences between hosts and baseline, and the current response of the entry.

        Raises AutotuneError if the hosts' files match the baseline but the entry returns a wrong
        response.
        """
        changes = self._compute_changes(self.space.complete_without_repair({}).settings)
        changed_files = [
            f"{host}: {path}" for host, change in changes.items() for path in change.files
        ]
        yield (
            f"the baseline would change {', '.join(changed_files)}: `autotune plan` shows the changes"
            if changed_files
            else "the hosts' files match the baseline exactly"
        )
        request = target_request.build_request(self.file, self.build_stack("<study>/run"))
        for url, answer in self._request_answers().items():
            response = describe_answer(answer)
            answer_error = find_answer_error(answer, request)
            response = (
                f"{response}: {answer_error}"
                if answer_error and request.expectations and answer_error not in response
                else response
            )
            if answer_error and not changed_files:
                raise AutotuneError(
                    f"{url}: {response}",
                    hint="set `load: {path: /…}` or `url:` to a page that returns status 2xx",
                )
            yield f"{url}: {response}"

    @contextmanager
    def open_session(
        self, directory: Path, note: NoteCallback, history: MeasurementHistory
    ) -> Iterator[LoadSession]:
        """Prepare every host for changes. At the end, restore and release the hosts."""
        fleet = self.create_deployment(directory, note)
        try:
            with self._adjust_load_hosts(directory, note) as load_hosts:
                fleet.check_load_hosts = load_hosts.assert_locked
                fleet.lock_hosts()
                self._refuse_changed_kernel_values(fleet)
                yield self._create_session(fleet, history, note)
        except BaseException as error:
            _restore_deployment(fleet, error)
            raise
        else:
            _restore_deployment(fleet, None)
        finally:
            for transport in self.transports.values():
                transport.close()

    def _refuse_changed_kernel_values(self, fleet: Deployment) -> None:
        """Raise AutotuneError if a locked host no longer has the kernel values that a new study would
        use as its baseline. A killed study may have left them, until the lock restored the host.
        """
        if self.is_resumed:
            return
        tuned_values = kernel.list_kernel_values(self.file.target, self.space.baseline)
        read_states = {
            host: HostState(sysctls={name: self.facts[host].kernel_values[name] for name in values})
            for host, values in tuned_values.items()
            if values
        }
        observed_hosts = fleet.hosts.run_on_hosts(
            read_states, lambda host: host.observe(read_states[host.name])
        ).unwrap()
        changed_names = [
            f"{host}: {name}"
            for host, observed_host in observed_hosts.items()
            for name in list_differences(read_states[host], observed_host)
        ]
        if changed_names:
            raise AutotuneError(
                f"{', '.join(changed_names)}: changed after autotune had read the kernel values of the "
                "baseline",
                hint="run the command again: it reads the present values",
            )

    def create_deployment(self, directory: Path, note: NoteCallback) -> Deployment:
        """Return the deployment for the study in ``directory``, without locking a host."""
        target = self.file.target
        stack = self.build_stack(self.runtime.make_run_directory(directory))
        expected_content = expected_body(target)
        request = target_request.build_request(
            self.file, stack, expected_content if target.load.method == "GET" else None
        )

        def note_loaded_pairs(done_count: int, total_count: int) -> None:
            if done_count == total_count:
                note(f"loading data: {done_count} of {total_count} key-value pairs")

        return Deployment(
            target,
            self.space,
            stack,
            self.runtime,
            self.runtime.create_hosts(stack, self.transports, directory, note),
            format_study_argument(find_study_directory(directory)),
            probe=EntryProbe(
                lambda: self._request_entries(request),
                RightAnswer(request.expected_body, request.statuses),
                request,
                min_interval=len(request.per_endpoint()) / target.load.max_rate,
            ),
            note=note,
            boot_times=BootTimes(target.ready, target.request_timeout),
            loads_data=expected_content is not None or not self.runtime.installed,
            overrides=find_template_overrides(self.file),
            progress=note_loaded_pairs,
        )

    def _request_entries(self, request: Request) -> tuple[int, bytes] | str:
        """Send one request to each entry. Return the first wrong response, or else the last
        response.

        If a response does not meet the target's expectation, return the reason as text. A load host
        sends the requests, because this machine may be unable to reach the stack.
        """
        for entry in request.per_endpoint():
            answer = curl.send_request(self.load_hosts[0], entry)
            if wrong := find_answer_error(answer, entry):
                misses_expectation = entry.expectations and not isinstance(answer, str) and wrong
                answer = misses_expectation or answer
                break
        return answer if isinstance(answer, str) else (answer.status, answer.body)

    def _create_session(
        self, fleet: Deployment, history: MeasurementHistory, note: NoteCallback
    ) -> LoadSession:
        """Return a session that deploys with ``fleet``, sends load from the load hosts and observes
        all hosts.
        """
        target, stack = self.file.target, fleet.stack
        page_body = expected_body(target) if target.load.requests_one_page else None
        request = target_request.build_request(self.file, stack, page_body)
        answer_check = AnswerCheck.create(
            self.load,
            request,
            target.load.expect,
            self.load_hosts[0],
            errors=target.slo.objective.errors,
            max_rate=target.load.max_rate,
            hosts_serve_site=all(map(target.edits_host_files, target.tiers)),
        )
        if not answer_check.validator.pages:
            note(NOT_COMPARED_NOTE)
        cpus_by_host = {name: host.cpus for name, host in self.facts.items()}
        meter = LoadMeter(
            self.load,
            replace(request, statuses=answer_check.statuses),
            target.slo.objective,
            self.load_hosts,
            stack,
            build_watched_hosts(stack, cpus_by_host, self.transports, self.runtime.service_manager),
            timeout=target.request_timeout,
            max_rate=target.load.max_rate,
            read_deployed_settings=lambda: fleet.deployed_settings,
            generator_hosts=tuple(
                WatchedHost(host.name, cpus_by_host[host.name], (), host)
                for host in self._dedicated_load_hosts
            ),
            port_wait=PortWait(note),
            answer_check=answer_check,
        )
        limits = build_search_limits(target.load.max_rate)
        slo, highest_rate = target.slo.objective, meter.compute_highest_rate
        return LoadSession(
            fleet, meter, slo, limits, history, highest_rate=highest_rate, catalogue=stack.catalogue
        )

    @property
    def _dedicated_load_hosts(self) -> list[Transport]:
        """Return the dedicated load hosts: all load hosts except this machine and the hosts of the
        stack.
        """
        tuned_hosts = {host for tier in self.file.target.tiers.values() for host in tier.hosts}
        return [
            host
            for host in self.load_hosts
            if host.name not in tuned_hosts and not isinstance(host, LocalTransport)
        ]

    @contextmanager
    def _adjust_load_hosts(self, directory: Path, note: NoteCallback) -> Iterator[LoadHosts]:
        """Adjust the kernel settings of the dedicated load hosts, and restore the settings at the
        end.
        """
        hosts = LoadHosts(self._dedicated_load_hosts, directory, note, self.runtime.service_manager)
        try:
            hosts.lock_and_adjust_kernel(load_host.SYSCTL_KEYS, load_host.fit_kernel_values)
            yield hosts
        finally:
            with ignore_stop_signals():
                hosts.unlock(restored=True)


def prepare(file: TargetFile) -> StackEnvironment:
    """Inspect the hosts without changing anything, and return the environment with its search space.

    Raises TargetError if the target does not fit its hosts, or AutotuneError if programs are missing
    or hosts are unreachable.
    """
    target = file.target
    runtime = load_runtime(next(iter(target.tiers.values())).runtime)
    hosts = runtime.create_transports(file)
    facts = runtime.read_facts(target, hosts)
    templates = _read_host_templates(file, hosts, runtime)
    load = find_generator(file)
    load_traits = find_traits(target.load, load.limits)
    space = build_space(file, facts, templates.adopted_values).with_load_traits(load_traits)
    load_hosts = _find_load_hosts(target, hosts, runtime)
    program_users = _list_program_users(target, load, load_hosts)
    programs = runtime.find_programs(program_users, {**{h.name: h for h in load_hosts}, **hosts})
    inspect_generator(load, load_hosts)
    adopted_configs = _list_adopted_configs(file, runtime, templates)
    adopted_values = kernel.exclude_kernel_values(templates.adopted_values)
    space, own_configs = fix_restart_parameters(file, space, adopted_configs, adopted_values)
    stack_files = StackFiles(file, runtime, hosts)
    with _create_temporary_directory() as directory:
        instances = runtime.build_stack(file, directory, facts, programs, own_configs).instances
        require_applications(stack_files, instances)
        find_errors = stack_files.find_validation_errors
        space, removal_lines = exclude_rejected_choices(space, instances, find_errors)
    if runtime.installed:
        require_ready_servers(stack_files, space.baseline, instances)
    edit_proof = _prove_new_edits(stack_files, space, instances)
    templates = _complete_templates(templates, edit_proof, target, space, facts)
    return StackEnvironment(
        replace(file, adopted=templates.to_record if runtime.installed else None),
        space.with_fixed_parameters(edit_proof.refuted),
        facts,
        runtime,
        hosts,
        load_hosts,
        load,
        programs,
        own_configs,
        (*templates.skipped_lines, *removal_lines),
        edit_proof,
        file.adopted is not None,
    )


def _prove_new_edits(
    stack_files: StackFiles, space: SearchSpace, instances: Sequence[ServiceInstance]
) -> EditProof:
    """Test the edits of the hosts' files once per study. A resumed study uses the recorded result."""
    needs_proof = stack_files.runtime.installed and stack_files.file.adopted is None
    return prove_edits(space, instances, stack_files.read_values) if needs_proof else NO_PROOF


def _complete_templates(
    templates: HostTemplates,
    edit_proof: EditProof,
    target: Target,
    space: SearchSpace,
    facts: Mapping[str, HostFacts],
) -> HostTemplates:
    """Return the templates without refuted parameters, and with the kernel values of the hosts."""
    facts = kernel.with_recorded_values(target, facts, templates.adopted_values.values)
    kernel_values = kernel.list_host_values(target, space.dimensions, facts)
    return templates.without_parameters(edit_proof.refuted).with_kernel_values(kernel_values)


def _find_load_hosts(
    target: Target, hosts: Mapping[str, Transport], runtime: Runtime
) -> tuple[Transport, ...]:
    """Return the hosts that send load: the target's load hosts, or this machine if there are none."""
    host_names = target.load.hosts if runtime.installed else ()
    return tuple(hosts[name] for name in host_names) or (LocalTransport(),)


def _read_host_templates(
    file: TargetFile, hosts: Mapping[str, Transport], runtime: Runtime
) -> HostTemplates:
    """Return templates of the edited files, from the study's record or, without a record, from the
    hosts.
    """
    if not runtime.installed:
        return HostTemplates()
    if file.adopted is None:
        return read_host_templates(file, hosts, runtime)
    return from_record(file.adopted)


def _list_program_users(
    target: Target, load: LoadGenerator, load_hosts: Iterable[Transport]
) -> dict[str, list[ProgramUser]]:
    """Return the services and generators that need programs, by host."""
    users_by_host: dict[str, list[ProgramUser]] = {
        host: [
            tier_service.service
            for tier_service in list_target_services(target)
            if host in target.tiers[tier_service.tier].hosts
        ]
        for host in target.hosts
    }
    for host in load_hosts:
        users_by_host.setdefault(host.name, []).append(load)
    return users_by_host


def _list_adopted_configs(
    file: TargetFile, runtime: Runtime, host_templates: HostTemplates
) -> dict[str, AdoptedConfig]:
    """Return the own files of the hosts in use by instance, from the user's templates and from the
    hosts. Records of a sweep contain idle hosts too.
    """
    if not runtime.installed:
        return {}
    own_configs = adopted_files.read_adopted_files(find_template_overrides(file))
    own_configs |= host_templates.adopted_configs
    used_hosts = {name: tier.hosts for name, tier in file.target.tiers.items()}
    used_names = _list_instance_names(file.target, used_hosts)
    idle_names = _list_instance_names(file.target, file.idle_hosts)
    adopted_files.check_adopted_files(own_configs, {*used_names, *idle_names})
    return {name: own for name, own in own_configs.items() if name not in idle_names}


def _list_instance_names(
    target: Target, hosts_by_tier: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    return frozenset(
        f"{tier_service.tier}.{host}.{tier_service.service.name}"
        for tier_service in list_target_services(target)
        for host in hosts_by_tier.get(tier_service.tier, ())
    )


@contextmanager
def _create_temporary_directory() -> Iterator[str]:
    """Create a temporary directory that servers can read after dropping their privileges."""
    with tempfile.TemporaryDirectory(prefix="autotune-check-") as directory:
        Path(directory).chmod(0o755)
        yield directory


def _restore_deployment(fleet: Deployment, error: BaseException | None) -> None:
    """Restore the hosts. Raises NotRestoredError if the restore fails, with the message of ``error``, if
    any.
    """
    try:
        with ignore_stop_signals():
            fleet.restore()
        fleet.confirm_restored()
    except AutotuneError as restore_error:
        lines = [error.message] if isinstance(error, AutotuneError) else []
        message = "\n".join([*lines, restore_error.message])
        raise NotRestoredError(message, hint=restore_error.hint) from error or restore_error


@contextmanager
def ignore_stop_signals() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP within the ``with`` block. Other threads than the main thread
    receive no signals.
    """
    handled_signals = STOP_SIGNALS if threading.current_thread() is threading.main_thread() else ()
    old_handlers = {number: signal.signal(number, signal.SIG_IGN) for number in handled_signals}
    try:
        yield
    finally:
        for number, old_handler in old_handlers.items():
            signal.signal(number, old_handler)
