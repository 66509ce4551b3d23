from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autotune.target import schema
from autotune.target.model import Target
from autotune.target.read_target import read_target
from autotune.target.write_target import target_to_tree
from autotune.target.yaml_document import load_yaml

SHIPPED = sorted((Path(__file__).parents[2] / "targets").glob("*.yaml"))
BAD = sorted((Path(__file__).parent / "bad").glob("*.yaml"))
# What only the whole target, or a unit's value, can tell: no schema says it.
BEYOND = re.compile(
    r"^(command_|stack_|load_generator_and|host_unknown|host_twice|tier_forwards|tier_uses|tiers_|range_|default_|load_timeout"
    r"|load_uris_and|slo_limit_zero|slo_errors_beyond|budget_time_too|ready_too|ready_is|percentile_below|percentile_two|host_cpus_not|yaml_"
    r"|load_(url_and|http_2|insecure|body_with|header_secret|path_has_a_secret|command_has_a_secret))"
)


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema.build_schema())


def errors(tree: Any) -> list[str]:
    return [error.message for error in validator().iter_errors(tree)]


def test_the_file_is_what_the_models_say() -> None:
    assert schema.SCHEMA_FILE.read_text(encoding="utf-8") == schema.format_schema(), (
        "run `python -m autotune.target.schema`"
    )


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema.build_schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_targets_validate(path: Path) -> None:
    assert errors(load_yaml(path).root) == []
    assert errors(json.loads(json.dumps(target_to_tree(read_target(path).target)))) == []


@pytest.mark.parametrize(
    "case", [case for case in BAD if not BEYOND.match(case.stem)], ids=lambda case: case.stem
)
def test_an_editor_sees_the_mistakes_too(case: Path) -> None:
    assert errors(load_yaml(case).root)


def _properties(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        yield from node.get("properties", {}).items()
        for item in node.values():
            yield from _properties(item)


def test_every_key_is_described() -> None:
    made = schema.build_schema()
    self_explaining = {"description", "$ref", "const"}
    undescribed = {key for key, item in _properties(made) if self_explaining.isdisjoint(item)}
    assert undescribed == set()
    assert all("description" in part for part in made["$defs"].values())


def test_keys_are_those_the_reader_takes() -> None:
    made = schema.build_schema()
    assert list(made["properties"]) == Target.user_keys()
    assert made["additionalProperties"] is False
    assert all(part["additionalProperties"] is False for part in made["$defs"].values())


def test_quantities_are_written_with_their_unit() -> None:
    made = schema.build_schema()
    load_keys = made["$defs"]["Load"]["properties"]
    assert made["properties"]["timeout"]["default"] == "10m"
    assert load_keys["max_rate"]["default"] == "20000/s"
    pattern = re.compile(load_keys["timeout"]["anyOf"][0]["pattern"])
    assert pattern.search("50 ms")
    assert not pattern.search("50")
    assert not pattern.search("50 msec")
