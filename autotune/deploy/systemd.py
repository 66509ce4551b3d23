"""The distribution's own services on hosts reached over SSH: one transaction over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from autotune.deploy import dataset, ready
from autotune.deploy.batch import CommandFailed
from autotune.deploy.fleet import Deployed, DeployFailed, Fleet
from autotune.deploy.handover import handover
from autotune.deploy.host import FleetHost
from autotune.deploy.host_state import HostSeen
from autotune.deploy.hosts import Hosts
from autotune.deploy.in_effect import InPlace, NotUp, confirmed, pids
from autotune.deploy.render import RenderError, render
from autotune.deploy.stack import Part, Stack
from autotune.deploy.staged import checks
from autotune.deploy.steps import Steps, decide
from autotune.deploy.validate import Invalid
from autotune.deploy.wanted import Wanted, needs, want
from autotune.errors import AutotuneError
from autotune.services.base import Action, Role, Settings
from autotune.space.space import Space
from autotune.target.model import Target
from autotune.transports.base import Transport

READY_SECONDS = 15.0


def unsaid(text: str) -> None:
    """News that nobody follows."""


class SystemdFleet(Fleet):
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
            found = confirmed(self._hosts, wanted, steps, self.space)
        except (CommandFailed, NotUp) as error:
            self._roll_back(steps, error)
            raise DeployFailed(error.message) from error
        except AutotuneError as error:
            self._roll_back(steps, error)
            raise
        self._in_place = found
        return found.deployed

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
            host.stage(wanted.hosts[host.name], mine, checks(wanted, host.name, mine))

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
                dataset.load(part, self.target.data, host.transport, self._progress)

    def _await_answer(self) -> None:
        wrong = ready.until(self._request, self._expect, self.ready_seconds)
        if wrong:
            said = [f"the stack does not answer right: {wrong}"]
            for words in self._hosts.gather(
                self.stack.hosts, FleetHost.complaints
            ).results.values():
                said += words
            raise NotUp("\n".join(said))

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
        return self._in_place is not None and self._in_place.pids == pids(seen)

    def _nothing_done(self, wanted: Wanted) -> Deployed:
        assert self._in_place is not None
        self._await_answer()
        known = self._in_place.deployed
        nothing = dict.fromkeys(known.actions, Action.NONE)
        return replace(known, files=wanted.files, actions=nothing, hosts=handover(wanted))


def _changing(steps: Mapping[str, Steps]) -> list[str]:
    """The hosts that have anything to do."""
    return [name for name, todo in steps.items() if todo]
