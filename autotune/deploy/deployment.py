"""Deploy a configuration to all hosts of a stack in one transaction, on any runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from autotune.deploy import dataset
from autotune.deploy.adopted_files import list_changed_files, map_template_digests
from autotune.deploy.boot_times import BootTimes
from autotune.deploy.changes import (
    CurrentHost,
    HostChanges,
    compute_host_changes,
    find_current_settings,
    read_current_host,
)
from autotune.deploy.deploy_result import (
    DeployFailed,
    DeployResult,
    Fleet,
    HostRecord,
    build_host_records,
)
from autotune.deploy.desired_state import (
    DesiredState,
    build_desired_state,
    find_ranks,
    list_required_actions,
    plan_host,
    render_files,
)
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedHost,
    PlanStep,
    split_into_steps,
)
from autotune.deploy.read_back import (
    ConfirmedState,
    StackNotReady,
    confirm_state,
    find_unit_processes,
    list_foreign_changes,
)
from autotune.deploy.rollback import extend_start_seconds, restart_units, roll_back_hosts
from autotune.deploy.runtime import (
    ApplyFailed,
    InvalidConfiguration,
    LockedHosts,
    NoteCallback,
    Runtime,
    RuntimeHost,
)
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.deploy.stack_data import StackData
from autotune.deploy.stack_readiness import EntryProbe, StackReadiness
from autotune.deploy.unit_probes import describe_probed_start, find_answered_pages, replace_starts
from autotune.deploy.unit_start import UnitStart
from autotune.errors import AutotuneError, RenderError
from autotune.masking import remove_words
from autotune.services.base import Action, Settings
from autotune.space.space import SearchSpace
from autotune.target.model import Target


def ignore_note(_: str) -> None:
    """Discard a progress message. This function is the default callback."""


class Deployment(Fleet):
    """All hosts of a stack. A configuration takes effect on every host or on none.

    ``loads_data`` is true if the store receives the target's data set. ``study`` is the argument
    that names the study in hints. ``overrides`` is the user's template directory. ``note`` receives
    lines about progress.
    """

    def __init__(
        self,
        target: Target,
        space: SearchSpace,
        stack: Stack,
        runtime: Runtime,
        hosts: LockedHosts,
        study: str,
        *,
        probe: EntryProbe,
        loads_data: bool,
        overrides: Path | None = None,
        progress: dataset.ProgressCallback = dataset.ignore_progress,
        note: NoteCallback = ignore_note,
        boot_times: BootTimes | None = None,
    ) -> None:
        self.target, self.space, self.stack = target, space, stack
        self.runtime, self.hosts = runtime, hosts
        self.boot_times = boot_times or BootTimes()
        self.readiness = StackReadiness(
            stack, hosts, runtime.service_manager, probe, self.boot_times, note
        )
        self.outlives_tuner = runtime.installed
        self.check_load_hosts: Callable[[], None] = lambda: None
        self._study, self._loads_data = study, loads_data
        self._overrides, self._progress, self._note = overrides, progress, note
        self._confirmed_state: ConfirmedState | None = None
        self._keeps_deployment = False
        self._isolated_files: Mapping[str, Mapping[str, bytes]] | None = None
        # how each unit starts, by host and unit; pages that the host does not serve are omitted
        self._starts: dict[str, dict[str, UnitStart]] = {}
        self._answered_before: bool | None = None  # None until the first deployment
        self._is_late = False  # true if the stack did not respond after the last rollback

    # -- the transaction ------------------------------------------------------------------------

    def deploy(self, settings: Settings) -> DeployResult:
        """Make ``settings`` take effect on every host, or leave every host unchanged.

        Raises DeployFailed if the configuration is at fault, and AutotuneError if a host is at fault.
        """
        desired_state = self.build_desired_state(settings)
        self._await_late_stack()
        self._inspect_original_stack(desired_state)
        desired_state = replace_starts(desired_state, self._find_limited_starts())
        self._back_up_hosts(desired_state)
        originals = self._collect_original_states(desired_state)
        try:
            return self._deploy(self._without_entry_checks(desired_state.with_secrets(originals)))
        except AutotuneError as error:
            # The software's messages may quote secrets from the files that the software rejects.
            error.message = remove_words(error.message, desired_state.find_secret_words(originals))
            raise

    def _deploy(self, desired_state: DesiredState) -> DeployResult:
        """Deploy a state in which placeholders were replaced by secrets. Raises the errors of
        `deploy`.
        """
        observed_hosts = self._observe_hosts(desired_state)
        plans = self._plan_hosts(desired_state, observed_hosts)
        if not any(plans.values()) and self._is_unchanged(observed_hosts):
            return self._build_noop_result(desired_state)
        self._validate_hosts(desired_state, plans)
        limit_seconds = self._find_answer_limit(plans)
        try:
            self._apply_plans(desired_state, plans)
            is_prefilled = self._load_data(desired_state, plans)
            self.readiness.await_answer(limit_seconds, desired_state.settings)
            deployed_state = confirm_state(
                self.hosts,
                desired_state,
                plans,
                self.space,
                is_first=self._confirmed_state is None,
                observed_before=observed_hosts,
                records=self._build_host_records(desired_state),
            )
        except (ApplyFailed, StackNotReady) as error:
            self._roll_back(plans, error)
            raise DeployFailed(error.message, hint=error.hint) from error
        except AutotuneError as error:
            self._roll_back(plans, error)
            raise
        self._confirmed_state = deployed_state
        return replace(deployed_state.deployed, prefilled=is_prefilled)

    # -- readiness --------------------------------------------------------------------------------

    def _describe_start(self, instance: ServiceInstance) -> UnitStart:
        probe = self.readiness.probe
        runs_on_hosts = self.runtime.installed and not self.runtime.layout.isolated
        page = probe.page if runs_on_hosts else None
        interval = max(UnitStart.interval, probe.min_interval)
        return describe_probed_start(find_ranks(self.stack), page, interval, instance)

    def _inspect_original_stack(self, desired: DesiredState) -> None:
        """Find out, before the first change, which pages and servers can show that the stack is
        ready.
        """
        if self._answered_before is not None:
            return
        self.boot_times.recovery = self._find_recovery(desired)
        if not self.runtime.installed:
            self._answered_before = False
            return
        functions = (
            self.runtime.service_manager.shell_functions if self.runtime.service_manager else ""
        )
        self._starts = self.hosts.run_on_hosts(
            desired.hosts,
            lambda host: find_answered_pages(host, desired.hosts[host.name].starts, functions),
        ).unwrap()
        self._answered_before = self.readiness.answers_correctly()
        self.readiness.ignore_down_servers()

    def _find_recovery(self, desired_state: DesiredState) -> float:
        """Return the longest time, in seconds, until a load balancer uses a failed server again."""
        return max(
            (
                instance.service.find_recovery_seconds(desired_state.rendered_files[instance.name])
                for instance in desired_state.instances
            ),
            default=0.0,
        )

    def _find_limited_starts(self) -> dict[str, dict[str, UnitStart]]:
        """Return how each unit starts, with its time limit, by host and unit."""
        return {
            host: {
                unit: replace(start, seconds=self.boot_times.unit_limit(host, unit))
                for unit, start in starts.items()
            }
            for host, starts in self._starts.items()
        }

    def _without_entry_checks(self, desired_state: DesiredState) -> DesiredState:
        """Return the state without readiness checks that request the entry's page. The entry's page
        is requested later.
        """
        entry_addresses = {str(each) for each in (self.stack.entry, *self.stack.other_entries)}
        return replace_starts(
            desired_state,
            {
                name: {
                    unit: replace(start, url="")
                    if _find_authority(start.url) in entry_addresses
                    else start
                    for unit, start in host_state.starts.items()
                }
                for name, host_state in desired_state.hosts.items()
            },
        )

    def _find_answer_limit(self, plans: Mapping[str, HostPlan]) -> float:
        """Return the time limit, in seconds, for a correct response after the plans' restarts."""
        units = [(name, unit) for name, plan in plans.items() for unit in plan.unit_actions]
        unit_limits = (self.boot_times.unit_limit(*unit) for unit in units)
        return max((self.boot_times.stack_limit, *unit_limits))

    def await_service(self, *, is_answer_doubtful: bool) -> None:
        """Wait until load balancers use all servers: see `Fleet.await_service`."""
        self.readiness.await_recovery(self.deployed_settings, is_answer_doubtful=is_answer_doubtful)

    def build_desired_state(self, settings: Settings) -> DesiredState:
        """Return the state of every host under ``settings``, without contacting a host. Raises
        DeployFailed.
        """

        def render_instance_files(instance: ServiceInstance) -> dict[str, bytes]:
            data_set = self.target.data
            return render_files(
                instance.service, instance.placement, settings, data_set, self._overrides
            )

        try:
            return build_desired_state(
                settings,
                self.stack,
                render_instance_files,
                self.runtime.layout,
                self._describe_start,
            )
        except RenderError as error:
            raise DeployFailed(error.message) from error

    def preview_changes(self, settings: Settings) -> dict[str, HostChanges]:
        """Return the changes that ``settings`` would make to each host now. No lock is needed."""
        base, masked = self._rendered_baseline, self.build_desired_state(settings)
        states_by_host = {name: (base.hosts[name], masked.hosts[name]) for name in self.stack.hosts}
        current_hosts = self._read_current_hosts(states_by_host)
        original_states = self._add_isolated_files(
            masked, {name: host.state for name, host in current_hosts.items()}
        )
        base, desired = base.with_secrets(original_states), masked.with_secrets(original_states)
        return {
            name: compute_host_changes(name, base, desired, current_hosts[name], masked)
            for name in self.stack.hosts
        }

    def _read_current_hosts(
        self, states_by_host: Mapping[str, tuple[HostState, ...]]
    ) -> dict[str, CurrentHost]:
        return self.hosts.run_on_hosts(
            states_by_host, lambda host: read_current_host(host, states_by_host[host.name])
        ).unwrap()

    def _refuse_changed_hosts(self, desired_state: DesiredState) -> None:
        """Raise AutotuneError if a file without a backup was changed or created after autotune made its
        template. A deployment would undo that change.
        """
        if changed_names := self._list_changed_names(desired_state):
            raise AutotuneError(
                f"{', '.join(changed_names)}: changed after autotune had read the host, so a deployment "
                "would undo the change",
                hint="`autotune run` and `autotune apply` read the hosts again; to resume a study, undo "
                "the change",
            )

    def _list_changed_names(self, desired_state: DesiredState) -> list[str]:
        """Return ``host: path`` for each file that has changed since its template was made."""
        digests_by_host = map_template_digests(
            desired_state, lambda host, path: path not in self.hosts[host].original_state.files
        )
        if not digests_by_host:
            return []
        current_hosts = self._read_current_hosts(
            {
                host: (HostState({path: FileState() for path in digests}),)
                for host, digests in digests_by_host.items()
            }
        )
        current_states = self._add_isolated_files(
            desired_state, {name: host.state for name, host in current_hosts.items()}
        )
        # The backup explains why other paths, such as hard links, cannot be replaced.
        readable_digests = {
            host: {
                path: digest
                for path, digest in digests.items()
                if current_hosts[host].observed.files[path].kind in ("file", "link", "absent")
            }
            for host, digests in digests_by_host.items()
        }
        return list_changed_files(readable_digests, current_states)

    def _back_up_hosts(self, desired_state: DesiredState) -> None:
        self._refuse_changed_hosts(desired_state)

        def back_up_host(host: RuntimeHost) -> None:
            host_state = desired_state.hosts[host.name]
            host.back_up(
                host_state,
                desired_state.created_files(host.name),
                desired_state.build_checks(host.name, host_state.files),
            )

        self.hosts.run_on_hosts(self.stack.hosts, back_up_host).unwrap()

    def _observe_hosts(self, desired_state: DesiredState) -> dict[str, ObservedHost]:
        return self.hosts.run_on_hosts(
            self.stack.hosts, lambda host: host.observe(desired_state.hosts[host.name])
        ).unwrap()

    def _plan_hosts(
        self, desired_state: DesiredState, observed: Mapping[str, ObservedHost]
    ) -> dict[str, HostPlan]:
        """Return the plan of changes to each host. If the deployed settings are known, only changed
        parameters cause actions.
        """
        base_state = (
            self._confirmed_state.desired if self._confirmed_state else self._build_baseline_state()
        )

        def build_plan(host_name: str) -> HostPlan:
            current_settings = (
                base_state.settings
                if self._confirmed_state
                else find_current_settings(host_name, base_state, observed[host_name])
            )
            needed_actions = list_required_actions(desired_state, host_name, current_settings)
            return plan_host(desired_state.hosts[host_name], observed[host_name], needed_actions)

        return {name: build_plan(name) for name in self.stack.hosts}

    @cached_property
    def _rendered_baseline(self) -> DesiredState:
        """Return the state with the baseline settings, in which secrets are still masked."""
        return self.build_desired_state(self.space.complete_without_repair({}).settings)

    def _build_baseline_state(self) -> DesiredState:
        base_state = self._rendered_baseline
        return base_state.with_secrets(self._collect_original_states(base_state))

    def _collect_original_states(self, desired_state: DesiredState) -> dict[str, HostState]:
        """Return the state of each host before the first change, including files inside containers."""
        return self._add_isolated_files(
            desired_state, {n: self.hosts[n].original_state for n in desired_state.hosts}
        )

    def _add_isolated_files(
        self, desired_state: DesiredState, original_states: Mapping[str, HostState]
    ) -> dict[str, HostState]:
        """Return ``original_states`` with the files inside containers, which are read only once."""
        if not self.runtime.layout.isolated:
            return dict(original_states)
        if self._isolated_files is None:
            self._isolated_files = self.hosts.run_on_hosts(
                desired_state.hosts,
                lambda host: self.runtime.read_isolated_files(
                    host.transport, desired_state.instances_on(host.name)
                ),
            ).unwrap()
        return {
            name: replace(
                state,
                files={
                    **{
                        path: FileState(content)
                        for path, content in self._isolated_files[name].items()
                    },
                    **{
                        path: file for path, file in state.files.items() if file.content is not None
                    },
                },
            )
            for name, state in original_states.items()
        }

    def _validate_hosts(self, desired: DesiredState, plans: Mapping[str, HostPlan]) -> None:
        def stage_host(host: RuntimeHost) -> None:
            plan = plans[host.name]
            changing_paths = (*plan.files_to_write, *plan.files_to_remove)
            host.stage(
                desired.hosts[host.name], plan, desired.build_checks(host.name, changing_paths)
            )

        changing_hosts = _list_changing_hosts(plans)
        try:
            self.hosts.run_on_hosts(changing_hosts, stage_host).unwrap()
        except AutotuneError as error:
            self.hosts.run_on_hosts(
                changing_hosts, lambda host: host.discard_staged(plans[host.name])
            )
            if isinstance(error, InvalidConfiguration):
                raise DeployFailed(error.message) from error
            raise

    def _apply_plans(self, desired_state: DesiredState, plans: Mapping[str, HostPlan]) -> None:
        """Apply the plans, back-end tiers first, and record boot times."""

        def apply_step(step: PlanStep, host: RuntimeHost) -> Mapping[str, float]:
            return host.apply(desired_state.hosts[host.name], step[host.name])

        starts = {host_name: state.starts for host_name, state in desired_state.hosts.items()}
        for step in split_into_steps(plans, starts):
            boot_seconds = self.hosts.run_on_hosts(step, partial(apply_step, step)).unwrap()
            for host_name, seconds in boot_seconds.items():
                self.boot_times.record_units(host_name, seconds)

    @cached_property
    def _stack_data(self) -> StackData:
        return StackData(self.target.data, self.hosts, self._progress)

    def _load_data(self, desired: DesiredState, plans: Mapping[str, HostPlan]) -> bool:
        """Fill the store and the empty caches. Return true if all empty caches were filled."""
        if not self._loads_data:
            return False
        # Before the first deployment, a store may be empty even if its unit needs no restart.
        started_instances = [
            instance
            for instance in desired.instances
            if self._confirmed_state is None
            or desired.layout.unit_for(instance) in plans[instance.placement.host].unit_actions
        ]
        self._stack_data.load_store(started_instances)
        if self.readiness.probe.right.body is None:
            return False
        return self._stack_data.fill_caches(started_instances, desired.instances)

    # -- rollback ---------------------------------------------------------------------------------

    def _roll_back(self, plans: Mapping[str, HostPlan], error: AutotuneError) -> None:
        """Roll every host back to the last good state or, without a good state, to the original
        state.

        If the stack does not respond in time after the rollback, the study continues. See
        `_await_late_stack`.
        """
        good_deployment = self._confirmed_state
        actions = {
            name: {
                **plans[name].unit_actions,
                **dict.fromkeys(plans[name].units_to_stop, Action.RESTART),
            }
            for name in _list_changing_hosts(plans)
        }
        late_limit = self.boot_times.late_limit
        good_state = (lambda name: good_deployment.desired.hosts[name]) if good_deployment else None
        if failed_rollbacks := roll_back_hosts(self.hosts, actions, good_state, late_limit):
            messages = "; ".join(failure.message for failure in failed_rollbacks.values())
            raise AutotuneError(
                f"{error.message}\nand not every host could be restored: {messages}",
                hint=f"fix the cause, then run `autotune restore {self._study}`",
            ) from error
        if good_deployment:
            self._confirmed_state = replace(good_deployment, unit_processes={})
            try:
                self._await_answer_after(plans, good_deployment.desired, late_limit)
            except StackNotReady as late_error:
                self._is_late = True
                error.message += (
                    f"\nThe previous configuration was deployed again, but after {late_limit:.0f} s, "
                    f"{late_error.message}"
                )

    def _await_answer_after(
        self, plans: Mapping[str, HostPlan], desired: DesiredState, limit_seconds: float
    ) -> None:
        """Wait for the stack. If units were only reloaded and responses stay wrong, restart the
        units.
        """
        reloading_plans = {
            name: plan
            for name, plan in plans.items()
            if Action.RELOAD in plan.unit_actions.values()
        }
        try:
            self.readiness.await_answer(
                self.boot_times.stack_limit if reloading_plans else limit_seconds, desired.settings
            )
        except StackNotReady:
            if not reloading_plans:
                raise
            self.hosts.run_on_hosts(
                reloading_plans,
                lambda host: restart_units(
                    host,
                    extend_start_seconds(desired.hosts[host.name], limit_seconds),
                    reloading_plans[host.name].unit_actions,
                ),
            ).unwrap()
            self.readiness.await_answer(limit_seconds, desired.settings)

    def _await_late_stack(self) -> None:
        """Wait once more for a stack that did not respond after the last rollback.

        Raises AutotuneError if the stack still does not respond, because a host must then be the
        cause.
        """
        if self._is_late and self._confirmed_state is not None:
            try:
                self.readiness.await_answer(
                    self.boot_times.late_limit, self._confirmed_state.desired.settings
                )
            except StackNotReady as error:
                raise AutotuneError(
                    f"a configuration that worked before no longer works: {error.message}",
                    hint="once the problem is fixed, continue the study with `autotune resume "
                    f"{self._study}`",
                ) from error
            self._is_late = False

    def verify(self) -> None:
        """Check that nothing has changed on the hosts since the deployment. Raises the errors of
        `Fleet.verify`.
        """
        self.check_load_hosts()
        good_deployment = self._confirmed_state
        assert good_deployment is not None

        def observe_locked(host: RuntimeHost) -> ObservedHost:
            host.assert_locked()
            return host.observe(good_deployment.desired.hosts[host.name])

        observed_hosts = self.hosts.run_on_hosts(self.stack.hosts, observe_locked).unwrap()
        if changed_hosts := list_foreign_changes(good_deployment, observed_hosts):
            raise AutotuneError(
                f"another process changed hosts during the trial: {'; '.join(changed_hosts)}",
                hint="stop that process, such as configuration management; then `autotune resume "
                f"{self._study}` repeats the trial",
            )
        current_processes = find_unit_processes(observed_hosts)
        restarted_units = [
            f"{host}: {unit}"
            for host, processes_by_unit in current_processes.items()
            for unit, process in processes_by_unit.items()
            if process != good_deployment.unit_processes.get(host, {}).get(unit)
        ]
        if restarted_units:
            raise DeployFailed(
                f"units stopped or restarted under load: {', '.join(restarted_units)}"
            )

    # -- locks, and what remains after a study ------------------------------------------------------

    def lock_hosts(self) -> None:
        """Lock every host. Raises LockedError if another tuner holds the lock on a host."""
        self.hosts.lock()

    @property
    def deployed_settings(self) -> Settings:
        """Return the deployed settings; empty before the first deployment."""
        return self._confirmed_state.desired.settings if self._confirmed_state else {}

    def keep_deployed(self) -> None:
        """Keep the deployment when hosts are released: see `Fleet.keep_deployed`."""
        assert self.outlives_tuner
        assert self._confirmed_state is not None
        states_by_host = self._confirmed_state.desired.hosts
        self.hosts.run_on_hosts(
            states_by_host, lambda host: host.persist_state(states_by_host[host.name])
        ).unwrap()
        self._keeps_deployment = True

    def restore(self) -> None:
        """Restore and release every host.

        Raises AutotuneError with the hosts that could not be restored, once all other hosts are
        restored.
        """
        self.hosts.unlock(restored=not self._keeps_deployment)

    def confirm_restored(self) -> None:
        """Wait for a correct response if the stack responded correctly before the study, and report
        the result as a progress message.
        """
        if self._keeps_deployment or not self._answered_before:
            return
        try:
            self.readiness.await_answer(self.boot_times.late_limit, self.deployed_settings)
        except AutotuneError as error:
            self._note(f"every host was restored, but {error.message}")
        else:
            self._note("every host was restored, and the stack responds correctly")

    def _is_unchanged(self, observed_hosts: Mapping[str, ObservedHost]) -> bool:
        return (
            self._confirmed_state is not None
            and self._confirmed_state.unit_processes == find_unit_processes(observed_hosts)
        )

    def _build_noop_result(self, desired_state: DesiredState) -> DeployResult:
        assert self._confirmed_state is not None
        self.readiness.await_answer(self.boot_times.stack_limit, desired_state.settings)
        previous_result = self._confirmed_state.deployed
        no_actions = dict.fromkeys(previous_result.actions, Action.NONE)
        hosts = self._build_host_records(desired_state)
        return replace(previous_result, files=desired_state.files, actions=no_actions, hosts=hosts)

    def _build_host_records(self, desired_state: DesiredState) -> dict[str, HostRecord]:
        """Return the records of all hosts in a deployment. Private servers have no records, because
        their deployments cannot be exported.
        """
        if not self.runtime.installed:
            return {}
        original_states = {host: self.hosts[host].original_state for host in desired_state.hosts}
        return build_host_records(desired_state, original_states, self._find_baseline())

    def _find_baseline(self) -> DesiredState | None:
        """Return the baseline state, or ``None`` if a file with its secrets has no backup."""
        try:
            return self._build_baseline_state()
        except AutotuneError:
            return None


def _find_authority(url: str) -> str:
    """Return the ``host:port`` of a URL."""
    return url.partition("://")[2].partition("/")[0]


def _list_changing_hosts(plans: Mapping[str, HostPlan]) -> list[str]:
    """Return the hosts whose plans are not empty."""
    return [name for name, plan in plans.items() if plan]
