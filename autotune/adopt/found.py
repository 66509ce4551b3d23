"""What was found on hosts: services that run, and their configurations understood."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autotune.adopt import of_apache, of_nginx, of_options, of_php_fpm
from autotune.adopt.config import Config, guarded
from autotune.adopt.tree import Tree
from autotune.space.facts import HostFacts

_FPM = re.compile(r"php([0-9.]+)-fpm\.service")


@dataclass(frozen=True)
class FoundHost:
    """``address`` is where it was reached. ``units``: state by name. ``names``: its own names and
    addresses, by which other hosts' configurations may speak of it. ``processors``: those that
    programs see, whatever part of their time is granted. ``backlogs``: the queue of each listening
    socket, by its path or port.
    """

    name: str
    address: str
    tree: Tree
    facts: HostFacts
    user: str | None = None
    port: int | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    processors: int = 1
    backlogs: Mapping[str, int] = field(default_factory=dict)

    def runs(self, unit: str) -> bool:
        return self.units.get(unit) == "active"


@dataclass(frozen=True)
class Member:
    """A deployment on a host. ``configs`` are those of its services, by the services' names.

    ``listen`` are sockets or ports of services behind another one on the same host. ``behind``:
    where it sends requests on, ``host:port``.
    """

    host: FoundHost
    kind: str  # lb, web, cache or store
    deployment: str
    port: int
    configs: Mapping[str, Config]
    listen: Mapping[str, str] = field(default_factory=dict)
    behind: tuple[str, ...] = ()


def members(host: FoundHost) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """What runs on a host, and a line for each thing there that autotune does not tune."""
    found: list[Member] = []
    notes: list[str] = []
    for each in (_nginx, _apache, _memcached, _redis):
        for one in each(host):
            if isinstance(one, Member):
                found.append(one)
            else:
                notes.append(f"{host.name}: {one}")
    return tuple(found), tuple(notes)


def _fpm_version(host: FoundHost) -> str | None:
    running = sorted((m[1] for unit in host.units if (m := _FPM.fullmatch(unit)) and host.runs(unit)),
                     key=lambda version: [int(part) for part in version.split(".")])  # fmt: skip
    return running[-1] if running else None


def _nginx(host: FoundHost) -> Iterator[Member | str]:
    if not host.runs("nginx.service"):
        return
    config = of_nginx.read(host.tree)
    ports = of_nginx.ports(config)
    if not ports:
        yield "nginx listens nowhere without TLS, which autotune's load does not speak"
        return
    php, behind = of_nginx.passes(config, "fastcgi_pass"), of_nginx.passes(config, "proxy_pass")
    own = {"nginx": guarded(config)}
    version = _fpm_version(host)
    if php and version:
        fpm = of_php_fpm.read(host.tree, version)
        listens = of_php_fpm.listens(fpm)
        configs = {**own, "php_fpm": guarded(fpm)}
        yield Member(host, "web", "nginx+php-fpm", ports[0], configs, {"php_fpm": listens}, behind)
        return
    if php:
        yield "nginx hands PHP on to another host, whose PHP-FPM is not adopted"
    yield Member(host, "lb" if behind else "web", "nginx", ports[0], own, {}, behind)


def _apache(host: FoundHost) -> Iterator[Member | str]:
    if not host.runs("apache2.service"):
        return
    config = of_apache.read(host.tree)
    ports = of_apache.ports(config)
    way = of_apache.mpm(config)
    if not ports:
        yield "Apache listens nowhere without TLS, which autotune's load does not speak"
        return
    behind = of_apache.passes(config)
    own = {"apache": guarded(config)}
    if way == "prefork" and of_apache.loads(config, "php_module"):
        yield Member(host, "web", "apache+mod_php", ports[0], own, {}, behind)
    elif way == "event":
        yield Member(host, "lb" if behind else "web", "apache", ports[0], own, {}, behind)
    else:
        yield f"Apache with mpm_{way or 'unknown'} as it is used here is not tuned"


def _memcached(host: FoundHost) -> Iterator[Member | str]:
    if host.runs("memcached.service"):
        config = of_options.memcached(host.tree)
        port = of_options.port(config, "-p", 11211)
        yield Member(host, "cache", "memcached", port, {"memcached": guarded(config)})


def _redis(host: FoundHost) -> Iterator[Member | str]:
    if host.runs("redis-server.service"):
        config = of_options.redis(host.tree)
        port = of_options.port(config, "port", 6379)
        yield Member(host, "store", "redis", port, {"redis": guarded(config)})
