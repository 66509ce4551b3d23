"""What the programs of this machine accept: presets before a run, choices they were not built with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.deploy.runtime import Invalid
from autotune.deploy.stack import Part, Stack
from autotune.environments.base import Checked, size
from autotune.environments.processes_stack import lay_out
from autotune.environments.templates import rendered
from autotune.runtimes.processes import validate
from autotune.services.base import Settings, Value
from autotune.space.dimension import NAMED, PRESETS, Dimension
from autotune.space.space import Space

if TYPE_CHECKING:
    from autotune.environments.processes import EmbeddedBed


def checked(bed: EmbeddedBed) -> Checked:
    """Render each preset and let the software judge it, in a directory thrown away after."""
    with _thrown_away("autotune-check-") as directory:
        laid = lay_out(bed, directory)
        for settings in _presets(bed.space):
            for part in laid.active(settings):
                _judge(bed, part, settings)
    programs = ", ".join(sorted({Path(p).name for p in bed.programs.values()}))
    endpoints = (str(p.site.listen) for p in laid.parts if p.service.programs)
    listening = ", ".join(dict.fromkeys(endpoints))
    return Checked(
        held=(
            size(bed.file, bed.space),
            f"programs: {programs}",
            f"ports: {listening}",
            f"{', '.join(NAMED)}: rendered and accepted by the software itself",
        ),
        left_out=bed.dropped,
        not_checked=(
            "whether the stack answers and what it carries: `autotune measure` does",
            "how much load the generator can make on this machine: `--headroom` does",
        ),
    )


def as_built(bed: EmbeddedBed) -> EmbeddedBed:
    """Without the choices that the programs of this machine were built without."""
    space, dropped = bed.space, []
    with _thrown_away("autotune-choices-") as directory:
        laid = lay_out(bed, directory)
        for dimension in bed.space.tunable:
            refused = _refused(bed, laid, dimension)
            for choice in refused:
                space = space.without(dimension.name, choice)
            if refused:
                names, said = ", ".join(map(str, refused)), next(iter(refused.values()))
                dropped.append(f"{dimension.name}: not built with {names} ({said})")
    return replace(bed, space=space, dropped=(*space.dropped, *dropped))


def refusal(bed: EmbeddedBed, laid: Stack, name: str, value: Value) -> str | None:
    """What the service says against one value on top of the baseline; ``None`` if nothing.

    Whether the service is the one that the baseline chooses does not matter.
    """
    settings = bed.space.candidate({name: value}).settings
    for part in laid.parts:
        if name.startswith(f"{part.site.tier}.{part.service.name}."):
            try:
                _judge(bed, part, settings)
            except Invalid as error:
                return error.message.splitlines()[0]
    return None


def _refused(bed: EmbeddedBed, laid: Stack, dimension: Dimension) -> dict[Value, str]:
    """The choices that the program refuses, each with its words."""
    tried = dimension.choices if dimension.parameter.built_in else ()
    answers = {choice: refusal(bed, laid, dimension.name, choice) for choice in tried}
    return {c: said for c, said in answers.items() if said and c != dimension.baseline}


def _presets(space: Space) -> Iterator[Settings]:
    """Baseline, recommended and published settings of every deployment."""
    for deployment in space.deployments:
        yield space.candidate(deployment).settings
        for kind in PRESETS:
            yield space.candidate(space.preset(kind, deployment)).settings


def _judge(bed: EmbeddedBed, part: Part, settings: Settings) -> None:
    """Let the software itself judge its files. Raises Invalid."""
    validate(part, rendered(bed.file, part, settings), bed.transport)


@contextmanager
def _thrown_away(prefix: str) -> Iterator[str]:
    """A directory that servers which drop their privileges can reach too."""
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        Path(directory).chmod(0o755)
        yield directory
