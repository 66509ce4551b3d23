from __future__ import annotations

from dataclasses import asdict

import pytest

from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.moves import moves
from autotune.services.diagnosis import Resource
from autotune.services.registry import ALL, diagnosis


def found(service: str, resource: Resource) -> dict[str, object]:
    return asdict(Bottleneck("web", service, "web1", resource, "said so", 0.9))


def test_moves_name_parameters_of_the_tier_in_full() -> None:
    assert moves(found("memcached", Resource.CACHE)) == ("web.memcached.memory+",)
    assert moves(found("php_fpm", Resource.WORKERS))[:2] == (
        "web.php_fpm.max_children+",
        "web.php_fpm.pm=static",
    )
    assert "web.limits.nofile+" in moves(found("nginx", Resource.DESCRIPTORS))


@pytest.mark.parametrize("resource", [Resource.CPU, Resource.GENERATOR, Resource.ANSWERS])
def test_what_no_setting_mends_has_none(resource: Resource) -> None:
    assert moves(found("nginx", resource)) == ()
    assert moves(None) == ()


def test_every_move_is_one_of_the_catalogue() -> None:
    known: dict[str, set[str]] = {}
    for service in ALL:
        known.setdefault(service.name, set()).update(p.name for p in service.parameters)
    named = [(name, move) for name in known for told in diagnosis(name).moves.values()
             for move in told]  # fmt: skip
    assert len(named) > 20
    for name, move in named:
        assert move.rstrip("+-").partition("=")[0] in known[name], (name, move)
