"""memcached: the cache between the web servers and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.services.base import (
    Action,
    Argv,
    ConfigFile,
    Endpoint,
    Parameter,
    Readback,
    Site,
    TrialStart,
)
from autotune.services.needs import Needs
from autotune.services.readback import words

SOURCE = "memcached(1)"
TOOL = "/usr/share/memcached/scripts/memcached-tool"

PARAMETERS = (
    Parameter(
        name="threads", low=1, high="8 * cpus", log=True, stock=4, recommended="cpus",
        action=Action.RESTART, source=SOURCE,
        meaning="Worker threads; beyond the CPUs they only wait for each other.",
    ),
    Parameter(
        name="connections", low=64, high="min(65536, nofile - 100)", log=True, stock=1024,
        recommended=4096, action=Action.RESTART, source=SOURCE,
        meaning="Clients at one time; more wait until one leaves.",
    ),
    Parameter(
        name="requests_per_event", low=1, high=1000, log=True, stock=20,
        action=Action.RESTART, source=SOURCE,
        meaning="Requests served on one connection before others get their turn.",
    ),
    Parameter(
        name="memory", low=8, high="memory / 2 / 1048576", log=True, stock=64, unit="MB",
        action=Action.RESTART, source=SOURCE,
        meaning="Memory for items.",
    ),
    Parameter(
        name="backlog", low=64, high=65535, log=True, stock=1024, recommended=4096,
        action=Action.RESTART, source=SOURCE,
        meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.",
    ),
    Parameter(
        name="growth_factor", low=1.05, high=2.0, stock=1.25, action=Action.RESTART,
        source=SOURCE,
        meaning="Ratio of neighbouring chunk sizes; nearer to 1 wastes less memory per item.",
    ),
)  # fmt: skip

IN_EFFECT = {
    "num_threads": "threads",
    "maxconns": "connections",
    "reqs_per_event": "requests_per_event",
    "maxbytes": "memory",
    "tcp_backlog": "backlog",
    "growth_factor": "growth_factor",
}

NEEDS = Needs(
    # Items, the hash table beside them, and what each connection and thread keeps.
    memory="memory * 1.1 + connections * 4 KB + threads * 1 MB + 4 MB",
    source="memcached.org, user internals; `stats`: read buffers are shared since 1.6",
    connections="connections",
)


@dataclass(frozen=True)
class Memcached:
    """Its options live in a file of one option a line, the form Debian's unit reads."""

    name: str = "memcached"
    packages: tuple[str, ...] = ("memcached",)
    parameters: tuple[Parameter, ...] = PARAMETERS
    at_most: tuple[tuple[str, str], ...] = ()
    reload_signal: str | None = None
    needs: Needs = NEEDS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"memcached": ("memcached",), "memcached-tool": (TOOL,)}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(_conf(site), "memcached/memcached.conf.j2"),)

    def unit(self, site: Site) -> str:
        return "memcached.service"

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart:
        return TrialStart((*self.start(site, files), "-s", "trial.sock"), "trial.sock")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (site.programs["memcached"], *options(files[_conf(site)]))

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        def parse(text: str) -> dict[str, bool | int | float | str]:
            found = dict(words(IN_EFFECT)(text))
            if isinstance(found.get("memory"), int):
                found["memory"] = int(found["memory"]) // 2**20
            return found

        argv = (site.programs["memcached-tool"], str(site.listen), "settings")
        return (Readback(argv, parse),)


def _conf(site: Site) -> str:
    return site.place("memcached.conf", "/etc/memcached.conf")


def options(content: bytes) -> Argv:
    """Arguments out of an option file: one option and its value a line, ``#`` starts a comment."""
    lines = (line.split("#", 1)[0].split() for line in content.decode().splitlines())
    return tuple(word for line in lines for word in line)
