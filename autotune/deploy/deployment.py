"""One transaction over all hosts of a stack, whichever runtime its services have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy import dataset, readiness
from autotune.deploy.changes import (
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
    SettingMismatch,
    build_host_records,
)
from autotune.deploy.desired_state import (
    DesiredState,
    build_desired_state,
    instance_actions,
    plan_host,
    render_files,
    required_actions,
)
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedHost,
    list_differences,
)
from autotune.deploy.runtime import (
    ApplyFailed,
    InvalidConfiguration,
    LockedHosts,
    Runtime,
    RuntimeHost,
)
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.errors import AutotuneError, RenderError
from autotune.masking import remove_words
from autotune.services.base import Action, Role, Settings, Value
from autotune.space.space import SearchSpace
from autotune.target.expected_answer import ANY_2XX
from autotune.target.model import Target
from autotune.transports import wait_notices

READY_SECONDS = 15.0
UnitProcesses = Mapping[str, Mapping[str, tuple[int, int]]]


class StackNotReady(AutotuneError):
    """Everything was started, but the stack does not answer right."""


@dataclass(frozen=True)
class ConfirmedState:
    """The last good deployment, and how the units looked when it was found good."""

    desired: DesiredState
    deployed: DeployResult
    unit_processes: UnitProcesses


class Deployment(Fleet):
    """All hosts of a stack: what is deployed takes effect on every one or on none.

    ``request()`` sends the whole stack one request and returns status and body, or why there is no
    answer. ``expect`` is the body of a right answer, ``None`` where any will do,
    and ``statuses`` are the right ones. ``loads_data``: the
    store is filled with the target's data set. ``study`` names the study in the hint of an error.
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
        request: Callable[[], tuple[int, bytes] | str],
        expected_body: bytes | None,
        statuses: frozenset[int] = ANY_2XX,
        loads_data: bool,
        overrides: Path | None = None,
        progress: dataset.ProgressCallback = dataset.ignore_progress,
    ) -> None:
        self.target, self.space, self.stack = target, space, stack
        self.runtime, self.hosts, self.request = runtime, hosts, request
        self.ready_seconds = READY_SECONDS
        self.outlives_tuner = runtime.installed
        self.check_load_hosts: Callable[[], None] = lambda: None
        self._study, self._expect, self._loads_data = study, expected_body, loads_data
        self._statuses = statuses
        self._overrides, self._progress = overrides, progress
        self._hot: Mapping[str, str] = {}
        self._in_place: ConfirmedState | None = None
        self._keeping = False
        self._inside: Mapping[str, Mapping[str, bytes]] | None = None

    # -- the transaction ------------------------------------------------------------------------

    def deploy(self, settings: Settings) -> DeployResult:
        """Make ``settings`` take effect on every host, or leave every host as it was.

        Raises DeployFailed where the configuration is the cause, AutotuneError where a host is.
        """
        desired = self.build_desired_state(settings)
        self._back_up(desired)
        originals = self._original_states(desired)
        try:
            return self._deploy(desired.with_secrets(originals))
        except AutotuneError as error:
            # The software's own words may be those of the files that it refuses.
            error.message = remove_words(error.message, desired.find_secret_words(originals))
            raise

    def _deploy(self, desired: DesiredState) -> DeployResult:
        """Deploy what has the hosts' own words in it. Raises as `deploy` does."""
        observed = self._observe(desired)
        plans = self._plan_hosts(desired, observed)
        if not any(plans.values()) and self._is_unchanged(observed):
            return self._build_noop_result(desired)
        self._validate(desired, plans)
        try:
            self._apply(desired, plans)
            prefilled = self._load_data(desired, plans)
            self._await_answer()
            first = self._in_place is None
            in_place = confirm_state(
                self.hosts,
                desired,
                plans,
                self.space,
                is_first=first,
                observed_before=observed,
                records=self._build_host_records(desired),
            )
        except (ApplyFailed, StackNotReady) as error:
            self._roll_back(plans, error)
            raise DeployFailed(error.message) from error
        except AutotuneError as error:
            self._roll_back(plans, error)
            raise
        self._in_place = in_place
        return replace(in_place.deployed, prefilled=prefilled)

    def build_desired_state(self, settings: Settings) -> DesiredState:
        """Every host's state under ``settings``; no host is asked or changed. Raises DeployFailed."""

        def files(instance: ServiceInstance) -> dict[str, bytes]:
            data = self.target.data
            return render_files(
                instance.service, instance.placement, settings, data, self._overrides
            )

        try:
            return build_desired_state(settings, self.stack, files, self.runtime.layout)
        except RenderError as error:
            raise DeployFailed(error.message) from error

    def preview_changes(self, settings: Settings) -> dict[str, HostChanges]:
        """What ``settings`` would change on each host as it is now; changes nothing, needs no lock."""
        base, masked = (
            self.build_desired_state(self.space.complete_unrepaired({}).settings),
            self.build_desired_state(settings),
        )
        states = {name: (base.hosts[name], masked.hosts[name]) for name in self.stack.hosts}
        now = self.hosts.run_on_hosts(
            states, lambda host: read_current_host(host, states[host.name])
        ).unwrap()
        originals = self._add_isolated_files(
            masked, {name: host.state for name, host in now.items()}
        )
        base, desired = base.with_secrets(originals), masked.with_secrets(originals)
        return {name: compute_host_changes(name, base, desired, now[name], masked)
                for name in self.stack.hosts}  # fmt: skip

    def _back_up(self, desired: DesiredState) -> None:
        def save(host: RuntimeHost) -> None:
            state = desired.hosts[host.name]
            host.back_up(
                state,
                desired.created_files(host.name),
                desired.build_checks(host.name, state.files),
            )

        self.hosts.run_on_hosts(self.stack.hosts, save).unwrap()

    def _observe(self, desired: DesiredState) -> dict[str, ObservedHost]:
        return self.hosts.run_on_hosts(
            self.stack.hosts, lambda host: host.observe(desired.hosts[host.name])
        ).unwrap()

    def _plan_hosts(
        self, desired: DesiredState, observed: Mapping[str, ObservedHost]
    ) -> dict[str, HostPlan]:
        """As in `preview_changes`: where settings in place are known, only changed parameters need
        actions."""
        base = self._in_place.desired if self._in_place else self._baseline_state()

        def plan(name: str) -> HostPlan:
            before = (base.settings if self._in_place
                      else find_current_settings(name, base, observed[name]))  # fmt: skip
            required = required_actions(desired, name, before)
            return plan_host(desired.hosts[name], observed[name], required)

        return {name: plan(name) for name in self.stack.hosts}

    def _baseline_state(self) -> DesiredState:
        base = self.build_desired_state(self.space.complete_unrepaired({}).settings)
        return base.with_secrets(self._original_states(base))

    def _original_states(self, desired: DesiredState) -> dict[str, HostState]:
        """The hosts as they were before the first change, with the files that services have inside."""
        return self._add_isolated_files(
            desired, {n: self.hosts[n].original_state for n in desired.hosts}
        )

    def _add_isolated_files(
        self, desired: DesiredState, originals: Mapping[str, HostState]
    ) -> dict[str, HostState]:
        """Hosts with the own files of services that are isolated, which are read once."""
        if not self.runtime.layout.isolated:
            return dict(originals)
        if self._inside is None:
            self._inside = self.hosts.run_on_hosts(
                desired.hosts,
                lambda host: self.runtime.read_isolated_files(
                    host.transport, desired.instances_on(host.name)
                ),
            ).unwrap()
        return {
            name: replace(state, files={
                **{path: FileState(content) for path, content in self._inside[name].items()},
                **{path: file for path, file in state.files.items() if file.content is not None},
            })
            for name, state in originals.items()
        }  # fmt: skip

    def _validate(self, desired: DesiredState, plans: Mapping[str, HostPlan]) -> None:
        def stage(host: RuntimeHost) -> None:
            plan = plans[host.name]
            host.stage(
                desired.hosts[host.name], plan, desired.build_checks(host.name, plan.files_to_write)
            )

        changing = _list_changing_hosts(plans)
        try:
            self.hosts.run_on_hosts(changing, stage).unwrap()
        except AutotuneError as error:
            self.hosts.run_on_hosts(changing, lambda host: host.discard_staged(plans[host.name]))
            if isinstance(error, InvalidConfiguration):
                raise DeployFailed(error.message) from error
            raise

    def _apply(self, desired: DesiredState, plans: Mapping[str, HostPlan]) -> None:
        self.hosts.run_on_hosts(
            _list_changing_hosts(plans),
            lambda host: host.apply(desired.hosts[host.name], plans[host.name]),
        ).unwrap()

    def _load_data(self, desired: DesiredState, plans: Mapping[str, HostPlan]) -> bool:
        """Whether all caches that are empty were filled."""
        if not self._loads_data:
            return False
        # In the first deployment every part counts. A store that needs no action may still be empty, as
        # an exported role loads no data.
        begin = [part for part in desired.instances if self._in_place is None
                 or desired.layout.unit_for(part) in plans[part.placement.host].unit_actions]  # fmt: skip
        for part in begin:
            # A study does not write data into a store whose own files are edited.
            if part.placement.role is Role.STORE and part.placement.adopted is None:
                transport = self.hosts[part.placement.host].transport
                dataset.load_dataset(part, self.target.data, transport, self._progress)
        caches = [part for part in begin if part.placement.role is Role.CACHE]
        stores = [part for part in desired.instances if part.placement.role is Role.STORE]
        if not caches or not stores or self._expect is None:
            return False
        store = stores[0]
        self._hot = self._hot or dataset.read_cached_pairs(
            store, self.target.data, self.hosts[store.placement.host].transport
        )
        filled = [dataset.prefill_cache(part, self._hot, self.hosts[part.placement.host].transport)
                  for part in caches]  # fmt: skip
        return all(filled)

    def _await_answer(self) -> None:
        with wait_notices.wait("the stack", "a right answer", self.ready_seconds):
            wrong = readiness.wait_until_ready(
                self.request, self._expect, self.ready_seconds, self._statuses
            )
        if wrong:
            lines = [f"the stack does not answer right: {wrong}"]
            complaints = self.hosts.run_on_hosts(
                self.stack.hosts, lambda host: host.find_failures()
            )
            raise StackNotReady(
                "\n".join([*lines, *(s for c in complaints.results.values() for s in c)])
            )

    def _roll_back(self, plans: Mapping[str, HostPlan], error: AutotuneError) -> None:
        """Every host back to the last good state; without one, to the original."""
        good = self._in_place

        def back(host: RuntimeHost) -> None:
            state = good.desired.hosts[host.name] if good else host.original_state
            observed, refused = host.observe(state), list[str]()
            if good is None:
                state, refused = host.select_restorable(state, observed)
            stopped = dict.fromkeys(plans[host.name].units_to_stop, Action.RESTART)
            _revert_host(host, state, observed, {**plans[host.name].unit_actions, **stopped})
            if wrong := list_differences(replace(state, sysctls={}), host.observe(state)):
                refused += [f"{host.name} is not as before: {', '.join(wrong)}"]
            if refused:
                raise AutotuneError("; ".join(refused))

        failed = self.hosts.run_on_hosts(_list_changing_hosts(plans), back).errors
        if failed:
            messages = "; ".join(failure.message for failure in failed.values())
            raise AutotuneError(
                f"{error.message}\nand not every host could be restored: {messages}",
                hint=f"`autotune restore {self._study}` once that is mended",
            ) from error
        if good:
            self._in_place = None  # its processes are new: not in place until the stack answers
            self._await_answer_after(plans, good.desired)
            self._in_place = replace(good, unit_processes={})

    def _await_answer_after(self, plans: Mapping[str, HostPlan], desired: DesiredState) -> None:
        """As `_await_answer`; if units only reloaded and that was not enough, they are restarted."""
        reloaded = {
            name: plan
            for name, plan in plans.items()
            if Action.RELOAD in plan.unit_actions.values()
        }
        try:
            self._await_answer()
        except StackNotReady:
            if not reloaded:
                raise

            def restart(host: RuntimeHost) -> None:
                state, units = desired.hosts[host.name], reloaded[host.name].unit_actions
                restarts = dict.fromkeys(units, Action.RESTART)
                _revert_host(host, state, host.observe(state), restarts)

            self.hosts.run_on_hosts(reloaded, restart).unwrap()
            self._await_answer()

    def verify(self) -> None:
        """Check that what was deployed last has run ever since; raises as `Fleet.verify` says."""
        self.check_load_hosts()
        good = self._in_place
        assert good is not None

        def still(host: RuntimeHost) -> ObservedHost:
            host.assert_locked()
            return host.observe(good.desired.hosts[host.name])

        now = find_unit_processes(self.hosts.run_on_hosts(self.stack.hosts, still).unwrap())
        again = [
            f"{host}: {unit}"
            for host, units in now.items()
            for unit, process in units.items()
            if process != good.unit_processes[host][unit]
        ]
        if again:
            raise DeployFailed(f"ended, or was started again, under load: {', '.join(again)}")

    # -- before and after -----------------------------------------------------------------------

    def lock_hosts(self) -> None:
        """Get every host ready for changes; raises LockedError while another tuner has one."""
        self.hosts.lock()

    @property
    def deployed_settings(self) -> Settings:
        """The settings that were deployed last; none before the first deployment."""
        return self._in_place.desired.settings if self._in_place else {}

    def keep_deployed(self) -> None:
        """What is deployed now stays when hosts are released; `autotune restore` still undoes it."""
        assert self.outlives_tuner
        assert self._in_place is not None
        states = self._in_place.desired.hosts
        self.hosts.run_on_hosts(states, lambda host: host.persist_state(states[host.name])).unwrap()
        self._keeping = True

    def restore(self) -> None:
        """Restore every host, and release it.

        Raises AutotuneError naming the hosts that could not be restored, when all others are.
        """
        self.hosts.unlock(restored=not self._keeping)

    def _is_unchanged(self, observed: Mapping[str, ObservedHost]) -> bool:
        return self._in_place is not None and self._in_place.unit_processes == find_unit_processes(
            observed
        )

    def _build_noop_result(self, desired: DesiredState) -> DeployResult:
        assert self._in_place is not None
        self._await_answer()
        before = self._in_place.deployed
        nothing = dict.fromkeys(before.actions, Action.NONE)
        hosts = self._build_host_records(desired)
        return replace(before, files=desired.files, actions=nothing, hosts=hosts)

    def _build_host_records(self, desired: DesiredState) -> dict[str, HostRecord]:
        """Private servers have none: no other tool could set them up."""
        if not self.runtime.installed:
            return {}
        originals = {host: self.hosts[host].original_state for host in desired.hosts}
        return build_host_records(desired, originals, self._is_known_baseline())

    def _is_known_baseline(self) -> DesiredState | None:
        """The baseline, unless it has words of files that this study has not backed up."""
        try:
            return self._baseline_state()
        except AutotuneError:
            return None


def _revert_host(
    host: RuntimeHost, state: HostState, observed: ObservedHost, actions: Mapping[str, Action]
) -> None:
    """Make a host as before, with the actions that changed it: a reload where that was enough.

    Units that refuse to reload are restarted.
    """
    plan = plan_host(state, observed, {}, actions)
    host.stage(state, plan)
    try:
        host.apply(state, plan)
    except ApplyFailed:
        if Action.RELOAD not in plan.unit_actions.values():
            raise
        plan = plan_host(state, host.observe(state), {}, dict.fromkeys(actions, Action.RESTART))
        host.stage(state, plan)
        host.apply(state, plan)


def _list_changing_hosts(plans: Mapping[str, HostPlan]) -> list[str]:
    """The hosts that have anything to do."""
    return [name for name, plan in plans.items() if plan]


# -- whether units stay up, and the values in effect, from the software itself ----------------------


def confirm_state(
    hosts: LockedHosts,
    desired: DesiredState,
    plans: Mapping[str, HostPlan],
    space: SearchSpace,
    *,
    is_first: bool,
    observed_before: Mapping[str, ObservedHost],
    records: Mapping[str, HostRecord],
) -> ConfirmedState:
    """The deployment as read back from every host; ``observed_before`` is how hosts were when it began.

    Raises NotUp where a unit has ended since.
    """
    answers = hosts.run_on_hosts(desired.hosts, lambda host: read_back_host(desired, host)).unwrap()
    observed = {name: observed for name, (observed, _) in answers.items()}
    for name in desired.hosts:
        check_units_run(hosts[name], desired, observed_before[name], observed[name])
        check_files_unchanged(name, desired, observed[name])
    effective = merge_tier_values(desired.settings, [values for _, values in answers.values()])
    changed = {
        name: {*plan.files_to_write, *plan.files_to_remove, *plan.sysctls}
        for name, plan in plans.items()
    }
    deployed = DeployResult(
        desired.files,
        instance_actions(
            desired,
            {name: plan.unit_actions for name, plan in plans.items()},
            changed,
            is_first=is_first,
        ),
        effective,
        find_mismatches(desired.settings, effective, space.active_parameters(desired.settings)),
        records,
    )
    return ConfirmedState(desired, deployed, find_unit_processes(observed))


def find_unit_processes(observed: Mapping[str, ObservedHost]) -> UnitProcesses:
    """What tells each unit's process from a later one: its id, and how often the unit was restarted."""
    return {host_name: {name: (unit.pid, unit.restarts) for name, unit in host.units.items()}
            for host_name, host in observed.items()}  # fmt: skip


def read_back_host(
    desired: DesiredState, host: RuntimeHost
) -> tuple[ObservedHost, dict[str, Value]]:
    """A host as it is, and full parameter name → value in effect there."""
    readbacks = [(part, readback) for part in desired.instances_on(host.name)
                 for readback in part.service.list_readbacks(part.placement)]  # fmt: skip
    questions = [(part, readback.argv) for part, readback in readbacks]
    observed, answers = host.observe_and_query(desired.hosts[host.name], questions)
    values: dict[str, Value] = {}
    for (part, readback), printed in zip(readbacks, answers, strict=True):
        values |= {
            f"{part.parameter_prefix}.{name}": v for name, v in readback.parse(printed).items()
        }
    return observed, values


def merge_tier_values(requested: Settings, by_host: Iterable[Settings]) -> dict[str, Value]:
    """One value for all hosts of a tier; where hosts differ, one that is not the value asked for."""
    effective: dict[str, Value] = {}
    for values in by_host:
        for name, value in values.items():
            if effective.get(name, requested.get(name)) == requested.get(name):
                effective[name] = value
    return effective


def check_units_run(
    host: RuntimeHost, desired: DesiredState, observed_before: ObservedHost, observed: ObservedHost
) -> None:
    """Raise NotUp for a unit that does not run, or that listened for a moment, ended, and was started
    again."""
    for unit, runs in desired.hosts[host.name].units.items():
        now = observed.units[unit]
        again = now.restarting or now.restarts > observed_before.units[unit].restarts
        if runs and (again or not now.active):
            ended = [f"{host.name}: {unit} ended and was started again by itself"] if again else []
            lines = [*ended, *host.find_failures()]
            raise StackNotReady("; ".join(lines) or f"{host.name}: {unit} does not run")


def check_files_unchanged(host: str, desired: DesiredState, observed: ObservedHost) -> None:
    """Raise NotUp for a file that others changed after it was validated and written."""
    changed = [path for path, file in desired.hosts[host].files.items()
               if not observed.files[path].matches(file)]  # fmt: skip
    if changed:
        raise StackNotReady(f"{host}: others changed {', '.join(changed)} during the deployment")


def find_mismatches(
    requested: Settings, effective: Settings, active: frozenset[str]
) -> tuple[SettingMismatch, ...]:
    """Where the two disagree, among the parameters that matter under ``requested``."""
    return tuple(
        SettingMismatch(name, requested[name], value)
        for name, value in sorted(effective.items())
        if name in requested and name in active and not _is_same_value(requested[name], value)
    )


def _is_same_value(requested: Value, effective: Value) -> bool:
    if isinstance(requested, str) or isinstance(effective, str):
        return str(requested) == str(effective)
    # Servers print fractions with two digits.
    return abs(float(requested) - float(effective)) < 0.006
