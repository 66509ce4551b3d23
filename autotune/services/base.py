"""What can be tuned: the contract of a service, as data and pure functions. No I/O lives here."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeVar
from zlib import crc32

from autotune.target.model import Data

Value = bool | int | float | str
Bound = int | float | str  # text is an expression over the host's facts, such as "2 * cpus"
Settings = Mapping[str, Value]
Argv = tuple[str, ...]
Programs = Mapping[str, tuple[str, ...]]
Conditions = tuple[tuple[str, tuple[Value, ...]], ...]  # name of a parameter, values it may have
Private = TypeVar("Private")
Installed = TypeVar("Installed")


class Action(enum.IntEnum):
    """What a change costs, in rising order."""

    NONE = 0
    RELOAD = 1
    RESTART = 2


class Effect(enum.StrEnum):
    """How much a parameter may change what a stack carries, by documentation and experience."""

    CAPACITY = "capacity"  # decides on workers, connections, memory: tens of percent
    SMALL = "small"  # a few percent at most
    COSMETIC = "cosmetic"  # none that could be measured, except at values that do harm


class Trait(enum.StrEnum):
    """What a load has that makes parameters decide which hardly matter otherwise."""

    TLS = "tls"  # connections are encrypted
    CHURN = "churn"  # clients connect for every request


class Role(enum.StrEnum):
    """What a service does in its tier."""

    PROXY = "proxy"
    HTTP_CACHE = "http_cache"  # keeps answers of the web servers behind it
    WEB = "web"
    APP = "app"
    CACHE = "cache"
    STORE = "store"
    DATABASE = "database"  # SQL; its data is the user's
    LOCAL = "local"  # beside the application on each of its hosts
    HOST = "host"  # the machine itself: its kernel, its limits


@dataclass(frozen=True)
class Parameter:
    """One setting of a service, spelt as the software spells it.

    A number has ``low`` and ``high`` (inclusive), a switch both values, anything else ``choices``.
    ``stock`` is the distribution's default, ``recommended`` what its documentation or common guides
    advise, ``published`` what the reference measurements of a multi-tier stack found best. ``when`` names
    the sibling values under which the parameter has any effect. ``built_in`` marks choices that
    depend on how the program was built: each is shown to the program before the search.
    ``derive`` is an expression over siblings that the value follows; such a parameter is not
    searched. ``adopted`` ones are tuned in a host's own files alone: shipped templates have no place
    for them. ``on_demand`` ones keep their stock value unless the target gives them a range or
    choices: they cost the user something else, such as disk space or a larger attack surface.

    ``capped_by`` is the kernel setting that limits the effective value.

    ``effect`` says how much it may matter, and ``decides`` under which loads it matters most whatever
    its ``effect``; ``direction`` is where guides move it, `+` or `-`. ``safe`` is
    the range that no guide warns about: the search begins there.
    """

    name: str
    meaning: str
    _: KW_ONLY
    stock: Value
    action: Action
    source: str
    unit: str = ""
    low: Bound | None = None
    high: Bound | None = None
    log: bool = False
    choices: tuple[Value, ...] = ()
    recommended: Value | None = None
    published: Mapping[Role, Value] = field(default_factory=dict)
    when: Conditions = ()
    roles: frozenset[Role] | None = None
    built_in: bool = False
    derive: str = ""
    adopted: bool = False
    on_demand: bool = False
    capped_by: str = ""
    effect: Effect = Effect.CAPACITY
    decides: frozenset[Trait] = frozenset()
    direction: str = ""
    safe: tuple[Bound, Bound] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stock, bool) and not self.choices:
            object.__setattr__(self, "choices", (self.stock, not self.stock))


# A parameter by what a change of it costs.
at_once = partial(Parameter, action=Action.NONE)
on_reload = partial(Parameter, action=Action.RELOAD)
on_restart = partial(Parameter, action=Action.RESTART)
ACCEPTED = "net.core.somaxconn"  # caps the connections that wait at a socket
accept_queue = partial(on_restart, low=64, high=65_535, log=True, recommended=4096,
    capped_by=ACCEPTED,
    meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.")  # fmt: skip


def guided(
    parameters: tuple[Parameter, ...],
    capacity: str = "",
    small: str = "",
    safe: Mapping[str, tuple[Bound, Bound]] | None = None,
    decides: Mapping[Trait, str] | None = None,
) -> tuple[Parameter, ...]:
    """``parameters`` with what guides say of them. ``capacity`` and ``small`` name those with that
    effect, each with the direction in which guides move it (``backlog+``); ``safe`` has ranges by name,
    ``decides`` the names of what matters most under a load with a trait. Parameters that neither of
    the two names are cosmetic."""
    effects = {
        name.rstrip("+-"): (effect, name[len(name.rstrip("+-")) :])
        for effect, names in ((Effect.CAPACITY, capacity), (Effect.SMALL, small))
        for name in names.split()
    }
    ranges, loads = safe or {}, {t: names.split() for t, names in (decides or {}).items()}
    named = {*effects, *ranges, *(name for names in loads.values() for name in names)}
    if unknown := named - {parameter.name for parameter in parameters}:
        raise ValueError(
            f"guidance for parameters that are not there: {', '.join(sorted(unknown))}"
        )
    return tuple(
        replace(
            p,
            effect=effect,
            direction=direction,
            safe=ranges.get(p.name),
            decides=frozenset(trait for trait, names in loads.items() if p.name in names),
        )
        for p in parameters
        for effect, direction in (effects.get(p.name, (Effect.COSMETIC, "")),)
    )


def met(conditions: Conditions, settings: Settings) -> bool:
    """Whether every named parameter has one of its values."""
    return all(settings.get(name) in values for name, values in conditions)


@dataclass(frozen=True)
class Endpoint:
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ConfigFile:
    """A file a service reads, and the template that makes it.

    ``path`` is relative to the site for private processes, absolute for the distribution's units.
    ``text`` is the template itself where it is in no file. ``optional``: rendered empty, the file is
    absent.
    """

    path: str
    template: str
    mode: int = 0o644
    text: str | None = None
    optional: bool = False


@dataclass(frozen=True)
class Own:
    """A host's own configuration of a service: the files that have values to tune in them.

    ``listen`` is where it accepts connections, for a service that others on its host talk to.
    ``loses``: what it would lose by a restart, in words. Such a unit is neither changed nor restarted.
    ``unit`` and ``main``: what runs it and the file it reads first, where those are not Debian's.
    ``deployment``: which of the tier's deployments it belongs to, where the tier has a choice.
    """

    files: tuple[ConfigFile, ...] = ()
    listen: str = ""
    loses: str = ""
    unit: str = ""
    main: str = ""
    deployment: str = ""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One service on one host: everything but the settings that its files and commands depend on.

    Paths inside the files are relative to ``directory``, the working directory of the processes,
    so that a deep study directory meets no limit on the length of a socket's path. Those of the
    distribution's units are absolute; ``directory`` is where a trial start may write. ``uses`` are
    all services that the tier's application calls, ``caches`` and ``stores`` those with that role,
    ``local`` where the cache of the host itself listens, if the tier may have one. ``user`` is whom the
    processes drop to (``None``: they keep the user that starts them). ``installed`` says whether they
    are the units of the host's distribution or private processes. ``own`` is set where the host's
    own files were made into templates, which replace those of the service. ``unit`` is what runs it
    where that is not one of the distribution's.
    """

    tier: str
    host: str
    role: Role
    directory: str
    listen: Endpoint
    forwards_to: tuple[Endpoint, ...] = ()
    caches: tuple[Endpoint, ...] = ()
    stores: tuple[Endpoint, ...] = ()
    uses: tuple[Endpoint, ...] = ()
    local: Endpoint | None = None
    user: str | None = None
    group: str | None = None
    installed: bool = False
    programs: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Value] = field(default_factory=dict)
    own: Own | None = None
    unit: str = ""

    def place(self, private: Private, installed: Installed) -> Private | Installed:
        """``private`` for private processes, ``installed`` for the distribution's units: two places,
        mostly."""
        return installed if self.installed else private

    @property
    def own_place(self) -> str:
        """Where the host's own service listens, as its files say; empty for any other."""
        return self.own.listen if self.own else ""

    @property
    def socket_name(self) -> str:
        """A name for a unix socket that no other study uses: ``ss`` lists all sockets of the host."""
        if self.own_place:
            return self.own_place
        name = f"{self.tier}.{self.host}.{crc32(self.directory.encode()):08x}.sock"
        return self.place(name, f"/run/php/autotune-{self.tier}.sock")

    @property
    def document_root(self) -> str:
        """Where the files of the application are."""
        return self.place(f"{self.directory}/site", "/var/www/autotune")


@dataclass(frozen=True)
class Readback:
    """A command that shows what is in effect, and how to read values out of what it prints."""

    argv: Argv
    parse: Callable[[str], Settings]


@dataclass(frozen=True)
class TrialStart:
    """Proof that a configuration starts: ``argv`` runs beside the service until ``socket`` accepts."""

    argv: Argv
    socket: str


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The worst case of one service on one host; no rule limits a field that is empty.

    Expressions are over the service's own parameters by their bare names, in base units (a memory
    of 64 MB is 67108864). ``workers`` are the processes or threads that work on a request each, with
    connections of their own to the tiers behind. The service occupies ``processes`` of ``rss`` bytes
    each, and ``memory`` bytes beside; ``rss`` is used until a trial has measured the real figure,
    ``source`` says where it is from. ``connections`` are the clients it serves at one time,
    ``descriptors`` those one of its processes opens.
    """

    workers: str = ""
    processes: str = ""
    rss: int = 0
    memory: str = ""
    connections: str = ""
    descriptors: str = ""
    source: str = ""


@dataclass(frozen=True)
class Loader:
    """Commands that fill a store where it lives, so that no pair crosses the network.

    ``recorded`` prints the mark that the latest ``record(mark)`` left. ``write(first, count, mean)``
    writes ``count`` pairs from key number ``first`` on, their values of ``mean`` bytes. A store that
    prints ``busy`` is still loading its data: repeat the command. ``read(keys)`` prints their values, a
    line each.
    """

    recorded: Argv
    write: Callable[[int, int, int], Argv]
    record: Callable[[str], tuple[Argv, ...]]
    busy: str
    read: Callable[[Sequence[str]], Argv]


# The hint for a file that would lose entries because it is written as a whole.
REPLACED_WHOLE = (
    "without `replace: true` its own file is edited; a template of yours may have them, too"
)


@dataclass(frozen=True)
class Service:
    """A program of a tier, files that another program serves, or settings of the host.

    A new service overrides what it has; what it does not override does nothing. ``programs``: the
    name used in ``Site.programs`` → executables that will do, the first found is taken.
    ``packages`` are the distribution's (Debian's names) that bring them; ``elsewhere`` says who has
    them where the distribution does not. ``at_most`` are pairs (a, b) with a ≤ b, parameters or
    expressions over them; what ``a`` names is lowered where a candidate breaks it. ``runs_when``
    are values of its own parameters, by their bare names, under which it runs.

    ``config`` is where its configuration file is, for private processes and in the distribution,
    ``template`` what it is made from, by its ``{role}`` where that differs, ``unit_name`` the
    distribution's systemd unit.

    ``deployment`` is what a tier's ``service:`` says for it alone, ``role`` what it does there,
    ``port`` where it listens under the distribution's unit, unless the tier says otherwise. An
    application server has a ``gateway`` instead, the protocol it answers: each service that has it
    among its ``gateways`` forms a deployment with it (``nginx+php-fpm``). ``application`` is what a
    tier's ``app:`` says for files that an application server runs. A ``per_deployment`` service of
    the host is there once for each deployment, see ``beside``; a ``contained`` one only where services
    are isolated from their hosts. ``interpreter`` is the build of its language's interpreter
    that a service runs; the interpreter's settings are a service of their own beside it.

    ``runs_application``: a request keeps one of its processes until it is answered.
    ``reload_keeps_processes``: on a reload, its processes stay and read their files again.
    ``forgets_on_restart``: a restart empties it, and it has to be warmed up again. ``keeps_data``:
    its data are the user's, so it runs where they are, never privately and never as a choice.
    ``protocol``: what generators of load for it alone speak. ``unit_nofile`` and ``limits_template``:
    LimitNOFILE in the distribution's unit, and the drop-in that changes it. ``serving``: names of the
    processes that answer visitors, where those named after its programs only manage them.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    role: ClassVar[Role]
    deployment: ClassVar[str] = ""
    port: ClassVar[int] = 0
    gateway: ClassVar[str] = ""
    gateways: ClassVar[frozenset[str]] = frozenset()
    application: ClassVar[str] = ""
    per_deployment: ClassVar[bool] = False
    contained: ClassVar[bool] = False
    runs_application: ClassVar[bool] = False
    forgets_on_restart: ClassVar[bool] = False
    keeps_data: ClassVar[bool] = False
    protocol: ClassVar[str] = ""
    unit_nofile: ClassVar[Bound] = 1024
    limits_template: ClassVar[str] = "limits/limits.conf.j2"
    config: ClassVar[tuple[str, str]] = ("", "")
    template: ClassVar[str] = ""
    unit_name: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    elsewhere: ClassVar[str] = ""
    at_most: ClassVar[tuple[tuple[str, str], ...]] = ()
    reload_signal: ClassVar[str | None] = None
    reload_keeps_processes: ClassVar[bool] = False
    needs: ClassVar[Needs] = Needs()
    runs_when: ClassVar[Conditions] = ()
    serving: ClassVar[tuple[str, ...]] = ()

    @property
    def key(self) -> str:
        """What the registry and the command line call it: its name, unless two share one."""
        return self.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return ()

    @property
    def interpreter(self) -> str:
        return ""

    @property
    def programs(self) -> Programs:
        return {}

    @property
    def runs_privately(self) -> bool:
        """Whether it can be started beside its unit, for a study alone."""
        return type(self).start is not Service.start

    def config_path(self, site: Site) -> str:
        """Where its configuration file is."""
        return (site.own and site.own.main) or site.place(*self.config)

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        template = self.template.format(role=site.role)
        return (ConfigFile(self.config_path(site), template),) if template else ()

    def leaves(self, site: Site) -> tuple[str, ...]:
        """Files that the server itself makes, to be removed when the host is restored."""
        return ()

    def sysctls(self, site: Site, settings: Settings) -> Mapping[str, str]:
        """Kernel values by their names (``net.core.somaxconn``) that it sets on its host."""
        return {}

    def definition(self, site: Site, settings: Settings) -> Mapping[str, Value]:
        """What a ``contained`` service adds to the definition that its unit is made from."""
        return {}

    def unit(self, site: Site) -> str | None:
        """The distribution's systemd unit that runs it; ``None`` for one without processes."""
        return (site.own and site.own.unit) or self.unit_name or None

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv | TrialStart | None:
        """How the software itself validates the files in the working directory."""
        return None

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        """Foreground command; ``None`` for a service without a process of its own."""
        return None

    def socket(self, site: Site) -> str | Endpoint | None:
        """What accepts connections once the service is up: a path in the site, or an endpoint."""
        return site.listen if self.port else None

    def effective(self, site: Site) -> tuple[Readback, ...]:
        """Commands that show what is in effect."""
        return ()

    def unsaved(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        """A command for root on its host. It prints what a restart with these ``files`` would undo but
        must not, and below it what to type to keep that; nothing where all of it is in ``files``."""
        return None

    def beside(self, services: tuple[Service, ...]) -> Service | None:
        """A ``per_deployment`` service as it is for the deployment of these services; ``None`` where it
        has nothing to do with any of them."""
        return self

    def advice(self, facts: Mapping[str, float], running: Settings) -> Settings:
        """What a published tool advises for a host with these ``facts`` (see `HostFacts.names`) that
        runs these settings, by the parameters' bare names; nothing where there is no such tool."""
        return {}

    def expected_body(self, data: Data) -> bytes | None:
        """The body of an application's right answer, where that is known."""
        return None

    def loader(self, site: Site) -> Loader | None:
        """How to fill a store; ``None`` for what holds no data of its own."""
        return None

    def prefill(self, site: Site, pairs: Mapping[str, str]) -> tuple[Argv, bytes] | None:
        """The command that puts pairs into a cache in their order, and its input; ``None`` for one that
        only its clients fill. It prints something when all pairs are there."""
        return None


def config_files(service: Service, site: Site) -> tuple[ConfigFile, ...]:
    """The files of a service on a site: the host's own ones where it has some."""
    return service.files(site) if site.own is None else site.own.files
