"""One transaction over all hosts of a stack, whichever runtime its services have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy import dataset, ready
from autotune.deploy.changes import HostChanges, host_changes, present, settings_before
from autotune.deploy.deployed import (
    Deployed,
    DeployFailed,
    Difference,
    Fleet,
    HostRecord,
    host_records,
)
from autotune.deploy.desired_state import (
    DesiredState,
    desired_state,
    part_actions,
    plan_host,
    render,
    required_actions,
)
from autotune.deploy.host_state import FileState, HostPlan, HostState, ObservedHost, unlike
from autotune.deploy.runtime import ApplyFailed, HeldHosts, Invalid, Runtime, RuntimeHost
from autotune.deploy.stack import Part, Stack
from autotune.errors import AutotuneError, RenderError
from autotune.masking import without
from autotune.services.base import Action, Role, Settings, Value
from autotune.space.space import Space
from autotune.target.expect import ANY_2XX
from autotune.target.model import Target
from autotune.transports import waiting

READY_SECONDS = 15.0
Pids = Mapping[str, Mapping[str, tuple[int, int]]]


class NotUp(AutotuneError):
    """Everything was started, but the stack does not answer right."""


@dataclass(frozen=True)
class ConfirmedState:
    """The last good deployment, and how the units looked when it was found good."""

    desired: DesiredState
    deployed: Deployed
    pids: Pids


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
        space: Space,
        stack: Stack,
        runtime: Runtime,
        hosts: HeldHosts,
        study: str,
        *,
        request: Callable[[], tuple[int, bytes] | str],
        expect: bytes | None,
        statuses: frozenset[int] = ANY_2XX,
        loads_data: bool,
        overrides: Path | None = None,
        progress: dataset.Progress = dataset.unheard,
    ) -> None:
        self.target, self.space, self.stack = target, space, stack
        self.runtime, self.hosts, self.request = runtime, hosts, request
        self.ready_seconds = READY_SECONDS
        self.keeps = runtime.installed
        self.check_load_hosts: Callable[[], None] = lambda: None
        self._study, self._expect, self._loads_data = study, expect, loads_data
        self._statuses = statuses
        self._overrides, self._progress = overrides, progress
        self._hot: Mapping[str, str] = {}
        self._in_place: ConfirmedState | None = None
        self._keeping = False
        self._inside: Mapping[str, Mapping[str, bytes]] | None = None

    # -- the transaction ------------------------------------------------------------------------

    def deploy(self, settings: Settings) -> Deployed:
        """Make ``settings`` take effect on every host, or leave every host as it was.

        Raises DeployFailed where the configuration is the cause, AutotuneError where a host is.
        """
        desired = self.desired(settings)
        self._back_up(desired)
        originals = self._originals(desired)
        try:
            return self._deploy(desired.with_secrets(originals))
        except AutotuneError as error:
            # The software's own words may be those of the files that it refuses.
            error.message = without(error.message, desired.withheld(originals))
            raise

    def _deploy(self, desired: DesiredState) -> Deployed:
        """Deploy what has the hosts' own words in it. Raises as `deploy` does."""
        observed = self._observe(desired)
        plans = self._plan(desired, observed)
        if not any(plans.values()) and self._unchanged(observed):
            return self._nothing_done(desired)
        self._validate(desired, plans)
        try:
            self._apply(desired, plans)
            prefilled = self._load_data(desired, plans)
            self._await_answer()
            first = self._in_place is None
            in_place = confirmed(
                self.hosts,
                desired,
                plans,
                self.space,
                first=first,
                before=observed,
                records=self._records(desired),
            )
        except (ApplyFailed, NotUp) as error:
            self._roll_back(plans, error)
            raise DeployFailed(error.message) from error
        except AutotuneError as error:
            self._roll_back(plans, error)
            raise
        self._in_place = in_place
        return replace(in_place.deployed, prefilled=prefilled)

    def desired(self, settings: Settings) -> DesiredState:
        """Every host's state under ``settings``; no host is asked or changed. Raises DeployFailed."""

        def files(part: Part) -> dict[str, bytes]:
            data = self.target.data
            return render(part.service, part.site, settings, data, self._overrides)

        try:
            return desired_state(settings, self.stack, files, self.runtime.layout)
        except RenderError as error:
            raise DeployFailed(error.message) from error

    def changes(self, settings: Settings) -> dict[str, HostChanges]:
        """What ``settings`` would change on each host as it is now; changes nothing, needs no lock."""
        base, masked = self.desired(self.space.as_given({}).settings), self.desired(settings)
        states = {name: (base.hosts[name], masked.hosts[name]) for name in self.stack.hosts}
        now = self.hosts.gather(states, lambda host: present(host, states[host.name])).unwrap()
        originals = self._with_inside(masked, {name: host.state for name, host in now.items()})
        base, desired = base.with_secrets(originals), masked.with_secrets(originals)
        return {name: host_changes(name, base, desired, now[name], masked)
                for name in self.stack.hosts}  # fmt: skip

    def _back_up(self, desired: DesiredState) -> None:
        def save(host: RuntimeHost) -> None:
            state = desired.hosts[host.name]
            host.save(state, desired.leaves(host.name), desired.checks(host.name, state.files))

        self.hosts.gather(self.stack.hosts, save).unwrap()

    def _observe(self, desired: DesiredState) -> dict[str, ObservedHost]:
        return self.hosts.gather(
            self.stack.hosts, lambda host: host.observe(desired.hosts[host.name])
        ).unwrap()

    def _plan(
        self, desired: DesiredState, observed: Mapping[str, ObservedHost]
    ) -> dict[str, HostPlan]:
        """As in `changes`: where settings in place are known, only changed parameters need actions."""
        base = self._in_place.desired if self._in_place else self._baseline()

        def plan(name: str) -> HostPlan:
            before = (base.settings if self._in_place
                      else settings_before(name, base, observed[name]))  # fmt: skip
            required = required_actions(desired, name, before)
            return plan_host(desired.hosts[name], observed[name], required)

        return {name: plan(name) for name in self.stack.hosts}

    def _baseline(self) -> DesiredState:
        base = self.desired(self.space.as_given({}).settings)
        return base.with_secrets(self._originals(base))

    def _originals(self, desired: DesiredState) -> dict[str, HostState]:
        """The hosts as they were before the first change, with the files that services have inside."""
        return self._with_inside(desired, {n: self.hosts[n].original for n in desired.hosts})

    def _with_inside(
        self, desired: DesiredState, originals: Mapping[str, HostState]
    ) -> dict[str, HostState]:
        """Hosts with the own files of services that are isolated, which are read once."""
        if not self.runtime.layout.isolated:
            return dict(originals)
        if self._inside is None:
            self._inside = self.hosts.gather(
                desired.hosts,
                lambda host: self.runtime.contents(host.transport, desired.parts_on(host.name)),
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
            host.stage(desired.hosts[host.name], plan, desired.checks(host.name, plan.write))

        changing = _changing(plans)
        try:
            self.hosts.gather(changing, stage).unwrap()
        except AutotuneError as error:
            self.hosts.gather(changing, lambda host: host.discard(plans[host.name]))
            if isinstance(error, Invalid):
                raise DeployFailed(error.message) from error
            raise

    def _apply(self, desired: DesiredState, plans: Mapping[str, HostPlan]) -> None:
        self.hosts.gather(
            _changing(plans), lambda host: host.apply(desired.hosts[host.name], plans[host.name])
        ).unwrap()

    def _load_data(self, desired: DesiredState, plans: Mapping[str, HostPlan]) -> bool:
        """Whether all caches that are empty were filled."""
        if not self._loads_data:
            return False
        # In the first deployment every part counts. A store that needs no action may still be empty, as
        # an exported role loads no data.
        begin = [part for part in desired.parts if self._in_place is None
                 or desired.layout.unit(part) in plans[part.site.host].act]  # fmt: skip
        for part in begin:
            # A study does not write data into a store whose own files are edited.
            if part.site.role is Role.STORE and part.site.own is None:
                transport = self.hosts[part.site.host].transport
                dataset.load(part, self.target.data, transport, self._progress)
        caches = [part for part in begin if part.site.role is Role.CACHE]
        stores = [part for part in desired.parts if part.site.role is Role.STORE]
        if not caches or not stores or self._expect is None:
            return False
        store = stores[0]
        self._hot = self._hot or dataset.pairs(
            store, self.target.data, self.hosts[store.site.host].transport
        )
        filled = [dataset.prefill(part, self._hot, self.hosts[part.site.host].transport)
                  for part in caches]  # fmt: skip
        return all(filled)

    def _await_answer(self) -> None:
        with waiting.wait("the stack", "a right answer", self.ready_seconds):
            wrong = ready.until(self.request, self._expect, self.ready_seconds, self._statuses)
        if wrong:
            lines = [f"the stack does not answer right: {wrong}"]
            complaints = self.hosts.gather(self.stack.hosts, lambda host: host.complaints())
            raise NotUp("\n".join([*lines, *(s for c in complaints.results.values() for s in c)]))

    def _roll_back(self, plans: Mapping[str, HostPlan], error: AutotuneError) -> None:
        """Every host back to the last good state; without one, to the original."""
        good = self._in_place

        def back(host: RuntimeHost) -> None:
            state = good.desired.hosts[host.name] if good else host.original
            observed, refused = host.observe(state), list[str]()
            if good is None:
                state, refused = host.accepted(state, observed)
            stopped = dict.fromkeys(plans[host.name].stop, Action.RESTART)
            _revert(host, state, observed, {**plans[host.name].act, **stopped})
            if wrong := unlike(replace(state, sysctls={}), host.observe(state)):
                refused += [f"{host.name} is not as before: {', '.join(wrong)}"]
            if refused:
                raise AutotuneError("; ".join(refused))

        failed = self.hosts.gather(_changing(plans), back).errors
        if failed:
            messages = "; ".join(failure.message for failure in failed.values())
            raise AutotuneError(
                f"{error.message}\nand not every host could be restored: {messages}",
                hint=f"`autotune restore {self._study}` once that is mended",
            ) from error
        if good:
            self._in_place = None  # its processes are new: not in place until the stack answers
            self._await_answer_after(plans, good.desired)
            self._in_place = replace(good, pids={})

    def _await_answer_after(self, plans: Mapping[str, HostPlan], desired: DesiredState) -> None:
        """As `_await_answer`; if units only reloaded and that was not enough, they are restarted."""
        reloaded = {
            name: plan for name, plan in plans.items() if Action.RELOAD in plan.act.values()
        }
        try:
            self._await_answer()
        except NotUp:
            if not reloaded:
                raise

            def restart(host: RuntimeHost) -> None:
                state, units = desired.hosts[host.name], reloaded[host.name].act
                restarts = dict.fromkeys(units, Action.RESTART)
                _revert(host, state, host.observe(state), restarts)

            self.hosts.gather(reloaded, restart).unwrap()
            self._await_answer()

    def verify(self) -> None:
        """Check that what was deployed last has run ever since; raises as `Fleet.verify` says."""
        self.check_load_hosts()
        good = self._in_place
        assert good is not None

        def still(host: RuntimeHost) -> ObservedHost:
            host.check_held()
            return host.observe(good.desired.hosts[host.name])

        now = pids(self.hosts.gather(self.stack.hosts, still).unwrap())
        again = [f"{host}: {unit}" for host, units in now.items()
                 for unit, process in units.items() if process != good.pids[host][unit]]  # fmt: skip
        if again:
            raise DeployFailed(f"ended, or was started again, under load: {', '.join(again)}")

    # -- before and after -----------------------------------------------------------------------

    def open(self) -> None:
        """Get every host ready for changes; raises LockedError while another tuner has one."""
        self.hosts.take()

    @property
    def in_place(self) -> Settings:
        """The settings that were deployed last; none before the first deployment."""
        return self._in_place.desired.settings if self._in_place else {}

    def keep(self) -> None:
        """What is deployed now stays when hosts are released; `autotune restore` still undoes it."""
        assert self.keeps
        assert self._in_place is not None
        states = self._in_place.desired.hosts
        self.hosts.gather(states, lambda host: host.persist(states[host.name])).unwrap()
        self._keeping = True

    def restore(self) -> None:
        """Restore every host, and release it.

        Raises AutotuneError naming the hosts that could not be restored, when all others are.
        """
        self.hosts.release(restored=not self._keeping)

    def _unchanged(self, observed: Mapping[str, ObservedHost]) -> bool:
        return self._in_place is not None and self._in_place.pids == pids(observed)

    def _nothing_done(self, desired: DesiredState) -> Deployed:
        assert self._in_place is not None
        self._await_answer()
        before = self._in_place.deployed
        nothing = dict.fromkeys(before.actions, Action.NONE)
        hosts = self._records(desired)
        return replace(before, files=desired.files, actions=nothing, hosts=hosts)

    def _records(self, desired: DesiredState) -> dict[str, HostRecord]:
        """Private servers have none: no other tool could set them up."""
        if not self.runtime.installed:
            return {}
        originals = {host: self.hosts[host].original for host in desired.hosts}
        return host_records(desired, originals, self._known_baseline())

    def _known_baseline(self) -> DesiredState | None:
        """The baseline, unless it has words of files that this study has not backed up."""
        try:
            return self._baseline()
        except AutotuneError:
            return None


def _revert(
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
        if Action.RELOAD not in plan.act.values():
            raise
        plan = plan_host(state, host.observe(state), {}, dict.fromkeys(actions, Action.RESTART))
        host.stage(state, plan)
        host.apply(state, plan)


def _changing(plans: Mapping[str, HostPlan]) -> list[str]:
    """The hosts that have anything to do."""
    return [name for name, plan in plans.items() if plan]


# -- whether units stay up, and the values in effect, from the software itself ----------------------


def confirmed(
    hosts: HeldHosts,
    desired: DesiredState,
    plans: Mapping[str, HostPlan],
    space: Space,
    *,
    first: bool,
    before: Mapping[str, ObservedHost],
    records: Mapping[str, HostRecord],
) -> ConfirmedState:
    """The deployment as read back from every host; ``before`` is how hosts were when it began.

    Raises NotUp where a unit has ended since.
    """
    answers = hosts.gather(desired.hosts, lambda host: read_back(desired, host)).unwrap()
    observed = {name: observed for name, (observed, _) in answers.items()}
    for name in desired.hosts:
        check_units_run(hosts[name], desired, before[name], observed[name])
        check_files_are(name, desired, observed[name])
    effective = of_tiers(desired.settings, [values for _, values in answers.values()])
    changed = {name: {*plan.write, *plan.remove, *plan.sysctls} for name, plan in plans.items()}
    deployed = Deployed(
        desired.files,
        part_actions(
            desired, {name: plan.act for name, plan in plans.items()}, changed, first=first
        ),
        effective,
        differences(desired.settings, effective, space.active(desired.settings)),
        records,
    )
    return ConfirmedState(desired, deployed, pids(observed))


def pids(observed: Mapping[str, ObservedHost]) -> Pids:
    """What tells each unit's process from a later one: its id, and how often the unit was restarted."""
    return {host_name: {name: (unit.pid, unit.restarts) for name, unit in host.units.items()}
            for host_name, host in observed.items()}  # fmt: skip


def read_back(desired: DesiredState, host: RuntimeHost) -> tuple[ObservedHost, dict[str, Value]]:
    """A host as it is, and full parameter name → value in effect there."""
    readbacks = [(part, readback) for part in desired.parts_on(host.name)
                 for readback in part.service.effective(part.site)]  # fmt: skip
    questions = [(part, readback.argv) for part, readback in readbacks]
    observed, answers = host.observe_and_ask(desired.hosts[host.name], questions)
    values: dict[str, Value] = {}
    for (part, readback), printed in zip(readbacks, answers, strict=True):
        values |= {f"{part.owner}.{name}": v for name, v in readback.parse(printed).items()}
    return observed, values


def of_tiers(asked: Settings, by_host: Iterable[Settings]) -> dict[str, Value]:
    """One value for all hosts of a tier; where hosts differ, one that is not the value asked for."""
    effective: dict[str, Value] = {}
    for values in by_host:
        for name, value in values.items():
            if effective.get(name, asked.get(name)) == asked.get(name):
                effective[name] = value
    return effective


def check_units_run(
    host: RuntimeHost, desired: DesiredState, before: ObservedHost, observed: ObservedHost
) -> None:
    """Raise NotUp for a unit that does not run, or that listened for a moment, ended, and was started
    again."""
    for unit, runs in desired.hosts[host.name].units.items():
        now = observed.units[unit]
        again = now.restarting or now.restarts > before.units[unit].restarts
        if runs and (again or not now.active):
            ended = [f"{host.name}: {unit} ended and was started again by itself"] if again else []
            lines = [*ended, *host.complaints()]
            raise NotUp("; ".join(lines) or f"{host.name}: {unit} does not run")


def check_files_are(host: str, desired: DesiredState, observed: ObservedHost) -> None:
    """Raise NotUp for a file that others changed after it was validated and written."""
    changed = [path for path, file in desired.hosts[host].files.items()
               if not observed.files[path].is_as(file)]  # fmt: skip
    if changed:
        raise NotUp(f"{host}: others changed {', '.join(changed)} during the deployment")


def differences(
    asked: Settings, effective: Settings, active: frozenset[str]
) -> tuple[Difference, ...]:
    """Where the two disagree, among the parameters that matter under ``asked``."""
    return tuple(
        Difference(name, asked[name], value)
        for name, value in sorted(effective.items())
        if name in asked and name in active and not _same(asked[name], value)
    )


def _same(asked: Value, effective: Value) -> bool:
    if isinstance(asked, str) or isinstance(effective, str):
        return str(asked) == str(effective)
    # Servers print fractions with two digits.
    return abs(float(asked) - float(effective)) < 0.006
