"""What can be said about a target without changing anything: it is read, rendered and validated."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from autotune.deploy import ports
from autotune.deploy.render import render
from autotune.deploy.stack import Stack
from autotune.deploy.validate import validate
from autotune.loads.headroom import calibrate
from autotune.loads.registry import LOADS
from autotune.run.session import Prepared, lay_out, overrides
from autotune.services.base import Settings

PRESETS = ("baseline", "recommended", "published")


@dataclass(frozen=True)
class Checked:
    """What held, and what cannot be known before a run."""

    held: tuple[str, ...]
    left_out: tuple[str, ...]
    not_checked: tuple[str, ...]


def check(prepared: Prepared) -> Checked:
    """Render each preset and let the software judge it, in a directory that is thrown away.

    Raises AutotuneError or TargetError with the first thing that does not hold.
    """
    target, space = prepared.file.target, prepared.space
    with tempfile.TemporaryDirectory(prefix="autotune-check-") as directory:
        Path(directory).chmod(0o755)
        laid = lay_out(prepared, directory)
        for preset in PRESETS:
            settings = space.baseline if preset == "baseline" else space.preset(preset)
            _validate(prepared, laid, space.candidate(settings).settings, Path(directory))
    programs = ", ".join(sorted({Path(p).name for p in prepared.programs.values()}))
    return Checked(
        held=(
            (
                f"{prepared.file.path}: {len(target.tiers)} tiers, {len(space.dimensions)} "
                f"parameters, {len(space.tunable)} of them tunable, {len(space.constraints)} rules"
            ),
            f"programs: {programs}",
            f"ports: {', '.join(str(p.site.listen) for p in laid.parts if p.service.programs)}",
            f"{', '.join(PRESETS)}: rendered and accepted by the software itself",
        ),
        left_out=prepared.dropped,
        not_checked=(
            "whether the stack answers and what it carries: `autotune measure` does",
            "how much load the generator can make on this machine: `--headroom` does",
        ),
    )


def headroom(prepared: Prepared) -> str:
    """What the generator can do here, against a private server that does nothing, in words."""
    load = LOADS[prepared.file.target.load.generator]
    port = next(iter(ports.allocate(prepared.file).values()))
    found = calibrate(load, prepared.transport, nginx=prepared.programs["nginx"], port=port)
    wanted = prepared.file.target.load.max_rate
    short = found.shortage(wanted)
    return short or f"{load.name} makes at least {min(found.rate, wanted):g} requests/s here"


def _validate(prepared: Prepared, laid: Stack, settings: Settings, directory: Path) -> None:
    for part in laid.parts:
        files = render(
            part.service, part.site, settings, prepared.file.target.data, overrides(prepared.file)
        )
        validate(part, files, directory / "staging", prepared.transport)
