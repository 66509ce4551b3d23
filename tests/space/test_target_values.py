from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target


def space(directory: Path, parameters: str, more: str = "") -> SearchSpace:
    path = directory / "toy.yaml"
    path.write_text(
        f"name: toy\ncommand: [./bench]\nparameters: {{{parameters}}}\n{more}\nmaximize: true\n"
    )
    return build_space(read_target(path), {})


@pytest.mark.parametrize(
    ("parameter", "baseline"),
    [
        ("x: {range: [1, 9]}", 5),
        ("x: {range: [1, 10]}", 6),
        ("x: {range: [1, 10000], log: true}", 100),
        ("x: {range: [0.0, 1]}", 0.5),
        ("x: {range: [1, 9], default: 9}", 9),
        ("x: {range: [-1, 9.0], default: 0}", 0.0),
        ("x: {range: [64MB, 1GB], unit: MB, default: 128MB}", 128),
        ("x: {choices: [fast, slow]}", "fast"),
        ("x: {choices: [false, true], default: true}", True),
        ("x: {choices: [1, 2.5, auto], default: auto}", "auto"),
        ("x: {fixed: 7}", 7),
    ],
)
def test_where_it_starts(tmp_path: Path, parameter: str, baseline: object) -> None:
    found = space(tmp_path, parameter)
    assert found.baseline == {"x": baseline}
    assert type(found.baseline["x"]) is type(baseline)


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    whole, real = space(tmp_path, "x: {range: [1, 9]}, y: {range: [1, 9.5]}").dimensions
    assert whole.is_integer
    assert not real.is_integer
    assert whole.clip(3.7) == 4


def test_conditions_reach_through(tmp_path: Path) -> None:
    found = space(
        tmp_path,
        "a: {choices: [on, off]}, b: {choices: [x, y, z], when: {a: on}}, "
        "c: {range: [1, 9], when: {b: [y, z]}}",
    )
    assert found.active_parameters({"a": "on", "b": "y", "c": 1}) == {"a", "b", "c"}
    assert found.active_parameters({"a": "on", "b": "x", "c": 1}) == {"a", "b"}
    assert found.active_parameters({"a": "off", "b": "y", "c": 1}) == {"a"}


def test_a_condition_on_a_size_is_in_the_unit_of_the_parameter(tmp_path: Path) -> None:
    found = space(
        tmp_path, "a: {range: [1MB, 8MB], unit: MB}, b: {choices: [x, y], when: {a: [2MB, 3]}}"
    )
    for size in (1, 2, 3, 4):
        active_names = {"a", "b"} if size in (2, 3) else {"a"}
        assert found.active_parameters({"a": size, "b": "x"}) == active_names


def test_a_condition_that_parameters_share_is_listed_once(tmp_path: Path) -> None:
    rules = ["p0: {choices: [x, y]}", "p1: {choices: [x, y]}"]
    rules += [
        f"p{n}: {{choices: [x, y], when: {{p{n - 1}: x, p{n - 2}: x}}}}" for n in range(2, 20)
    ]
    found = space(tmp_path, ", ".join(rules))
    assert len(found.dimensions[-1].conditions) == 19


def test_constraints_hold_for_every_candidate(tmp_path: Path) -> None:
    found = space(
        tmp_path,
        "x: {range: [1, 100], default: 2}, y: {range: [1, 100], default: 2}",
        "constraints: [x * y <= 500]",
    )
    settings = found.build_candidate({"x": 100, "y": 90}).settings
    assert float(settings["x"]) * float(settings["y"]) <= 500


def test_a_divisor_is_raised_if_the_dividend_is_a_choice(tmp_path: Path) -> None:
    found = space(
        tmp_path,
        "x: {choices: [2, 8, 32]}, y: {range: [1, 16], default: 4}",
        "constraints: [x / y <= 4]",
    )
    assert found.build_candidate({"x": 32, "y": 1}).settings == {"x": 32, "y": 8}


def test_configurations_to_try_first(tmp_path: Path) -> None:
    found = space(
        tmp_path,
        "x: {range: [64MB, 1GB], unit: MB}, y: {choices: [false, true]}",
        "try: [{x: 128MB, y: true}, {}, {y: false}]",
    )
    assert found.try_first == ({"x": 128, "y": True}, {}, {"y": False})


@pytest.mark.parametrize(
    ("parameters", "more", "said"),
    [
        ("x: {range: [1, 9], default: 2.5}", "", "3:33: x: 2.5 is not a whole number"),
        ("x: {range: [1MB, 9MB]}", "", "this parameter has no unit"),
        ("x: {range: [1, 9]}", "try: [{y: 1}]", "4:8: unknown parameter 'y'"),
        ("x: {range: [1, 9]}", "try: [{x: 1}, {x: 10}]", "4:16: x: 10 is outside [1, 9]"),
        ("x: {choices: [a, b]}", "try: [{x: c}]", "x cannot be 'c'"),
        ("x: {choices: [1, 2]}", "try: [{x: true}]", "x cannot be true"),
        ("x: {range: [1, 9]}", "try: [{x: true}]", "x: true is not a number"),
        ("x: {range: [1, 9]}", "constraints: [z <= 4]", "unknown name 'z'"),
        ("x: {range: [1, 9]}", f"constraints: [x{' + 1' * 3000} <= 9]", "more than 250 words"),
        ("x: {range: [1, 9], default: 9}", "constraints: [x <= 4]", "baseline itself breaks"),
        (
            "x: {range: [1, 20]}, y: {range: [1, 9]}",
            "constraints: [y >= 1, x >= 10, x <= 4]",
            "4:32: no values can satisfy x <= 4: 10 <= 4, together with x >= 10",
        ),
        (
            "x: {range: [1, 99]}",
            "constraints: [3 * x == 100]",
            "4:15: no values can satisfy 3 * x == 100: 3 * 33 = 99 == 100",
        ),
    ],
)
def test_what_cannot_be(tmp_path: Path, parameters: str, more: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        space(tmp_path, parameters, more)
    assert said in caught.value.message
