"""The distribution's own services on hosts reached over SSH: one transaction over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.deploy import dataset, ready
from autotune.deploy.batch import CommandFailed
from autotune.deploy.effective import differences
from autotune.deploy.fleet import Deployed, DeployFailed
from autotune.deploy.handover import handover
from autotune.deploy.host import Check, FleetHost
from autotune.deploy.host_state import HostSeen, HostState
from autotune.deploy.hosts import Hosts
from autotune.deploy.render import RenderError, render
from autotune.deploy.stack import Part, Stack
from autotune.deploy.steps import Steps, decide
from autotune.deploy.validate import Invalid
from autotune.deploy.wanted import Wanted, actions, needs, want
from autotune.errors import AutotuneError
from autotune.services.base import Action, Role, Settings, Value
from autotune.space.space import Space
from autotune.target.model import Target
from autotune.transports.base import Transport

READY_SECONDS = 15.0


def unsaid(text: str) -> None:
    """News that nobody follows."""


class NotUp(AutotuneError):
    """Everything was started, and the stack does not answer right."""


@dataclass(frozen=True)
class InPlace:
    """The last good deployment, and how the units looked when it was found good."""

    wanted: Wanted
    deployed: Deployed
    pids: Mapping[str, Mapping[str, tuple[int, int]]]


class SystemdFleet:
    """All hosts of a stack.

    ``request()`` asks the whole stack one thing: status and body, or why there is none. ``expect``
    is the body of a right answer, known of the reference application; without it no data is loaded.
    """

    def __init__(
        self,
        target: Target,
        space: Space,
        stack: Stack,
        study: Path,
        transports: Mapping[str, Transport],
        *,
        request: Callable[[], tuple[int, bytes] | str],
        expect: bytes | None,
        overrides: Path | None = None,
        progress: dataset.Progress = dataset.unheard,
        note: Callable[[str], None] = unsaid,
    ) -> None:
        self.target, self.space, self.stack = target, space, stack
        self._study, self._expect, self._overrides = study, expect, overrides
        self._request, self._progress = request, progress
        self.ready_seconds = READY_SECONDS
        self._hosts = Hosts({name: transports[name] for name in stack.hosts}, study, note)
        self._in_place: InPlace | None = None
        self._keeping = False

    # -- the transaction ------------------------------------------------------------------------

    def deploy(self, settings: Settings) -> Deployed:
        """Make ``settings`` take effect on every host, or leave every host as it was.

        Raises DeployFailed where the configuration is to blame, AutotuneError where a host is.
        """
        wanted = self._wanted(settings)
        self._save_originals(wanted)
        seen = self._look(wanted)
        steps = self._decide(wanted, seen)
        if not any(steps.values()) and self._unchanged(seen):
            return self._nothing_done(wanted)
        self._stage(wanted, steps)
        try:
            self._apply(wanted, steps)
            self._load_data(wanted, steps)
            self._await_answer()
            deployed, now = self._read_back(wanted, steps)
        except (CommandFailed, NotUp) as error:
            self._roll_back(steps, error)
            raise DeployFailed(error.message) from error
        except AutotuneError as error:
            self._roll_back(steps, error)
            raise
        self._in_place = InPlace(wanted, deployed, _pids(now))
        return deployed

    def _wanted(self, settings: Settings) -> Wanted:
        def files(part: Part) -> dict[str, bytes]:
            data = self.target.data
            return render(part.service, part.site, settings, data, self._overrides)

        try:
            return want(settings, self.stack, files)
        except RenderError as error:
            raise DeployFailed(error.message) from error

    def _save_originals(self, wanted: Wanted) -> None:
        self._hosts.everywhere(
            lambda host: host.save(wanted.hosts[host.name], wanted.leaves(host.name))
        )

    def _look(self, wanted: Wanted) -> dict[str, HostSeen]:
        return self._hosts.everywhere(lambda host: host.look(wanted.hosts[host.name]))

    def _decide(self, wanted: Wanted, seen: Mapping[str, HostSeen]) -> dict[str, Steps]:
        before = self._in_place.wanted.settings if self._in_place else None
        return {
            name: decide(wanted.hosts[name], seen[name], needs(wanted, name, before))
            for name in self.stack.hosts
        }

    def _stage(self, wanted: Wanted, steps: Mapping[str, Steps]) -> None:
        def stage(host: FleetHost) -> None:
            mine = steps[host.name]
            host.stage(wanted.hosts[host.name], mine, _checks(wanted, host.name, mine))

        changing = _changing(steps)
        try:
            self._hosts.on(changing, stage)
        except AutotuneError as error:
            self._hosts.gather(changing, lambda host: host.discard(steps[host.name]))
            if isinstance(error, Invalid):
                raise DeployFailed(error.message) from error
            raise

    def _apply(self, wanted: Wanted, steps: Mapping[str, Steps]) -> None:
        def apply(host: FleetHost) -> None:
            places = wanted.places(host.name)
            host.apply(wanted.hosts[host.name], steps[host.name], places)

        self._hosts.on(_changing(steps), apply)

    def _load_data(self, wanted: Wanted, steps: Mapping[str, Steps]) -> None:
        if self._expect is None:
            return
        for part in wanted.parts:
            host, unit = self._hosts[part.site.host], part.service.unit(part.site)
            # One that is found as it ought to be may still be empty: an exported role loads no data.
            begins = self._in_place is None or unit in steps[host.name].act
            if part.site.role is Role.STORE and begins:
                dataset.load(part.site, self.target.data, host.transport, self._progress)

    def _await_answer(self) -> None:
        wrong = ready.until(self._request, self._expect, self.ready_seconds)
        if wrong:
            said = [f"the stack does not answer right: {wrong}"]
            for words in self._hosts.gather(
                self.stack.hosts, FleetHost.complaints
            ).results.values():
                said += words
            raise NotUp("\n".join(said))

    def _read_back(
        self, wanted: Wanted, steps: Mapping[str, Steps]
    ) -> tuple[Deployed, dict[str, HostSeen]]:
        """What is in effect, of everything that is not just as it was before."""
        answers = self._hosts.everywhere(
            lambda host: (host.look(wanted.hosts[host.name]), _effective(wanted, host))
        )
        now = {name: seen for name, (seen, _) in answers.items()}
        for name, state in wanted.hosts.items():
            _still_up(self._hosts[name], state, now[name])
        asked, active = wanted.settings, self.space.active(wanted.settings)
        effective: dict[str, Value] = {}
        for _, found in answers.values():
            for name, value in found.items():
                # Hosts of a tier may differ: the one that is not as asked is worth telling.
                if effective.get(name, asked.get(name)) == asked.get(name):
                    effective[name] = value
        changed = {name: {*s.write, *s.remove, *s.sysctls} for name, s in steps.items()}
        acted = actions(wanted, {name: s.act for name, s in steps.items()}, changed)
        differing = differences(asked, effective, active)
        return Deployed(wanted.files, acted, effective, differing, handover(wanted)), now

    def _roll_back(self, steps: Mapping[str, Steps], error: AutotuneError) -> None:
        """Every host back to the last good state; without one, to how it was found."""
        good = self._in_place

        def back(host: FleetHost) -> None:
            state = good.wanted.hosts[host.name] if good else host.originals.state
            touched = [*steps[host.name].act, *steps[host.name].stop]
            places = good.wanted.places(host.name) if good else {}
            todo = decide(state, host.look(state), {}, touched)
            host.stage(state, todo)
            host.apply(state, todo, places)

        failed = self._hosts.gather(_changing(steps), back).errors
        if failed:
            said = "; ".join(one.message for one in failed.values())
            raise AutotuneError(
                f"{error.message}\nand not every host could be put back: {said}",
                hint=f"`autotune restore {self._study.name}` once that is mended",
            ) from error
        if good:
            self._in_place = None  # its processes are new ones: look again before saying so
            self._await_answer()
            self._in_place = replace(good, pids={})

    # -- before and after -----------------------------------------------------------------------

    def open(self) -> None:
        """Lock every host; raises LockedError while another tuner has one of them."""
        self._hosts.take()

    @property
    def in_place(self) -> Settings:
        """The settings that were deployed last; none before the first deployment."""
        return self._in_place.wanted.settings if self._in_place else {}

    def keep(self) -> None:
        """What is deployed now stays when hosts are unlocked; `autotune restore` still undoes it."""
        self._keeping = True

    def restore(self) -> None:
        """Leave every host as it was found, and unlock it.

        Raises AutotuneError naming the hosts that could not be put back, when all others are.
        """
        self._hosts.give_back(as_found=not self._keeping)

    def _unchanged(self, seen: Mapping[str, HostSeen]) -> bool:
        return self._in_place is not None and self._in_place.pids == _pids(seen)

    def _nothing_done(self, wanted: Wanted) -> Deployed:
        assert self._in_place is not None
        self._await_answer()
        known = self._in_place.deployed
        nothing = dict.fromkeys(known.actions, Action.NONE)
        return replace(known, files=wanted.files, actions=nothing, hosts=handover(wanted))


def _changing(steps: Mapping[str, Steps]) -> list[str]:
    """The hosts that have anything to do."""
    return [name for name, todo in steps.items() if todo]


def _checks(wanted: Wanted, host: str, steps: Steps) -> list[Check]:
    """How the software of a host judges those of its files that are new."""
    checks = []
    for part in wanted.parts_on(host):
        files = wanted.rendered[part.name]
        if new := tuple(path for path in steps.write if path in files):
            how = part.service.validate(part.site, files)
            if how is not None:
                checks.append(Check(part.name, part.site.directory, how, new))
    return checks


def _effective(wanted: Wanted, host: FleetHost) -> dict[str, Value]:
    """Full parameter name → value in effect on this host."""
    readbacks = [(part, readback) for part in wanted.parts_on(host.name)
                 for readback in part.service.effective(part.site)]  # fmt: skip
    answers = host.ask([readback.argv for _, readback in readbacks])
    found: dict[str, Value] = {}
    for (part, readback), done in zip(readbacks, answers, strict=True):
        prefix = f"{part.site.tier}.{part.service.name}."
        found |= {prefix + name: value for name, value in readback.parse(done.stdout).items()}
    return found


def _still_up(host: FleetHost, state: HostState, now: HostSeen) -> None:
    for unit, runs in state.units.items():
        if runs and not now.units[unit].active:
            raise NotUp(f"{host.name}: {'; '.join(host.complaints())}")


def _pids(seen: Mapping[str, HostSeen]) -> dict[str, dict[str, tuple[int, int]]]:
    """What tells the processes of units from later ones."""
    return {name: {unit: (found.pid, found.restarts) for unit, found in host.units.items()}
            for name, host in seen.items()}  # fmt: skip
