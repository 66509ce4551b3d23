"""Targets and hosts that several tests of the space speak of."""

from __future__ import annotations

from pathlib import Path

from autotune.space.facts import HostFacts
from autotune.space.space import Space, build
from autotune.target.read import read

GB = 2**30
FLEET = """
name: fleet
slo: {p99: 50ms, errors: 0.1%}
hosts:
  lb1: {address: 198.18.0.1}
  web1: {address: 198.18.0.2}
  web2: {address: 198.18.0.3}
  mc1: {address: 198.18.0.4}
  db1: {address: 198.18.0.5}
tiers:
  lb: {hosts: lb1, service: nginx, forwards_to: web}
  web: {hosts: [web1, web2], service: nginx+php-fpm, app: reference, uses: [cache, store]}
  cache: {hosts: mc1, service: memcached}
  store: {hosts: db1, service: redis}
load: {path: /kv.php}
"""
ROOMY = HostFacts(cpus=4, memory=16 * GB, nofile=100_000)


def fleet(directory: Path, more: str = "", *changed: tuple[str, str], **hosts: HostFacts) -> Space:
    """The space of a fleet of roomy hosts, but for those named, its target's text changed."""
    text = FLEET
    for old, new in changed:
        text = text.replace(old, new)
    path = directory / "fleet.yaml"
    path.write_text(text + more)
    facts = dict.fromkeys(("lb1", "web1", "web2", "mc1", "db1"), ROOMY)
    return build(read(path), {**facts, **hosts})
