"""Select and prepare the environment of a target."""

from __future__ import annotations

from importlib import import_module

from autotune.environments import name_checks
from autotune.environments.base import Environment
from autotune.target.model import Target
from autotune.target.read_target import TargetFile


def select_environment_module(target: Target) -> str:
    """Return the name of the module for a target's environment: ``command``, ``simulated`` or
    ``stack``.
    """
    if target.command is not None:
        return "command"
    return "stack" if target.simulated is None else "simulated"


def prepare(file: TargetFile) -> Environment:
    """Inspect the hosts without changing anything, and return the environment with its search space.

    Raises TargetError if the target does not fit its hosts, or AutotuneError if programs are
    missing.
    """
    name_checks.check_names(file)
    runtimes = {tier_name: tier.runtime for tier_name, tier in file.target.tiers.items()}
    for tier_name, runtime in runtimes.items():
        if file.target.simulated is None and runtime != next(iter(runtimes.values())):
            raise file.document.build_error(
                ["tiers", tier_name],
                f"tier {tier_name}: all tiers of a target must have the same `runtime:`",
                hint=f"write `runtime: {runtime}` in all tiers, or use a separate target",
            )
    # Import lazily, because commands and models do not need the libraries that stacks load slowly.
    environment: Environment = import_module(
        f"{__package__}.{select_environment_module(file.target)}"
    ).prepare(file)
    return environment
