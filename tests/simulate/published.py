"""The published stack (doi:10.1109/IGCC.2017.8323580) as topology and settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from autotune.services.base import Value
from autotune.simulate.chain import build_chain
from autotune.simulate.topology import ChainTopology
from autotune.target.slo import Slo

Chosen = dict[str, Value]
SLO = Slo(quantile=0.99, limit=0.050)
CACHE: Chosen = {
    "cache.memcached.memory": 4096,
    "cache.memcached.connections": 8192,
    "cache.memcached.threads": 2,
}
APACHE_LB: Chosen = {
    "lb.service": "apache",
    "lb.apache.ServerLimit": 240,
    "lb.apache.ThreadsPerChild": 15,
}
NGINX_LB: Chosen = {
    "lb.service": "nginx",
    "lb.nginx.worker_connections": 1500,
    "lb.nginx.use": "epoll",
}
APACHE_WEB: Chosen = {"web.service": "apache+mod_php", "web.apache.MaxRequestWorkers": 500}
NGINX_WEB: Chosen = {
    "web.service": "nginx+php-fpm",
    "web.nginx.worker_connections": 1800,
    "web.nginx.use": "epoll",
    "web.php_fpm.pm": "static",
    "web.php_fpm.max_children": 75,
}
BOTH_NGINX: Chosen = {**NGINX_LB, **NGINX_WEB, "lb.nginx.worker_connections": 2100}
DEPLOYMENTS: Mapping[str, Chosen] = {
    "apache, apache": {**CACHE, **APACHE_LB, **APACHE_WEB},
    "apache, nginx": {**CACHE, **APACHE_LB, **NGINX_WEB},
    "nginx, nginx": {**CACHE, **BOTH_NGINX},
    "nginx, apache": {**CACHE, **NGINX_LB, **APACHE_WEB},
}
# Parameters that are tuned in each tier, on a grid around the published values.
TURNED: Mapping[str, Iterable[int]] = {
    "web.apache.MaxRequestWorkers": range(250, 801, 50),
    "web.php_fpm.max_children": range(40, 121, 10),
}


def topology(web: int = 1, cache: int = 1) -> ChainTopology:
    chain_ = ChainTopology()
    return replace(
        chain_, web=replace(chain_.web, count=web), cache=replace(chain_.cache, count=cache)
    )


def peak(settings: Mapping[str, Value], web: int = 1, cache: int = 1) -> float:
    return build_chain(topology(web, cache), settings).compute_peak(SLO)


def best(name: str, web: int, cache: int) -> float:
    """Return the peak of a deployment whose web tier is tuned for the number of hosts."""
    turned = next(p for p in TURNED if p.rpartition(".")[0].split(".")[1] in _web_of(name))
    settings = DEPLOYMENTS[name]
    return max(peak({**settings, turned: value}, web, cache) for value in TURNED[turned])


def _web_of(name: str) -> str:
    return "apache" if name.endswith("apache") else "php_fpm"


def optimum(settings: Mapping[str, Value], grid: Mapping[str, Iterable[int]]) -> tuple[int, ...]:
    """Return the values of a grid's parameters with the highest peak."""
    return max(
        itertools.product(*grid.values()),
        key=lambda values: peak({**settings, **dict(zip(grid, values, strict=True))}),
    )
