"""The embedded runtime: the whole stack as private processes under the study's run directory."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.deploy import dataset, processes, ready
from autotune.deploy.effective import differences, read_back
from autotune.deploy.fleet import Deployed, DeployFailed, Fleet
from autotune.deploy.ground import remove_run_directory
from autotune.deploy.processes import ProcessFailed, Running
from autotune.deploy.render import RenderError, render
from autotune.deploy.stack import Part, Stack
from autotune.deploy.validate import Invalid, validate, write
from autotune.services.base import Action, Role, Settings, config_files
from autotune.space.space import Space
from autotune.target.model import Target
from autotune.transports.base import Transport

READY_SECONDS = 15.0
Rendered = Mapping[str, Mapping[str, bytes]]


class EmbeddedFleet(Fleet):
    """One stack of private processes; ``expect`` is the body a right answer has."""

    def __init__(
        self,
        target: Target,
        space: Space,
        stack: Stack,
        study: Path,
        transport: Transport,
        *,
        expect: bytes | None,
        overrides: Path | None = None,
        progress: dataset.Progress = dataset.unheard,
    ) -> None:
        self.target, self.space, self.stack = target, space, stack
        self._study, self._transport = study, transport
        self._expect, self._overrides, self._progress = expect, overrides, progress
        self.ready_seconds = READY_SECONDS
        self._running: dict[str, Running] = {}
        self._in_place: Settings | None = None
        self._files: dict[str, Mapping[str, bytes]] = {}  # what is on disk, part by part

    def deploy(self, settings: Settings) -> Deployed:
        """Render, validate all that changed, then apply, check readiness and read back.

        Servers of a deployment that ``settings`` do not choose are ended before those that take
        their place start. On any failure the last good settings are put back before DeployFailed is
        raised.
        """
        good = dict(self._files)
        active = self.stack.active(settings)
        try:
            rendered = self._render(active, settings)
            self._validate(active, rendered)
            actions = self._apply(settings, rendered)
        except (RenderError, Invalid) as error:
            raise DeployFailed(error.message) from error
        except ProcessFailed as error:
            self._roll_back(good)
            raise DeployFailed(error.message) from error
        self._in_place = dict(settings)
        effective = read_back(active, self._transport)
        differing = differences(settings, effective, self.space.active(settings))
        flat = {f"{part}/{path}": content for part, files in rendered.items()
                for path, content in files.items()}  # fmt: skip
        return Deployed(flat, actions, effective, differing)

    @property
    def in_place(self) -> Settings:
        """The settings that were deployed last; none before the first deployment."""
        return self._in_place or {}

    def restore(self) -> None:
        """Stop everything, in reverse order, and take the run directory away."""
        self._stop_all()
        remove_run_directory(self._study)

    def _render(self, parts: Sequence[Part], settings: Settings) -> Rendered:
        return {
            part.name: render(part.service, part.site, settings, self.target.data, self._overrides)
            for part in parts
        }

    def _validate(self, parts: Sequence[Part], rendered: Rendered) -> None:
        for part in parts:
            if rendered[part.name] != self._files.get(part.name):
                directory = Path(part.site.directory)
                staging = directory.with_name(f".staging.{directory.name}")
                validate(part, rendered[part.name], staging, self._transport)

    def _apply(self, settings: Settings, rendered: Rendered) -> dict[str, Action]:
        active = self.stack.active(settings)
        self._end_all_but(active)
        actions = {part.name: self._action(part, settings, rendered) for part in active}
        for part in active:
            if actions[part.name] is not Action.NONE:
                self._write(part, rendered[part.name])
                self._act(part, actions[part.name], rendered[part.name])
        wrong = ready.wait(
            self.stack.entry, self.target.load.path, self._expect, self.ready_seconds
        )
        if wrong:
            raise ProcessFailed(f"the stack does not answer right: {wrong}")
        return actions

    def _action(self, part: Part, settings: Settings, rendered: Rendered) -> Action:
        """The least that makes the new files take effect."""
        if rendered[part.name] == self._files.get(part.name) and self._is_up(part):
            return Action.NONE
        if self._in_place is None or not self._is_up(part):
            return Action.RESTART
        prefix = f"{part.site.tier}.{part.service.name}."
        changed = [
            parameter.action
            for parameter in part.service.parameters
            if self._in_place.get(prefix + parameter.name) != settings.get(prefix + parameter.name)
        ]
        return max(changed, default=Action.RELOAD)

    def _is_up(self, part: Part) -> bool:
        running = self._running.get(part.name)
        return part.service.socket(part.site) is None or (running is not None and running.alive)

    def _write(self, part: Part, files: Mapping[str, bytes]) -> None:
        directory = Path(part.site.directory)
        if not directory.exists():
            directory.mkdir(mode=0o755)
            if part.site.user:
                shutil.chown(directory, part.site.user, part.site.group)
        self._files[part.name] = files
        write(files, {f.path: f.mode for f in config_files(part.service, part.site)}, directory)

    def _act(self, part: Part, action: Action, files: Mapping[str, bytes]) -> None:
        argv = part.service.start(part.site, files)
        place = part.service.socket(part.site)
        if argv is None or place is None:
            return
        running = self._running.get(part.name)
        directory = Path(part.site.directory)
        if action is Action.RELOAD and running and part.service.reload_signal:
            processes.reload(running, part.service.reload_signal)
        else:
            if running:
                processes.stop(running)
            running = processes.start(part.service.name, argv, directory)
            self._running[part.name] = running
        processes.wait_until(
            lambda: processes.is_up(running, place), running, READY_SECONDS, "starting"
        )
        if part.site.role is Role.STORE:
            dataset.load(part, self.target.data, self._transport, self._progress)

    def _roll_back(self, good: Rendered) -> None:
        """Put the last good files back; what they replace is restarted, whatever it was doing."""
        settings, self._in_place = self._in_place, None
        if settings is None:
            self._stop_all()
        else:
            self._apply(settings, good)
            self._in_place = settings

    def _end_all_but(self, active: Sequence[Part]) -> None:
        """End what another deployment ran, and take its files away."""
        kept = {part.name for part in active}
        for part in reversed(self.stack.parts):
            if part.name not in kept:
                self._stop(part)
                for path in self._files.pop(part.name, {}):
                    Path(part.site.directory, path).unlink(missing_ok=True)

    def _stop_all(self) -> None:
        for part in reversed(self.stack.parts):
            self._stop(part)

    def _stop(self, part: Part) -> None:
        if running := self._running.pop(part.name, None):
            processes.stop(running)
