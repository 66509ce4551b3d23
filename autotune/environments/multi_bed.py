"""A target on several test beds, which run the same stack on different hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.environments import preparation
from autotune.environments.base import CheckResult, Environment, Preview, Session
from autotune.environments.evaluation import MeasurementHistory
from autotune.errors import AutotuneError
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.target.beds import find_bed_directory
from autotune.target.read_target import TargetFile

MAX_PARALLEL_BEDS = 16
# Beds count as equal if their numbers, such as memory sizes and bounds, differ by at most this fraction.
RELATIVE_TOLERANCE = 0.02


@dataclass(frozen=True)
class MultiBedEnvironment:
    """The environments of several test beds, used as a single environment: see `base.Environment`.

    A study measures on all beds concurrently. Operations that need only one session use the first
    bed. ``differences`` contains one line for each difference between the beds.
    """

    file: TargetFile
    environments: Mapping[str, Environment]
    differences: tuple[str, ...] = ()

    @property
    def first_environment(self) -> Environment:
        return next(iter(self.environments.values()))

    @property
    def space(self) -> SearchSpace:
        return self.first_environment.space

    @property
    def facts(self) -> Mapping[str, HostFacts]:
        return self.first_environment.facts

    @property
    def excluded(self) -> tuple[str, ...]:
        return (*self.first_environment.excluded, *self.differences)

    def describe_load(self, *, study: bool = True) -> str:
        lines = dict.fromkeys(
            environment.describe_load(study=study) for environment in self.environments.values()
        )
        return "\n".join([f"Test beds, used concurrently: {', '.join(self.environments)}.", *lines])

    def read_software(self) -> Mapping[str, Mapping[str, str]]:
        return self.first_environment.read_software()

    def check(self) -> CheckResult:
        results = {name: bed.check() for name, bed in self.environments.items()}
        equality_text = (
            "test beds are equal"
            if not self.differences
            else "test beds have the same search space"
        )
        return CheckResult(
            held=(
                *(
                    f"bed {name}: {line}"
                    for name, bed_result in results.items()
                    for line in bed_result.held
                ),
                f"{equality_text}: {', '.join(results)}",
            ),
            left_out=self.excluded,
            not_checked=tuple(dict.fromkeys(x for r in results.values() for x in r.not_checked)),
        )

    def measure_headroom(self) -> str:
        return "; ".join(
            f"bed {name}: {e.measure_headroom()}" for name, e in self.environments.items()
        )

    def build_preview(self) -> Preview:
        return self.first_environment.build_preview()

    def open_session(
        self, directory: Path, note: Callable[[str], None], history: MeasurementHistory
    ) -> AbstractContextManager[Session]:
        bed_name = next(iter(self.environments))
        return self.first_environment.open_session(
            find_bed_directory(directory, bed_name), note, history
        )


def prepare(
    file: TargetFile, bed_names: Sequence[str], adopted: Mapping[str, Any] | None = None
) -> MultiBedEnvironment:
    """Inspect the hosts of the named test beds without changing anything, and return their environment.
    ``adopted`` contains the recorded files by test bed.

    Raises an AutotuneError that lists every difference in allowed values or baselines. Also raises the
    errors of `preparation.prepare`.
    """

    def prepare_bed(bed_name: str) -> Environment:
        bed_file = file.for_bed(bed_name)
        return preparation.prepare(
            replace(bed_file, adopted=adopted[bed_name]) if adopted else bed_file
        )

    with ThreadPoolExecutor(MAX_PARALLEL_BEDS) as thread_pool:
        environments = dict(zip(bed_names, thread_pool.map(prepare_bed, bed_names), strict=True))
    (first_bed, first_environment), *other_beds = environments.items()
    reference_limits = collect_parameter_limits(first_environment.space)
    difference_lines = [
        line
        for name, other_environment in other_beds
        for line in list_limit_differences(
            f"bed {first_bed}",
            reference_limits,
            f"bed {name}",
            collect_parameter_limits(other_environment.space),
        )
    ]
    if difference_lines:
        raise AutotuneError(
            "the test beds differ and cannot share a study:\n"
            + "\n".join(f"  {line}" for line in difference_lines),
            hint="make their hosts equal, or exclude a bed with `--beds`",
        )
    traits = {name: _read_host_traits(environment) for name, environment in environments.items()}
    trait_differences = [
        line
        for name, _ in other_beds
        for line in _list_trait_differences(first_bed, traits[first_bed], name, traits[name])
    ]
    return MultiBedEnvironment(file, environments, tuple(trait_differences))


def collect_parameter_limits(space: SearchSpace) -> dict[str, dict[str, Any]]:
    """Return the baseline and allowed values of each parameter as JSON values."""
    return {
        d.name: {
            "baseline": d.baseline,
            "lowest": d.low,
            "highest": d.high,
            "choices": list(d.choices),
        }
        for d in space.dimensions
    }


def list_limit_differences(
    first_bed: str, first_limits: Mapping[str, Any], other_bed: str, other_limits: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a line for each difference between two results of ``collect_parameter_limits`` that
    prevents a shared study.
    """
    for parameter in (*first_limits, *(p for p in other_limits if p not in first_limits)):
        if parameter not in other_limits or parameter not in first_limits:
            bed_with_parameter, bed_without_parameter = (
                (first_bed, other_bed) if parameter in first_limits else (other_bed, first_bed)
            )
            yield f"{parameter}: exists on {bed_with_parameter}, but not on {bed_without_parameter}"
            continue
        for limit_name, first_limit in first_limits[parameter].items():
            other_limit = other_limits[parameter][limit_name]
            if not _are_similar(first_limit, other_limit):
                limits_text = f"{first_limit} on {first_bed}, {other_limit} on {other_bed}"
                yield f"{parameter}: {limit_name} {limits_text}"


def _are_similar(first_value: Any, other_value: Any) -> bool:
    if isinstance(first_value, float | int) and isinstance(other_value, float | int):
        return abs(first_value - other_value) <= RELATIVE_TOLERANCE * max(
            abs(first_value), abs(other_value)
        )
    return bool(first_value == other_value)


def _read_host_traits(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the resources, kernel settings and software of each host, for comparisons of beds."""
    software = environment.read_software()
    return {
        host: {
            "CPUs": facts.cpus,
            "memory": facts.memory,
            "descriptors": facts.nofile,
            **facts.kernel_values,
            **software.get(host, {}),
        }
        for host, facts in environment.facts.items()
    }


def _list_trait_differences(
    first_bed: str,
    first_bed_traits: Mapping[str, Mapping[str, Any]],
    other_bed: str,
    other_bed_traits: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    for host, first_traits in first_bed_traits.items():
        other_traits = other_bed_traits[host]
        for trait in (*first_traits, *(w for w in other_traits if w not in first_traits)):
            first_value, other_value = first_traits.get(trait), other_traits.get(trait)
            if not _are_similar(first_value, other_value):
                values_text = f"{first_value} on {first_bed}, {other_value} on {other_bed}"
                yield f"beds differ: {trait} of {host} is {values_text}"
