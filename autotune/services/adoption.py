"""What adopting a running host needs from a service: where it is configured, what is tunable there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from posixpath import dirname

from autotune.services.base import Role
from autotune.services.config_files import Config, Tree
from autotune.services.directives import Accepts, Adopted, Tunable, map_directives
from autotune.services.understood import Understood
from autotune.strict import is_whole

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)+")


@dataclass(frozen=True)
class Listener:
    """A program at a TCP port. ``local``: for its own host alone. ``program`` is ``""`` if unknown."""

    program: str
    port: int
    local: bool

    def __str__(self) -> str:
        return f"{self.program or 'something'} ({self.port}{', locally' if self.local else ''})"


@dataclass(frozen=True, kw_only=True)
class RunningHost:
    """``units``: state by name, ``masked`` for one that runs all the same. ``processors``: the CPUs that
    programs see, whatever share of CPU time is granted. ``backlogs``: the queue length of each listening
    socket, by its path or port."""

    tree: Tree
    units: Mapping[str, str] = field(default_factory=dict)
    processors: int = 1
    backlogs: Mapping[str, int] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()

    def runs(self, unit: str) -> bool:
        return self.units.get(unit) == "active"

    def runs_masked(self, unit: str) -> bool:
        """True if it runs though its service manager would not start it again."""
        return self.units.get(unit) == "masked"


@dataclass(frozen=True, kw_only=True)
class RunningService:
    """A service that a host runs. ``key`` is the registry's; ``kind`` the tier it belongs to: lb,
    http_cache, web, app, cache, store or db; ``listen`` the socket, port or address at which
    it answers, where ``port`` does not say it.

    ``behind``: where it sends requests on, ``host:port``. ``gateway``: the protocol in which it hands
    some to an application server. ``role`` is what it does in the deployment it turns out to be in.
    ``tls``: whether ``port`` speaks TLS, which it does only where no port without TLS is open; ``site``
    the host name served there. ``loses``: what a restart of it would lose, in words; empty where
    nothing is lost. ``unit``: what runs it where that, or its main file, is not Debian's.
    """

    key: str
    host: RunningHost
    config: Config
    kind: str = ""
    port: int = 0
    listen: str = ""
    behind: tuple[str, ...] = ()
    gateway: str = ""
    role: Role = Role.WEB
    tls: bool = False
    site: str = ""
    loses: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Layout:
    """Where ``distributions`` have a service: its unit, the file it reads first, the directory of its
    programs. Where a host may run several instances, these contain ``{version}`` and ``{name}``."""

    distributions: str
    unit: str
    main: str
    programs: str = ""
    version: str = ""
    name: str = ""

    def of(self, version: str = "", name: str = "") -> Layout:
        """The layout of one instance: its version and name filled in."""
        unit, main, programs = (place.format(version=version, name=name)
                                for place in (self.unit, self.main, self.programs))  # fmt: skip
        return Layout(self.distributions, unit, main, programs, version, name)

    def having(self, text: str) -> Layout | None:
        """The layout of the instance that ``text`` belongs to: its unit, or a path in the directory of
        its main file; ``None`` for anything else."""
        for pattern in (re.escape(self.unit), f"{re.escape(dirname(self.main))}/.*"):
            fields = pattern.replace(r"\{version\}", "(?P<version>[0-9.]+)")
            match = re.fullmatch(fields.replace(r"\{name\}", "(?P<name>[^/]+)"), text)
            if match:
                return self.of(**match.groupdict())
        return None

    @property
    def own_unit(self) -> str:
        """The value of `RunningService.unit`: empty for Debian's unit, which `Service` declares."""
        return "" if self.distributions.startswith("Debian") else self.unit


class Layouts(tuple[Layout, ...]):
    """Every layout of a service."""

    __slots__ = ()

    def having(self, text: str) -> Layout | None:
        """The first layout that a unit or a file belongs to."""
        return next(filter(None, (layout.having(text) for layout in self)), None)

    def of(self, host: RunningHost) -> Layout | None:
        """The first whose unit runs on a host and whose file is there; or else Debian's, if that runs."""
        running = [layout for layout in self if host.runs(layout.unit)]
        present = (layout for layout in running if host.tree.real(layout.main) in host.tree.files)
        return next(present, None) or next((its for its in running if not its.own_unit), None)

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Units that Debian does not have, for `Adoption.elsewhere`."""
        units = {layout.unit for layout in self if not layout.own_unit}
        return tuple(dict.fromkeys(layout.unit for layout in self if layout.unit not in units))

    @property
    def running(self) -> str:
        """A condition of sh that one of the units runs, for `Adoption.version`."""
        return "{ " + " || ".join(f"runs {layout.unit}" for layout in self) + "; }"


Tune = Callable[[RunningService, Accepts], Adopted]
Tunables = Callable[[RunningService], Iterable[Tunable]]


@dataclass(frozen=True)
class Adoption:
    """How a service is recognised on a host and its own files made tunable.

    ``known_as`` is its name for people. ``units`` are systemd's, names or patterns; ``elsewhere`` are
    units that only other distributions have. ``paths`` are the files and directories below ``/`` it is
    configured in, names or patterns of a shell. ``version`` is a line of sh that prints name and
    version; it can test ``runs UNIT``. ``find`` yields what runs, or a reason why that is not tuned.
    ``tunables`` are its parameters, where each is a directive of its own; otherwise ``tune`` maps them.
    ``understood`` tells which words of its files may be shown.
    """

    known_as: str
    units: tuple[str, ...]
    elsewhere: tuple[str, ...] = field(default=(), kw_only=True)
    paths: tuple[str, ...]
    version: str
    find: Callable[[RunningHost], Iterator[RunningService | str]]
    understood: Understood
    tune: Tune | None = None
    tunables: Tunables = lambda _: ()

    def adopted(self, running: RunningService, accepts: Accepts) -> Adopted:
        """What of a service that ``find`` has found is tuned, from which values on, and how."""
        if self.tune is not None:
            return self.tune(running, accepts)
        return map_directives(running.config, self.tunables(running), accepts)


def at_http_port(
    running: RunningService, title: str, listening: Iterable[tuple[str, bool]]
) -> RunningService | str:
    """``running`` with its port. ``listening`` are addresses where HTTP is spoken, each with whether
    over TLS. The first TCP port without TLS is taken, else the first with it. Where there is no TCP
    port, the result is the reason why the service is not adopted."""
    ports = [(int(port), tls) for address, tls in listening
             if is_whole(port := address.rpartition(":")[2])]  # fmt: skip
    if not ports:
        unread = "".join(f" ({path}: {why})" for path, why in running.config.unread.items())
        return f"{title} listens at no TCP port{unread}: not adopted, `load: {{url: …}}` by hand"
    first = min(ports, key=lambda place: place[1])
    return replace(running, port=first[0], tls=first[1])


def site_name(words: Iterable[str]) -> str:
    """The first of these that a URL can have as its host; empty where none can."""
    return next((word for word in words if _SITE.fullmatch(word)), "")
