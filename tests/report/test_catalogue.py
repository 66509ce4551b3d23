"""`autotune params`: every parameter, with everything that is known of it."""

from __future__ import annotations

import pytest

from autotune.errors import AutotuneError
from autotune.report.catalogue import as_json, as_text, services

EVERY = [(service.name, p) for service in services(None) for p in service.parameters]


def test_every_parameter_is_documented() -> None:
    assert len(EVERY) > 30
    for service, parameter in EVERY:
        where = f"{service}.{parameter.name}"
        assert len(parameter.meaning) > 15, where
        assert parameter.meaning.endswith((".", ")")), where
        assert len(parameter.source) > 3, where
        assert parameter.choices or parameter.low is not None, where


def test_text_and_json_say_the_same_of_all() -> None:
    text, found = as_text(), as_json()
    for service, parameter in EVERY:
        assert f"  {parameter.name}: " in text
        assert parameter.name in [entry["name"] for entry in found["services"][service]]
        assert f"source: {parameter.source}" in text


def test_one_service_by_either_of_its_names() -> None:
    assert list(as_json("php-fpm")["services"]) == ["php_fpm"]
    assert as_json("php_fpm") == as_json("php-fpm")


def test_an_unknown_service_names_the_nearest() -> None:
    with pytest.raises(AutotuneError) as raised:
        as_text("ngnix")
    assert raised.value.hint == "did you mean 'nginx'?"
