"""Simulated stacks on different hardware, for search benchmarks.

Each variant is a topology with a search space of 19 parameters of the catalogue. Some parameters are
active only with one choice of another parameter, and some hardly matter. Settings fail if they need too
much memory or too many connections, or if the software refuses them. The true peak of any settings can be
computed in half a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp

import numpy as np

from autotune.services.base import Action, Parameter, Settings, Value
from autotune.simulate.chain import build_chain
from autotune.simulate.topology import GIB, ChainTopology, TierHosts
from autotune.space.dimension import Dimension
from autotune.space.space import SearchSpace
from autotune.target.model import Data
from autotune.target.slo import Slo


@dataclass(frozen=True)
class Variant:
    """A topology with its search space. Searches use ``peak``, and evaluations use ``true_peak``."""

    name: str
    topology: ChainTopology
    slo: Slo = field(default_factory=Slo)
    searched: frozenset[str] = frozenset()  # names of the parameters to search, or all if empty

    @cached_property
    def space(self) -> SearchSpace:
        """Return the search space without conditions and rules, so that settings can fail."""
        every = _dimensions(self.topology)
        few = (replace(d, conditions=()) for d in every if d.name in self.searched)
        return SearchSpace(tuple(few) if self.searched else every, (), {})

    def true_peak(self, settings: Settings) -> float:
        """Return the peak in requests/s without noise, or 0.0 if no rate meets the objective.

        Missing settings have their baseline values.
        """
        return build_chain(self.topology, {**self.space.baseline, **settings}).compute_peak(
            self.slo
        )

    def peak(
        self,
        settings: Settings,
        rng: np.random.Generator,
        *,
        noise: float = 0.05,
        outliers: float = 0.03,
    ) -> float | None:
        """Return a noisy peak in requests/s, or ``None`` for settings that fail.

        ``noise`` is the sd of the log peak. In the share ``outliers`` of measurements, the peak is only
        0.45 to 0.8 of the true peak. Random numbers do not depend on the settings.
        """
        scatter, disturbed = rng.normal(0.0, noise), rng.random() < outliers
        left = rng.uniform(0.45, 0.8)
        true = self.true_peak(settings)
        return true * exp(scatter) * (left if disturbed else 1.0) if true > 0.0 else None


def _dimensions(topology: ChainTopology) -> tuple[Dimension, ...]:
    lb, web, cache = topology.lb.cpus, topology.web.cpus, topology.cache.cpus
    megabytes = int(topology.cache.memory / 2 / 2**20)
    nginx, apache = ("lb.service", ("nginx",)), ("lb.service", ("apache",))
    fpm, prefork = ("web.service", ("nginx+php-fpm",)), ("web.service", ("apache+mod_php",))
    return (
        _choice("lb.service", ("nginx", "apache")),
        _number("lb.nginx.worker_processes", 1, 4 * lb, lb, lb, nginx),
        _number("lb.nginx.worker_connections", 64, 16_384, 768, 4096, nginx),
        _choice("lb.nginx.use", ("epoll", "poll", "select"), "epoll", nginx),
        _choice("lb.nginx.multi_accept", (False, True), None, nginx),
        _number("lb.nginx.upstream_keepalive", 0, 512, 0, 32, nginx),
        _number("lb.apache.ServerLimit", 4, 512, 16, 16 * lb, apache),
        _number("lb.apache.ThreadsPerChild", 5, 128, 25, 25, apache),
        _number("lb.sysctl.net.core.somaxconn", 64, 65_535, 4096, 4096),
        _choice("web.service", ("nginx+php-fpm", "apache+mod_php")),
        _number("web.nginx.worker_connections", 64, 16_384, 768, 4096, fpm),
        _choice("web.nginx.use", ("epoll", "poll", "select"), "epoll", fpm),
        _choice("web.php_fpm.pm", ("dynamic", "static", "ondemand"), "static", fpm),
        _number("web.php_fpm.max_children", 2, 512, 5, 8 * web, fpm),
        _choice("web.php_fpm.max_requests", (0, 500, 2000, 10_000), 0, fpm),
        _number("web.apache.MaxRequestWorkers", 5, 1024, 150, 16 * web, prefork),
        _number("cache.memcached.threads", 1, 8 * cache, 4, cache),
        _number("cache.memcached.connections", 64, 65_536, 1024, 4096),
        _number("cache.memcached.memory", 8, megabytes, 64, megabytes // 2),
    )


Condition = tuple[str, tuple[Value, ...]]


def _number(
    name: str, low: float, high: float, stock: float, recommended: float, *when: Condition
) -> Dimension:
    parameter = _parameter(name, int(stock))
    return Dimension(
        name, parameter, parameter.stock, int(low), max(int(high), int(stock)), is_logarithmic=low > 0,
        recommended=int(recommended), conditions=when,
    )  # fmt: skip


def _choice(
    name: str, choices: tuple[Value, ...], recommended: Value | None = None, *when: Condition
) -> Dimension:
    parameter = _parameter(name, choices[0])
    return Dimension(
        name, parameter, choices[0], choices=choices, recommended=recommended, conditions=when
    )


def _parameter(name: str, stock: Value) -> Parameter:
    bare = name.split(".", 2)[-1]
    return Parameter(
        name=bare, stock=stock, action=Action.RELOAD, meaning="of a model", source="simulate"
    )


def _variant(
    name: str, lb: TierHosts, web: TierHosts, cache: TierHosts, store: TierHosts, data: Data,
    slo: Slo | None = None, searched: frozenset[str] = frozenset(),
) -> Variant:  # fmt: skip
    return Variant(name, ChainTopology(lb, web, cache, store, data), slo or Slo(), searched)


# Parameters whose optima change by large factors if processes wait for a store, and some that hardly
# matter.
IO_WAIT_PARAMETERS = frozenset({
    "lb.nginx.worker_processes", "lb.nginx.upstream_keepalive", "web.php_fpm.pm",
    "web.php_fpm.max_children", "web.php_fpm.max_requests", "cache.memcached.threads",
})  # fmt: skip


def _data(pairs: int, store_latency: float) -> Data:
    return Data(pairs=pairs).model_copy(update={"store_latency": store_latency})


def _web(count: int, cpus: float, memory: float) -> TierHosts:
    return TierHosts("web", "nginx+php-fpm", count, cpus, int(memory * GIB))


def _lb(cpus: float, nofile: int = 65_536) -> TierHosts:
    return TierHosts("lb", "nginx", 1, cpus, 8 * GIB, nofile)


def _cache(count: int, cpus: float, memory: float) -> TierHosts:
    return TierHosts("cache", "memcached", count, cpus, int(memory * GIB))


def _store(cpus: float) -> TierHosts:
    return TierHosts("store", "redis", 1, cpus, 16 * GIB)


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        _variant("published", _lb(8), _web(1, 4, 16), _cache(1, 2, 8), _store(4),
                 Data(pairs=100_000_000)),
        _variant("wide", _lb(8), _web(3, 4, 16), _cache(3, 2, 8), _store(4),
                 Data(pairs=100_000_000)),
        _variant("small", _lb(1, 4096), _web(2, 2, 2), _cache(1, 1, 1), _store(1),
                 Data(pairs=5_000_000)),
        _variant("thin-lb", _lb(1), _web(3, 8, 8), _cache(2, 2, 8), _store(4),
                 Data(pairs=50_000_000)),
        _variant("slow-store", _lb(4), _web(2, 4, 8), _cache(1, 2, 2), _store(0.5),
                 Data(pairs=100_000_000).model_copy(update={"store_latency": 0.015})),
        _variant("poor-cache", _lb(4), _web(3, 8, 16), _cache(1, 0.5, 4), _store(2),
                 Data(pairs=20_000_000)),
        # Workers wait for the store, so the presets are too small by large factors.
        _variant("io-wait", _lb(8), _web(2, 4, 16), _cache(1, 2, 2), _store(4),
                 _data(100_000_000, 0.12), Slo(limit=0.6), IO_WAIT_PARAMETERS),
        _variant("io-wait-short", _lb(8), _web(1, 8, 32), _cache(1, 4, 4), _store(8),
                 _data(200_000_000, 0.06), Slo(limit=0.3), IO_WAIT_PARAMETERS),
    )
}  # fmt: skip
