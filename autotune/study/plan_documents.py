"""Types of the plan that `autotune plan --json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from autotune.services.base import Value

Settings = Mapping[str, Value]


class VersionedObject(TypedDict):
    schema: Literal[1]


class DeploymentObject(TypedDict):
    services: Settings
    servers: Sequence[str]
    parameters: int
    bindings: Sequence[str]


class BudgetObject(TypedDict):
    trials: int
    seconds: float
    proof_seconds: float
    finalists: int
    most_pairs: int
    max_rate: NotRequired[float]


class HostMemoryObject(TypedDict):
    """Memory of the recommended settings in bytes. ``of_baseline`` is true if the baseline determines
    the ``allowed`` memory.
    """

    host: str
    rule: str
    needed: float
    allowed: float
    memory: float
    of_baseline: bool


class UnitChangeObject(TypedDict):
    """Action on a unit (reload, restart, stop), and its causes: parameters, kernel values or files."""

    action: str
    because: Sequence[str]


class HostChangesObject(TypedDict):
    """Changes of one host. ``diff`` is a unified diff without secrets; ``sysctls`` maps names to old and
    new values.
    """

    diff: str
    files: Sequence[str]
    sysctls: Mapping[str, tuple[str, str]]
    units: Mapping[str, UnitChangeObject]


class Plan(VersionedObject):
    """The plan of a run. ``hosts`` and the keys after it exist only for targets with hosts;
    ``command`` and ``first`` only for a command.
    """

    target: str
    tunable: Sequence[str]
    bindings: Sequence[str]
    diff: str
    budget: BudgetObject
    command: NotRequired[str]
    first: NotRequired[Sequence[Settings]]
    simulated: NotRequired[bool]
    entry: NotRequired[str]
    servers: NotRequired[Sequence[str]]
    host_settings: NotRequired[Sequence[str]]
    installed: NotRequired[bool]
    core: NotRequired[Sequence[str]]
    deployments: NotRequired[Sequence[DeploymentObject]]
    limits: NotRequired[Sequence[str]]
    memory: NotRequired[Sequence[HostMemoryObject]]
    actions: NotRequired[Mapping[str, Sequence[str]]]
    hosts: NotRequired[Mapping[str, HostChangesObject]]
    may_restart: NotRequired[Mapping[str, Sequence[str]]]
    requests: NotRequired[Mapping[str, str]]
    right_answers: NotRequired[str]
