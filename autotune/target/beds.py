"""Test beds: copies of a target's stack that one study measures concurrently."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import AutotuneError
from autotune.target.messages import suggest_name
from autotune.target.model import Host, Simulated, Target

BED_PLACEHOLDER = "{bed}"
ALL_BEDS = "all"
BEDS_DIRECTORY = "beds"  # of a study: a directory for each bed, with the originals of its hosts
SEED_STEP = 1000  # between the models of two beds, if the target has one seed for all


def select_beds(target: Target, names: str) -> tuple[str, ...]:
    """The beds that `--beds` names: all of them, or some, with commas between. Raises AutotuneError."""
    if not target.beds:
        raise AutotuneError(
            f"target {target.name} has no beds",
            hint="declare copies of the stack: `beds: {a: {hosts: {web1: {address: …}}}, b: …}`",
        )
    if names == ALL_BEDS:
        return tuple(target.beds)
    beds = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in beds:
        if name not in target.beds:
            raise AutotuneError(f"unknown bed {name!r}", hint=suggest_name(name, target.beds))
    return beds


def build_bed_target(target: Target, name: str) -> Target:
    """The target with the hosts, or the model, of one of its beds."""
    bed = target.beds[name]
    hosts = {
        host: _fill_bed_name(described, name)
        for host, described in {**target.hosts, **bed.hosts}.items()
    }
    load = target.load
    reached = {key: address.replace(BED_PLACEHOLDER, name)
               for key in ("vip", "host") if (address := getattr(load, key, None))}  # fmt: skip
    return target.model_copy(
        update={
            "hosts": hosts,
            "load": load.model_copy(update=reached),
            "simulated": _build_bed_model(target, name),
            "beds": {},
        }
    )


def needs_bed(target: Target) -> bool:
    """True if addresses of its hosts contain the name of a bed."""
    return any(BED_PLACEHOLDER in host.address for host in target.hosts.values())


def bed_directory(study: Path, bed: str) -> Path:
    """Where a study keeps what belongs to the hosts of one bed."""
    return study / BEDS_DIRECTORY / bed


def find_study_directory(directory: Path) -> Path:
    """The study of a directory with originals: the directory itself, or the one above `beds/NAME`."""
    return directory.parents[1] if directory.parent.name == BEDS_DIRECTORY else directory


def _fill_bed_name(host: Host, bed: str) -> Host:
    return host.model_copy(update={"address": host.address.replace(BED_PLACEHOLDER, bed)})


def _build_bed_model(target: Target, name: str) -> Simulated | None:
    """The model of a bed, or the target's model with another seed."""
    own, common = target.beds[name].simulated, target.simulated
    if own is not None or common is None:
        return own
    index = list(target.beds).index(name)
    return common.model_copy(update={"seed": common.seed + SEED_STEP * index})
