"""Regret of autotune, SMAC3 and OpenTuner after the same number of trials with a benchmark command.

    python -m bench peers [--seeds 20] [--trials 30] [--interpreter PYTHON] [--tuners ours,smac3,…]

All tuners call the same command, ``bench.answering``, and start with the current and the recommended
configurations. The budget is a number of configurations. autotune may call the command a few more
times to prove its result, so the calls of each tuner are printed. The option ``--interpreter`` or
``BENCH_PEERS`` selects a Python interpreter with SMAC3 and OpenTuner (``python -m venv V && V/bin/pip
install .[peers]``). Without an interpreter, their rows are omitted. Regrets are printed in percent, as
median and 90th percentile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.services.base import Settings
from bench.answering import CALLS, REPOSITORY, stack_of, target
from bench.stacks import best

STACKS = (("web", "cached"), ("random", "5"), ("model", "wide"), ("model", "poor-cache"))
OURS, PEERS = "ours", ("smac3", "opentuner")
FIRST_SEED = 3000


def chosen(
    tuner: str, declared: Mapping[str, Any], place: Path, interpreter: str | None
) -> Settings:
    """Run a tuner and return the settings that it selects.

    Raises ``CalledProcessError`` if the tuner fails.
    """
    if tuner == OURS:
        argv = [sys.executable, "-m", "autotune", "run", "target.yaml", "--yes", "--json"]
        found = json.loads(_ran(argv, place, ""))
        return dict((found["best"] or found["baseline"])["parameters"])
    problem = {
        "parameters": declared["parameters"],
        "command": declared["command"],
        "directory": str(place),
        "first": [{}, *declared["try"]],
        "calls": declared["budget"]["trials"],
        "seed": declared["search"]["seed"],
    }
    assert interpreter is not None
    said = _ran([interpreter, "-m", "bench.peer", tuner], place, json.dumps(problem))
    return dict(json.loads(said.splitlines()[-1]))


def _ran(argv: Sequence[str], place: Path, told: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        argv, cwd=place, env=environment, input=told, text=True, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ).stdout  # fmt: skip


def tried(
    tuner: str, case: tuple[str, str], seed: int, trials: int, interpreter: str | None
) -> tuple[float, int]:
    """Return the regret of a tuner in percent, and the number of its calls of the command."""
    stack = stack_of(*case)
    with tempfile.TemporaryDirectory(prefix="autotune-bench-") as directory:
        place = Path(directory)
        path = target(place, *case, seed, trials, warm=True)
        settings = chosen(tuner, json.loads(path.read_text()), place, interpreter)
        calls = len((place / CALLS).read_text().splitlines())
    reached = stack.peak({**stack.space.baseline, **settings}) or 0.0
    return 100 * (1 - reached / best(stack)[0]), calls


def main(arguments: Sequence[str] = ()) -> None:
    """Print a row for each tuner and stack."""
    parser = argparse.ArgumentParser(description="Regret against trials through `command:`.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--interpreter", default=os.environ.get("BENCH_PEERS"))
    parser.add_argument("--tuners", default=",".join((OURS, *PEERS)))
    options = parser.parse_args(arguments)
    tuners = options.tuners.split(",")
    if options.interpreter is None and set(tuners) & set(PEERS):
        print("SMAC3 and OpenTuner are left out: no interpreter that has them was named")
        tuners = [tuner for tuner in tuners if tuner not in PEERS]
    print(f"{'tuner':10} {'stack':16} {'@' + str(options.trials):>12} {'calls':>6}")
    for tuner in tuners:
        for case in STACKS:
            found = [
                tried(tuner, case, seed, options.trials, options.interpreter)
                for seed in range(FIRST_SEED, FIRST_SEED + options.seeds)
            ]
            regrets = [regret for regret, _ in found]
            cell = f"{np.median(regrets):5.1f}/{np.quantile(regrets, 0.9):5.1f}"
            calls = np.mean([count for _, count in found])
            print(f"{tuner:10} {'-'.join(case):16} {cell:>12} {calls:6.1f}", flush=True)
