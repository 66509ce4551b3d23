"""Where a target's servers lie and listen when they are private processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.deploy import ground, ports, stack
from autotune.deploy.stack import Stack

if TYPE_CHECKING:
    from autotune.environments.processes import EmbeddedBed


def lay_out(bed: EmbeddedBed, directory: str) -> Stack:
    """The stack below ``directory``, on ports that are free now. Raises AutotuneError."""
    owner = ground.account()
    grounds = stack.Grounds(
        directory,
        ports.allocate(bed.file),
        bed.programs,
        bed.facts,
        *(owner or (None, None)),
    )
    return stack.build(bed.file.target, grounds)
