"""The software's own judgement of a configuration, before anything running is touched."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from autotune.deploy import processes
from autotune.deploy.stack import Part
from autotune.errors import AutotuneError
from autotune.services.base import TrialStart, config_files
from autotune.transports.base import Transport

Files = Mapping[str, bytes]


class Invalid(AutotuneError):
    """The software refuses the configuration; the message is its own."""


def write(files: Files, modes: Mapping[str, int], directory: Path) -> None:
    """Put files below ``directory``, each complete or not at all."""
    for path, content in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = target.with_name(f".{target.name}.new")
        staged.write_bytes(content)
        staged.chmod(modes[path])
        staged.replace(target)


def validate(part: Part, files: Files, staging: Path, transport: Transport) -> None:
    """Let the software read ``files`` in a directory aside. Raises Invalid with what it says."""
    modes = {file.path: file.mode for file in config_files(part.service, part.site)}
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        write(files, modes, staging)
        how = part.service.validate(part.site, files)
        if isinstance(how, TrialStart):
            _start_aside(part, how, staging)
        elif how is not None:
            done = transport.run(how, cwd=str(staging), timeout=20.0)
            if not done.ok:
                raise Invalid(f"{part.name}: {done.said}")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _start_aside(part: Part, trial: TrialStart, staging: Path) -> None:
    if part.site.user:
        shutil.chown(staging, part.site.user, part.site.group)
    running = processes.start(part.service.name, trial.argv, staging)
    try:
        processes.wait_until(
            lambda: processes.is_up(running, trial.socket), running, 10.0, "starting on trial"
        )
    except processes.ProcessFailed as error:
        raise Invalid(f"{part.name}: {error.message}") from error
    finally:
        processes.stop(running)
