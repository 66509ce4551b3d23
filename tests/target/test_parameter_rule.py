from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from autotune.target.parameter_rule import ParameterRule


@pytest.mark.parametrize(
    "written",
    [
        {"range": [64, 8192]},
        {"range": [64, 8192], "log": True, "default": 64},
        {"range": [64, 8192], "default": 8192},
        {"range": ["6MB", "8MB"], "default": "8MB"},
        {"range": ["512MB", "1GB"]},
        {"range": ["6MB", "8MB"], "default": 7},  # only the parameter's own unit can tell
        {"range": [6, "8MB"]},
        {"choices": [False, True, 0, 1]},
        {"choices": ["static"], "default": "static"},
        {"fixed": 0},
        {"fixed": False},
        {"default": 12},
        {"log": False},
        {"drop": True},
    ],
)
def test_reads(written: dict[str, Any]) -> None:
    rule = ParameterRule.model_validate(written)
    read = {key: getattr(rule, key) for key in written}
    assert read == {k: tuple(v) if isinstance(v, list) else v for k, v in written.items()}


@pytest.mark.parametrize(
    ("written", "key", "message"),
    [
        ({}, None, "Value error, needs `range`, `choices`"),
        ({"range": [2, 1]}, "range", "the range from 2 to 1 is empty"),
        ({"range": [1, 1]}, "range", "the range from 1 to 1 is empty"),
        ({"range": ["1GB", "1GB"]}, "range", "the range from 1GB to 1GB is empty"),
        ({"range": ["1GB", "1s"]}, "range", "1GB is a size, 1s is a duration"),
        ({"range": [True, 2]}, "range", "true is not a number"),
        ({"range": ["1", 2]}, "range", "'1' is not a number"),
        ({"range": [0, 2], "log": True}, "range", "with `log: true`, the range must start above 0"),
        (
            {"range": [-1, 2], "log": True},
            "range",
            "with `log: true`, the range must start above 0",
        ),
        ({"range": [1, 2], "default": 3}, "default", "3 is outside the range from 1 to 2"),
        ({"range": [1, 2], "default": "low"}, "default", "'low' is not a number"),
        ({"range": [1, 2], "fixed": 1}, "fixed", "`range` and `fixed` cannot be combined"),
        ({"fixed": 1, "drop": True}, "drop", "`fixed` and `drop` cannot be combined"),
        ({"fixed": 1, "default": 1}, "default", "`default` and `fixed` cannot be combined"),
        ({"drop": True, "default": 1}, "default", "`default` and `drop` cannot be combined"),
        ({"choices": [1, 2], "log": True}, "log", "`log` and `choices` cannot be combined"),
        ({"choices": [1, 2, 1]}, "choices", "1 is listed twice"),
        ({"choices": [0, 1], "default": True}, "default", "true is not among the choices"),
        ({"choices": []}, "choices", "Tuple should have at least 1 item"),
        ({"fixed": float("nan")}, "fixed", "Value error, .nan is not a usable number"),
        ({"fixed": [1]}, "fixed", "Value error, must be one number, word or true/false"),
        (
            {"fixed": "epoll;\nload_module x"},
            "fixed",
            "Value error, 'epoll;\\nload_module x' is not text",
        ),
        ({"drop": False}, "drop", "Value error, must be `true`"),
        ({"drop": 1}, "drop", "Value error, must be `true`"),
    ],
)
def test_refused(written: dict[str, Any], key: str | None, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ParameterRule.model_validate(written)
    error = caught.value.errors()[0]
    assert error["loc"][:1] == ((key,) if key else ())
    assert error["msg"].startswith(message)
