"""Run another tuner in a separate interpreter, without importing anything from autotune.

    PEER_PYTHON -m bench.peer smac3|opentuner < problem

``problem`` is JSON with these keys: ``parameters`` as in a target, ``command`` with its working
``directory``, the ``first`` configurations, the maximum number of ``calls``, and a ``seed``. The
last line of output is the configuration that the tuner selects. SMAC3 also gets the conditions of
parameters.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

Problem = Mapping[str, Any]


def asked(problem: Problem, parameters: Mapping[str, Any], trial: int) -> float:
    """Return the metric that the command prints for ``parameters``, or 0 if the trial fails."""
    question = json.dumps({"schema": 1, "trial": trial, "parameters": dict(parameters)})
    done = subprocess.run(
        problem["command"], cwd=problem["directory"], input=question, text=True, check=True,
        capture_output=True,
    )  # fmt: skip
    return float(json.loads(done.stdout.splitlines()[-1]).get("value", 0.0))


def smac3(problem: Problem) -> dict[str, Any]:
    """Run SMAC3's ``HyperparameterOptimizationFacade``, which uses random forests."""
    from ConfigSpace import (  # type: ignore[import-not-found]
        AndConjunction,
        Categorical,
        Configuration,
        ConfigurationSpace,
        Float,
        InCondition,
        Integer,
    )
    from smac import HyperparameterOptimizationFacade, Scenario  # type: ignore[import-not-found]

    space = ConfigurationSpace(seed=problem["seed"])
    made = {}
    for name, said in problem["parameters"].items():
        if "choices" in said:
            made[name] = Categorical(name, said["choices"], default=said["default"])
            continue
        low, high = said["range"]
        kind = Integer if isinstance(low, int) and isinstance(high, int) else Float
        log = bool(said.get("log")) and low > 0
        made[name] = kind(name, (low, high), log=log, default=said["default"])
    space.add(list(made.values()))
    for name, said in problem["parameters"].items():
        every = [InCondition(made[name], made[p], v) for p, v in said.get("when", {}).items()]
        if every:
            space.add(AndConjunction(*every) if len(every) > 1 else every[0])
    calls = iter(range(problem["calls"] + 1))

    def cost(config: Any, seed: int = 0) -> float:  # noqa: ARG001  # SMAC3 passes it by name
        return -asked(problem, {n: _plain(v) for n, v in dict(config).items()}, next(calls))

    first = [_configuration(Configuration, space, problem, one) for one in problem["first"]]
    with tempfile.TemporaryDirectory() as place:
        scenario = Scenario(space, n_trials=problem["calls"], seed=problem["seed"],
                            output_directory=place)  # fmt: skip
        design = HyperparameterOptimizationFacade.get_initial_design(
            scenario, n_configs=0 if first else 8, additional_configs=first
        )
        facade = HyperparameterOptimizationFacade(
            scenario, cost, initial_design=design, logging_level=False
        )
        found = facade.optimize()
    chosen = found[0] if isinstance(found, list) else found
    return {name: _plain(value) for name, value in dict(chosen).items()}


def _configuration(kind: Any, space: Any, problem: Problem, changes: Mapping[str, Any]) -> Any:
    """Return a complete configuration that contains only active parameters."""
    declared = problem["parameters"]
    values = {name: changes.get(name, said["default"]) for name, said in declared.items()}
    active = {
        name: value
        for name, value in values.items()
        if all(values[p] in v for p, v in declared[name].get("when", {}).items())
    }
    return kind(space, values=active)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def opentuner(problem: Problem) -> dict[str, Any]:
    """Run OpenTuner's ensemble of techniques, which ignores conditions and noise."""
    import argparse

    import opentuner as peer  # type: ignore[import-not-found]
    from opentuner.search import manipulator as kinds  # type: ignore[import-not-found]

    calls = iter(range(10 * problem["calls"]))

    class Interface(peer.MeasurementInterface):  # type: ignore[misc]  # untyped
        best: tuple[float, dict[str, Any]] = (0.0, {})

        def manipulator(self) -> Any:
            made = kinds.ConfigurationManipulator()
            for name, said in problem["parameters"].items():
                if "choices" in said:
                    made.add_parameter(kinds.EnumParameter(name, said["choices"]))
                    continue
                low, high = said["range"]
                whole = isinstance(low, int) and isinstance(high, int)
                log = bool(said.get("log")) and low > 0
                kind = {
                    (True, True): kinds.LogIntegerParameter,
                    (True, False): kinds.IntegerParameter,
                    (False, True): kinds.LogFloatParameter,
                    (False, False): kinds.FloatParameter,
                }[whole, log]
                made.add_parameter(kind(name, low, high))
            return made

        def seed_configurations(self) -> list[dict[str, Any]]:
            stock = {name: said["default"] for name, said in problem["parameters"].items()}
            return [{**stock, **changes} for changes in problem["first"]]

        def run(self, desired: Any, *_: Any) -> Any:
            settings = dict(desired.configuration.data)
            value = asked(problem, settings, next(calls))
            self.best = max(self.best, (value, settings), key=lambda pair: pair[0])
            return peer.Result(time=1.0 / max(value, 1e-9))

    parser = argparse.ArgumentParser(parents=peer.argparsers())
    with tempfile.TemporaryDirectory() as place:
        arguments = parser.parse_args(
            [f"--test-limit={problem['calls']}", "--no-dups", f"--database={place}/peer.db"]
        )
        interface = Interface(arguments)
        peer.tuningrunmain.TuningRunMain(interface, arguments).main()
    return interface.best[1]


PEERS: Mapping[str, Callable[[Problem], dict[str, Any]]] = {"smac3": smac3, "opentuner": opentuner}

if __name__ == "__main__":
    print(json.dumps(PEERS[sys.argv[1]](json.load(sys.stdin))))
