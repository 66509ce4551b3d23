"""Test beds: copies of a target's stack that one study measures concurrently."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import UsageError
from autotune.target.messages import suggest_name
from autotune.target.model import Host, Simulated, Target

BED_PLACEHOLDER = "{bed}"
ALL_BEDS = "all"
# Directory in a study with one subdirectory per bed, which contains the backups of the bed's hosts.
BEDS_DIRECTORY = "beds"
# Difference between the model seeds of adjacent beds that set no seed.
SEED_STEP = 1000


def select_beds(target: Target, bed_list: str) -> tuple[str, ...]:
    """Return the beds that `--beds` lists: `all`, or names separated by commas. Raises UsageError."""
    if not target.beds:
        raise UsageError(
            f"target {target.name} has no beds",
            hint="declare copies of the stack: `beds: {a: {hosts: {web1: {address: …}}}, b: …}`",
        )
    if bed_list == ALL_BEDS:
        return tuple(target.beds)
    beds = tuple(dict.fromkeys(name.strip() for name in bed_list.split(",")))
    for name in beds:
        if name not in target.beds:
            raise UsageError(
                f"target {target.name} has no bed {name!r}", hint=suggest_name(name, target.beds)
            )
    return beds


def build_bed_target(target: Target, bed_name: str) -> Target:
    """Return the target with the hosts or the model of a bed."""
    bed = target.beds[bed_name]
    bed_hosts = {
        host: _fill_bed_name(host_model, bed_name)
        for host, host_model in {**target.hosts, **bed.hosts}.items()
    }
    load = target.load
    addresses = {
        address_key: address.replace(BED_PLACEHOLDER, bed_name)
        for address_key in ("vip", "host")
        if (address := getattr(load, address_key, None))
    }
    return target.model_copy(
        update={
            "hosts": bed_hosts,
            "load": load.model_copy(update=addresses),
            "simulated": _build_bed_model(target, bed_name),
            "beds": {},
        }
    )


def needs_bed(target: Target) -> bool:
    """True if the address of any host contains the placeholder for a bed's name."""
    return any(BED_PLACEHOLDER in host.address for host in target.hosts.values())


def find_bed_directory(study: Path, bed: str) -> Path:
    """Return the directory in a study for the files of one bed's hosts."""
    return study / BEDS_DIRECTORY / bed


def find_study_directory(directory: Path) -> Path:
    """Return the study's directory. ``directory`` is either this directory, or its subdirectory
    `beds/NAME`.
    """
    return directory.parents[1] if directory.parent.name == BEDS_DIRECTORY else directory


def _fill_bed_name(host: Host, bed: str) -> Host:
    return host.model_copy(update={"address": host.address.replace(BED_PLACEHOLDER, bed)})


def _build_bed_model(target: Target, bed_name: str) -> Simulated | None:
    """Return the model of a bed: the bed's own model, or the target's model with another seed."""
    bed_model, target_model = target.beds[bed_name].simulated, target.simulated
    if bed_model is not None or target_model is None:
        return bed_model
    index = list(target.beds).index(bed_name)
    return target_model.model_copy(update={"seed": target_model.seed + SEED_STEP * index})
