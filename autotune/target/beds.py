"""Test beds: copies of a target's stack that one study measures concurrently."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import AutotuneError
from autotune.target.messages import instead
from autotune.target.model import Host, Simulated, Target

PLACEHOLDER = "{bed}"
ALL = "all"
DIRECTORY = "beds"  # of a study: a directory for each bed, with the originals of its hosts
SEEDS_APART = 1000  # between the models of two beds, if the target has one seed for all


def chosen(target: Target, names: str) -> tuple[str, ...]:
    """The beds that `--beds` names: all of them, or some, with commas between. Raises AutotuneError."""
    if not target.beds:
        raise AutotuneError(
            f"target {target.name} has no beds",
            hint="declare copies of the stack: `beds: {a: {hosts: {web1: {address: …}}}, b: …}`",
        )
    if names == ALL:
        return tuple(target.beds)
    beds = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in beds:
        if name not in target.beds:
            raise AutotuneError(f"unknown bed {name!r}", hint=instead(name, target.beds))
    return beds


def of_bed(target: Target, name: str) -> Target:
    """The target with the hosts, or the model, of one of its beds."""
    bed = target.beds[name]
    hosts = {
        host: _named(described, name) for host, described in {**target.hosts, **bed.hosts}.items()
    }
    load = target.load
    reached = {key: address.replace(PLACEHOLDER, name)
               for key in ("vip", "host") if (address := getattr(load, key, None))}  # fmt: skip
    return target.model_copy(
        update={
            "hosts": hosts,
            "load": load.model_copy(update=reached),
            "simulated": _model(target, name),
            "beds": {},
        }
    )


def needs_bed(target: Target) -> bool:
    """True if addresses of its hosts contain the name of a bed."""
    return any(PLACEHOLDER in host.address for host in target.hosts.values())


def directory_of(study: Path, bed: str) -> Path:
    """Where a study keeps what belongs to the hosts of one bed."""
    return study / DIRECTORY / bed


def study_of(directory: Path) -> Path:
    """The study of a directory with originals: the directory itself, or the one above `beds/NAME`."""
    return directory.parents[1] if directory.parent.name == DIRECTORY else directory


def _named(host: Host, bed: str) -> Host:
    return host.model_copy(update={"address": host.address.replace(PLACEHOLDER, bed)})


def _model(target: Target, name: str) -> Simulated | None:
    """The model of a bed, or the target's model with another seed."""
    own, common = target.beds[name].simulated, target.simulated
    if own is not None or common is None:
        return own
    index = list(target.beds).index(name)
    return common.model_copy(update={"seed": common.seed + SEEDS_APART * index})
