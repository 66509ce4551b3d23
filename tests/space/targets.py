"""Targets and hosts for several tests of the search space."""

from __future__ import annotations

from pathlib import Path

from autotune.services.sysctl.service import KERNEL_KEYS
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target

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
# Kernel values of Linux 6.1 in a container that may change the settings of its network.
KERNEL = {
    "net.core.somaxconn": "4096",
    "net.ipv4.tcp_tw_reuse": "2",
    "net.ipv4.ip_local_port_range": "32768 60999",
    "net.ipv4.tcp_rmem": "4096 131072 33554432",
    "net.ipv4.tcp_congestion_control": "bbr",
    "net.ipv4.tcp_available_congestion_control": "reno bbr cubic",
    "vm.swappiness": "60",
    "fs.file-max": "2465610",
}
ABSENT, FIXED = "this kernel does not support it", "it cannot be written on this host"
REFUSED = {name: ABSENT for name in KERNEL_KEYS if name not in KERNEL} | {"fs.file-max": FIXED}
ROOMY = HostFacts(cpus=4, memory=16 * GB, nofile=100_000, kernel_values=KERNEL, unsettable=REFUSED)
LOCAL = (Path(__file__).parents[2] / "targets" / "local.yaml").read_text()
LOCAL_FACTS = {"here": HostFacts(cpus=2, memory=4 * GB, nofile=20_000)}


def fleet(
    directory: Path, more: str = "", *changed: tuple[str, str], **hosts: HostFacts
) -> SearchSpace:
    """Return the search space of a fleet of large hosts, except for the given hosts, with a changed
    target.
    """
    text = FLEET
    for old, new in changed:
        text = text.replace(old, new)
    path = directory / "fleet.yaml"
    path.write_text(text + more)
    facts = dict.fromkeys(("lb1", "web1", "web2", "mc1", "db1"), ROOMY)
    return build_space(read_target(path), {**facts, **hosts})


def space_of(tmp: Path, more: str = "", replaced: tuple[str, str] = ("", "")) -> SearchSpace:
    """Return the search space of the local stack, with a changed target."""
    path = tmp / "target.yaml"
    path.write_text(LOCAL.replace(*replaced) + more)
    return build_space(read_target(path), LOCAL_FACTS)
