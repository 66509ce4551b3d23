"""A modelled target for sweeps, and a narrator whom nobody hears."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

TARGET = """\
name: modelled
slo: {p99: 50ms, errors: 0.1%}
simulated: {seed: 2, noise: 0.5%, outliers: 0%}
hosts:
  lb1:  {address: 198.18.0.1, cpus: 8, memory: 8GB}
  web1: {address: 198.18.0.2, cpus: 4, memory: 32GB}
  web2: {address: 198.18.0.3, cpus: 4, memory: 32GB}
  mc1:  {address: 198.18.0.4, cpus: 2, memory: 8GB}
  db1:  {address: 198.18.0.5, cpus: 4, memory: 8GB}
tiers:
  lb:    {hosts: lb1, service: [nginx, apache], forwards_to: web}
  web:
    hosts: [web1, web2]
    service: [nginx+php-fpm, apache+mod_php]
    app: reference
    uses: [cache, store]
  cache: {hosts: mc1, service: memcached}
  store: {hosts: db1, service: redis}
parameters:
  web.php_fpm.max_children: {default: 40}
  cache.memcached.connections: {fixed: 4096}
load: {path: /kv.php, max_rate: 20000/s}
data: {pairs: 10000000}
"""


def written(directory: Path, text: str = TARGET) -> Path:
    path = directory / "modelled.yaml"
    path.write_text(text)
    return path


class Silent:
    """Ends the sweep after so many readings, as Ctrl-C would."""

    def __init__(self, patience: int = -1) -> None:
        self.patience = patience

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None

    def reading(self, *_: Any) -> None:
        self.patience -= 1
        if self.patience == 0:
            raise KeyboardInterrupt
