"""Test beds understood: alike, different in what does not matter to the space, or not to be shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.environments import multi_bed
from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.environments.simulated import SimulatedEnvironment
from autotune.errors import AutotuneError
from autotune.target.read_target import read_target
from tests.modelled import noisy


def prepared(tmp_path: Path, of_beds: str) -> MultiBedEnvironment:
    path = tmp_path / "modelled.yaml"
    path.write_text(noisy(f"beds:\n{of_beds}"))
    file = read_target(path)
    return multi_bed.prepare(file, tuple(file.target.beds))


def test_alike_ones_share_the_space_of_the_first(tmp_path: Path) -> None:
    environment = prepared(tmp_path, "  a: {}\n  b: {simulated: {capacity: 0.8}}\n")
    first, second = environment.environments.values()
    assert isinstance(first, SimulatedEnvironment)
    assert isinstance(second, SimulatedEnvironment)
    assert environment.space is first.space
    assert (first.noise.level, second.noise.level) == (1.0, 0.8)
    assert environment.differences == ()
    assert "test beds are equal: a, b" in environment.check().held
    assert "Test beds, used concurrently: a, b." in environment.describe_load()


def test_what_allows_other_values_cannot_share_a_study(tmp_path: Path) -> None:
    small = "  a: {}\n  b: {hosts: {web1: {address: 198.18.0.9, cpus: 2, memory: 2GB}}}\n"
    with pytest.raises(AutotuneError) as refused:
        prepared(tmp_path, small)
    assert "web.nginx.worker_processes: highest 16 on bed a, 8 on bed b" in refused.value.message


def test_differences_beside_the_space_are_named(tmp_path: Path) -> None:
    environment = prepared(tmp_path, "  a: {}\n  b: {}\n")
    other = environment.environments["b"]
    assert isinstance(other, SimulatedEnvironment)
    facts = {**other.facts, "mc1": replace(other.facts["mc1"], cpus=3.0, memory=8 * 2**30 + 1)}
    traits = (
        multi_bed._read_host_traits(environment.first_environment),
        multi_bed._read_host_traits(replace(other, facts=facts)),
    )
    lines = list(multi_bed._list_trait_differences("a", traits[0], "b", traits[1]))
    assert lines == ["beds differ: CPUs of mc1 is 2.0 on a, 3.0 on b"]
