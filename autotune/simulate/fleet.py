"""Deploying to the model: files are rendered as ever, and no host is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from autotune.deploy.deployed import Deployed, DeployFailed, Fleet
from autotune.deploy.desired_state import desired_state
from autotune.deploy.host_manifests import host_manifests
from autotune.deploy.stack import Part, Stack
from autotune.services.base import Action, Settings
from autotune.simulate.stack import SimulatedStack

# Virtual seconds that an action takes: a reload, a restart until the tier answers again.
TAKES = {Action.NONE: 0.0, Action.RELOAD: 1.0, Action.RESTART: 3.0}


class SimulatedFleet(Fleet):
    """``render(settings, part)`` gives the files of one part of ``laid`` by their paths."""

    def __init__(
        self,
        stack: SimulatedStack,
        laid: Stack,
        render: Callable[[Settings, Part], Mapping[str, bytes]],
    ) -> None:
        self._stack, self._laid, self._render = stack, laid, render
        self._in_place: Settings | None = None

    def deploy(self, settings: Settings) -> Deployed:
        """Raises DeployFailed for what the software would refuse; what was in place stays so."""
        desired = desired_state(settings, self._laid, partial(self._render, settings))
        refused = self._stack.deploy(settings)
        if refused is not None:
            raise DeployFailed(refused)
        actions = {part.name: self._action(part, settings) for part in desired.parts}
        self._stack.now += max(TAKES[action] for action in actions.values())
        self._in_place = dict(settings)
        return Deployed(desired.files, actions, dict(settings), hosts=host_manifests(desired))

    def restore(self) -> None:
        """Nothing was touched."""

    def _action(self, part: Part, settings: Settings) -> Action:
        if self._in_place is None or part not in self._laid.active(self._in_place):
            return Action.RESTART
        prefix = f"{part.site.tier}.{part.service.name}."
        changed = [
            parameter.action
            for parameter in part.service.parameters
            if self._in_place.get(prefix + parameter.name) != settings.get(prefix + parameter.name)
        ]
        return max(changed, default=Action.NONE)
