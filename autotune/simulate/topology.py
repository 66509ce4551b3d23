"""The machines of a modelled chain: load balancer → web → memcached → store."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.services.base import Settings
from autotune.target.model import Data

GIB = 2**30


@dataclass(frozen=True)
class Hosts:
    """The hosts of one tier, all alike.

    ``tier`` is the name that settings call it by; ``service`` is what runs there unless settings
    choose (``lb.service``). ``memory`` is in bytes and per host, ``nofile`` per process.
    """

    tier: str
    service: str
    count: int = 1
    cpus: float = 4.0
    memory: int = 16 * GIB
    nofile: int = 65_536
    names: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts' names, made up where the target has none."""
        return self.names or tuple(f"{self.tier}{n + 1}" for n in range(self.count))

    @property
    def all_cpus(self) -> float:
        return self.count * self.cpus

    def deployment(self, settings: Settings) -> str:
        """What runs there under ``settings``."""
        return str(settings.get(f"{self.tier}.service", self.service))

    def number(self, settings: Settings, name: str, default: float) -> float:
        """A parameter of this tier, ``name`` without the tier's name."""
        return float(settings.get(f"{self.tier}.{name}", default))

    def word(self, settings: Settings, name: str, default: str) -> str:
        return str(settings.get(f"{self.tier}.{name}", default))


@dataclass(frozen=True)
class Topology:
    """A whole chain, by default the published one with a host per tier, and its data set."""

    lb: Hosts = Hosts("lb", "nginx", cpus=8)
    web: Hosts = Hosts("web", "apache+mod_php", cpus=4)
    cache: Hosts = Hosts("cache", "memcached", cpus=2, memory=8 * GIB)
    store: Hosts = Hosts("store", "redis", cpus=4, memory=16 * GIB)
    data: Data = field(default_factory=lambda: Data(pairs=100_000_000))
