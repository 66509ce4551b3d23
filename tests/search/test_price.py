from __future__ import annotations

from dataclasses import replace

from spaces import DIMENSIONS

from autotune.search.lattice import Lattice
from autotune.search.price import restarts
from autotune.services.base import Action
from autotune.space.space import Space

COSTLY = ("lb.x.keepalive", "lb.x.service", "cache.x.growth")
SPACE = Space(
    tuple(
        replace(d, parameter=replace(d.parameter, action=Action.RESTART)) if d.name in COSTLY else d
        for d in DIMENSIONS
    ),
    (),
    {},
)
LATTICE = Lattice.of(SPACE.tunable, SPACE.baseline)


def test_a_service_is_restarted_once_and_reloads_cost_nothing() -> None:
    changes = [
        {},
        {"web.x.children": 90},
        {"lb.x.keepalive": 90, "lb.x.service": "apache"},
        {"lb.x.keepalive": 90, "cache.x.growth": 2.0},
    ]
    assert list(restarts(LATTICE, LATTICE.row({}), LATTICE.rows(changes))) == [0, 0, 1, 2]
