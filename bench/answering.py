"""A benchmark command that measures a stack with a known optimum, and a target for this command.

    python -m bench.answering FAMILY NAME SEED < question

The command reads one question of the `command:` protocol and prints a noisy measurement, as a user's
simulator would. FAMILY and NAME select the stack, as in `python -m bench search`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.services.base import Settings
from autotune.space.dimension import Dimension
from bench.stacks import Stack, random_stack, web_stack
from bench.variants import VARIANTS

CALLS = (
    "calls"  # name of a file with a line per call; the number of lines selects the noise of a call
)
REPOSITORY = Path(__file__).parents[1]


def stack_of(family: str, name: str) -> Stack:
    """Return the stack ``name`` of a family of benchmark stacks."""
    if family == "web":
        return web_stack(name)
    if family == "random":
        return random_stack(int(name))
    variant = VARIANTS[name]
    return Stack(name, variant.space, lambda s: variant.true_peak(s) or None, frozenset())


def answer(stack: Stack, told: Settings, seed: int, call: int) -> dict[str, Any]:
    """Return the command's answer to question ``told``. Missing parameters have their baseline values."""
    known = {d.name: d for d in stack.space.dimensions}
    settings = {**stack.space.baseline, **{n: known[n].clip(v) for n, v in told.items()}}
    peak = stack.measure(settings, np.random.default_rng((seed, call, 9)))
    return {"infeasible": "it does not start"} if peak is None else {"value": peak}


def target(directory: Path, family: str, name: str, seed: int, trials: int, *, warm: bool) -> Path:
    """Write a target that measures a stack with this module, and return the path of the target.

    The target is written as JSON, which is valid YAML.
    """
    space = stack_of(family, name).space
    advised = [space.preset_settings("recommended", way) for way in space.deployments]
    changes = [{n: v for n, v in a.items() if v != space.baseline[n]} for a in advised]
    found = {
        "name": f"{family}-{name}",
        "command": ["./answer", family, name, str(seed)],
        "maximize": "peak",
        "parameters": {d.name: _declared(d) for d in space.dimensions},
        "search": {"seed": seed},
        "try": [c for c in changes if c] if warm else [],
        "budget": {"trials": trials, "time": "10h"},
    }
    script = directory / "answer"
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m bench.answering "$@"\n'
    )
    script.chmod(0o755)
    path = directory / "target.yaml"
    path.write_text(json.dumps(found, indent=1))
    return path


def _declared(dimension: Dimension) -> dict[str, Any]:
    bounds: dict[str, Any] = (
        {"choices": list(dimension.choices)}
        if dimension.choices
        else {
            "range": [dimension.low, dimension.high],
            "log": dimension.is_logarithmic and bool(dimension.low),
        }
    )
    when = {name: list(values) for name, values in dimension.conditions}
    return {**bounds, "default": dimension.baseline, **({"when": when} if when else {})}


def main(arguments: Sequence[str]) -> None:
    family, name, seed = arguments
    question = json.load(sys.stdin)
    calls = Path(CALLS)
    with calls.open("a") as lines:
        lines.write(f"{question['trial']}\n")
    call = calls.stat().st_size
    stack = stack_of(family, name)
    print(json.dumps(answer(stack, question["parameters"], int(seed), call)))


if __name__ == "__main__":
    main(sys.argv[1:])
