"""Search spaces for tests of samplers."""

from __future__ import annotations

from math import exp, log

from autotune.services.base import Action, Parameter, Settings
from autotune.space.dimension import Dimension
from autotune.space.expression import parse_comparison
from autotune.space.rules import Rule
from autotune.space.space import SearchSpace


def dimension(name: str, **kind: object) -> Dimension:
    parameter = Parameter(name=name, stock=0, action=Action.RELOAD, meaning="-", source="-")
    return Dimension(name, parameter, **kind)  # type: ignore[arg-type]


DIMENSIONS = (
    dimension("lb.x.service", baseline="nginx", choices=("nginx", "apache")),
    dimension(
        "lb.x.keepalive", baseline=0, low=0, high=512, is_logarithmic=True,
        conditions=(("lb.x.service", ("nginx",)),),
    ),
    dimension("web.x.children", baseline=5, low=2, high=256, is_logarithmic=True, recommended=40),
    dimension("web.x.threads", baseline=1, low=1, high=4),
    dimension("web.x.fixed", baseline=7, low=7, high=7),
    dimension("cache.x.growth", baseline=1.25, low=1.05, high=2.0),
    dimension("os.x.flag", baseline=False, choices=(False, True)),
)  # fmt: skip
PRODUCT = "web.x.children * web.x.threads <= 256"
SPACE = SearchSpace(DIMENSIONS, (Rule(PRODUCT, parse_comparison(PRODUCT)),), {})


def peak(settings: Settings) -> float | None:
    """Return a peak that is highest with 40 children, long keep-alive and nginx. Too many threads
    of children fail.
    """
    children, threads = float(settings["web.x.children"]), float(settings["web.x.threads"])
    if children * threads > 200:
        return None
    height = -0.2 * log(children / 40) ** 2 + 0.1 * (threads - 1)
    if settings["lb.x.service"] == "nginx":
        height += 0.3 + 0.1 * log(1 + float(settings["lb.x.keepalive"]))
    return 1000 * exp(height)


def many(count: int) -> SearchSpace:
    """Return a space with ``count`` equal numeric parameters."""
    names = [f"t.x.p{index}" for index in range(count)]
    return SearchSpace(tuple(dimension(n, baseline=0.5, low=0.0, high=1.0) for n in names), (), {})
