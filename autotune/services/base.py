"""Interface of a service: data and pure functions, without I/O."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeVar
from zlib import crc32

from autotune.target.model import Data

Value = bool | int | float | str
Bound = int | float | str  # a string is an expression of host facts, such as "2 * cpus"
Settings = Mapping[str, Value]
Argv = tuple[str, ...]
Programs = Mapping[str, tuple[str, ...]]
# names of parameters, each with the accepted values
Conditions = tuple[tuple[str, tuple[Value, ...]], ...]
Private = TypeVar("Private")
Installed = TypeVar("Installed")


class Action(enum.IntEnum):
    """The actions that can apply a change, in ascending order of cost."""

    NONE = 0
    RELOAD = 1
    RESTART = 2


class Effect(enum.StrEnum):
    """How much a parameter is expected to affect capacity, according to documentation and
    experience.
    """

    # tens of percent of capacity; examples are limits on workers, connections or memory
    CAPACITY = "capacity"
    SMALL = "small"  # a few percent of capacity at most
    COSMETIC = "cosmetic"  # no measurable effect, except at harmful values


class LoadTrait(enum.StrEnum):
    """A property of a load that makes otherwise minor parameters decisive."""

    TLS = "tls"  # connections are encrypted
    TLS_REUSE = "tls-reuse"  # encrypted connections are used for several requests
    CHURN = "churn"  # clients open a new connection for every request


class Role(enum.StrEnum):
    """The function of a service in its tier."""

    PROXY = "proxy"
    HTTP_CACHE = "http_cache"  # caches responses of the web servers behind it
    WEB = "web"
    APP = "app"
    CACHE = "cache"
    STORE = "store"
    DATABASE = "database"  # an SQL database whose data belong to the user
    LOCAL = "local"  # runs next to the application on each of the application's hosts
    HOST = "host"  # the host itself: kernel settings and resource limits


@dataclass(frozen=True)
class Parameter:
    """One setting of a service, with the name that the software uses.

    A number has ``choices``, or the inclusive bounds ``low`` and ``high``. Any other parameter has
    ``choices``, such as true and false for a switch. ``stock`` is the distribution's default.
    ``recommended`` is the value recommended by documentation or common guides. ``published`` maps
    roles to the best value in published measurements of a multi-tier stack. ``when`` lists sibling
    parameters, and the values that they must have for this parameter to take effect. ``built_in``
    is true if the available choices depend on the program's build; each choice is validated before
    the search. ``derive`` is an expression that computes the value from sibling parameters; such a
    value is not searched. ``adopted`` parameters are tuned only in a host's own files, because
    shipped templates do not contain them. ``on_demand`` parameters keep their stock value unless
    the target sets a range or choices. Such parameters have side effects, such as more disk usage
    or a larger attack surface. ``capped_by`` is the kernel setting that limits the value.
    ``special_values`` maps values such as -1 (automatic) to expressions of the values that the
    software uses instead. Rules use these expressions, over sibling parameters in base units.
    ``effect`` is the expected effect on capacity; under a load with a trait in ``decides``, the
    effect is in the highest class. ``direction`` is `+` if tuning guides recommend raising the
    value, and `-` if they recommend lowering it. The search starts in the range ``safe``, which no
    tuning guide warns against.
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
    special_values: Mapping[Value, str] = field(default_factory=dict)
    effect: Effect = Effect.CAPACITY
    decides: frozenset[LoadTrait] = frozenset()
    direction: str = ""
    safe: tuple[Bound, Bound] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stock, bool) and not self.choices:
            object.__setattr__(self, "choices", (self.stock, not self.stock))


# Constructors of parameters, named after the action that applies a change.
at_once = partial(Parameter, action=Action.NONE)
on_reload = partial(Parameter, action=Action.RELOAD)
on_restart = partial(Parameter, action=Action.RESTART)
SOMAXCONN = "net.core.somaxconn"  # limits the accept queue of a socket
build_accept_queue = partial(on_restart, low=64, high=65_535, log=True, recommended=4096,
    capped_by=SOMAXCONN,
    meaning="Maximum number of connections that wait to be accepted."
            " The kernel limits it to somaxconn.")  # fmt: skip


def with_guidance(
    parameters: tuple[Parameter, ...],
    capacity: str = "",
    small: str = "",
    safe: Mapping[str, tuple[Bound, Bound]] | None = None,
    decides: Mapping[LoadTrait, str] | None = None,
) -> tuple[Parameter, ...]:
    """Return ``parameters`` with the advice of tuning guides.

    ``capacity`` and ``small`` list the parameters with effect ``CAPACITY`` and ``SMALL``, each with the
    recommended direction (``backlog+``). ``safe`` maps parameter names to safe ranges.
    ``decides`` maps each load trait to the parameters that the trait makes decisive. Parameters in
    neither ``capacity`` nor ``small`` are cosmetic.
    """
    effects_by_name = {
        name.rstrip("+-"): (effect, name[len(name.rstrip("+-")) :])
        for effect, names in ((Effect.CAPACITY, capacity), (Effect.SMALL, small))
        for name in names.split()
    }
    safe_ranges = safe or {}
    names_by_trait = {trait: names.split() for trait, names in (decides or {}).items()}
    named_parameters = set(effects_by_name).union(safe_ranges, *names_by_trait.values())
    if unknown_names := named_parameters - {parameter.name for parameter in parameters}:
        raise ValueError(f"guidance for unknown parameters: {', '.join(sorted(unknown_names))}")
    return tuple(
        replace(
            parameter,
            effect=effect,
            direction=direction,
            safe=safe_ranges.get(parameter.name),
            decides=frozenset(
                trait for trait, names in names_by_trait.items() if parameter.name in names
            ),
        )
        for parameter in parameters
        for effect, direction in (effects_by_name.get(parameter.name, (Effect.COSMETIC, "")),)
    )


def conditions_hold(conditions: Conditions, settings: Settings) -> bool:
    """True if each parameter in ``conditions`` is set to an accepted value."""
    return all(settings.get(name) in allowed_values for name, allowed_values in conditions)


@dataclass(frozen=True)
class Endpoint:
    """The address of a listening server. As text, an IPv6 address is in brackets, as in URLs."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ConfigFile:
    """A file that a service reads, and that autotune renders from a template.

    ``path`` is relative to the working directory for private processes, and absolute for the
    distribution's units. ``text`` is an inline template. An ``optional`` file is not created if its
    rendered content is empty. ``digest`` is the SHA-256 digest of the host's file from which the
    template was made; it is empty for all other files.
    """

    path: str
    template: str
    mode: int = 0o644
    text: str | None = None
    optional: bool = False
    digest: str = ""


@dataclass(frozen=True)
class AdoptedConfig:
    """A host's own configuration files for a service, as templates with tunable values.

    ``listen`` is the service's address, if other services on the host connect to it. ``loses``
    describes the data that a restart would lose; if it is set, the unit is neither changed nor
    restarted. ``unit`` and ``main`` are the systemd unit and the main file if they differ from
    Debian's. ``deployment`` is the deployment to which the files belong, and is empty unless the
    tier has several deployments.
    """

    files: tuple[ConfigFile, ...] = ()
    listen: str = ""
    loses: str = ""
    unit: str = ""
    main: str = ""
    deployment: str = ""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """All data that a service's files and commands need on one host, except the service's settings.

    In configuration files, paths are relative to ``directory``, the working directory of the processes.
    Relative paths keep socket paths short in deep study directories. For the distribution's units,
    paths are absolute, and a trial start may write to ``directory``. ``uses`` lists the addresses of
    all services that the tier's application calls; ``caches`` lists only caches, and ``stores`` only
    stores. ``local_cache`` is the address of the host's local cache, if the tier may have one. ``user``
    is the account of the processes, or ``None`` for the account that starts them. ``installed`` is true
    for the distribution's units, and false for private processes. ``adopted`` is set if templates made
    from the host's files replace the service's templates. ``unit`` is the name of the systemd unit, and
    is empty for the distribution's own unit.
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
    local_cache: Endpoint | None = None
    user: str | None = None
    group: str | None = None
    installed: bool = False
    programs: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Value] = field(default_factory=dict)
    adopted: AdoptedConfig | None = None
    unit: str = ""

    def choose(self, private: Private, installed: Installed) -> Private | Installed:
        """Return ``private`` for private processes, or ``installed`` for the distribution's
        units.
        """
        return installed if self.installed else private

    @property
    def adopted_address(self) -> str:
        """Return the listening address in the host's own files, or an empty string if no files are
        adopted.
        """
        return self.adopted.listen if self.adopted else ""

    @property
    def socket_name(self) -> str:
        """Return a name for a Unix socket. The name is unique to the study, because ``ss`` lists all
        sockets on the host.
        """
        if self.adopted_address:
            return self.adopted_address
        private_name = f"{self.tier}.{self.host}.{crc32(self.directory.encode()):08x}.sock"
        return self.choose(private_name, f"/run/php/autotune-{self.tier}.sock")

    @property
    def document_root(self) -> str:
        """Return the directory that contains the application's files."""
        return self.choose(f"{self.directory}/site", "/var/www/autotune")


@dataclass(frozen=True)
class Readback:
    """A command that prints the effective values of parameters, and a parser for its output.

    Before a study, ``adoption_argv`` confirms the values in the host's own files, if it is set.
    """

    argv: Argv
    parse: Callable[[str], Settings]
    adoption_argv: Argv | None = None


@dataclass(frozen=True)
class ServerCheck:
    """A command that prints the states of a load balancer's servers, and a parser for the output. The
    command runs as root.

    ``parse`` returns the names of the servers that receive no requests because they failed.
    ``parse`` raises ValueError if the output contains no server states.
    """

    argv: Argv
    parse: Callable[[str], tuple[str, ...]]


@dataclass(frozen=True)
class TrialStart:
    """Validation by a trial start: ``argv`` runs next to the service until ``socket`` accepts
    connections.
    """

    argv: Argv
    socket: str


@dataclass(frozen=True, kw_only=True)
class ResourceNeeds:
    """The maximum resources that one service may use on one host. An empty field means no limit.

    Expressions contain the service's parameters by bare name, in base units (64 MB is 67108864).
    ``workers`` is the number of processes or threads that handle requests. Each worker handles one
    request at a time, and has separate connections to the back-end tiers. The service runs
    ``processes`` processes of ``rss`` bytes each, and uses ``memory`` bytes in addition. ``rss`` is an
    estimate that applies until a trial has measured the real size. ``source`` documents the origin of
    the figures. ``connections`` is the number of concurrent clients, and ``descriptors`` the number of
    open files in one process.
    """

    workers: str = ""
    processes: str = ""
    rss: int = 0
    memory: str = ""
    connections: str = ""
    descriptors: str = ""
    source: str = ""


@dataclass(frozen=True)
class StoreLoader:
    """Commands that fill a store on its own host, so that key-value pairs are not sent over the
    network.

    The commands of ``build_mark_commands(mark)`` label the stored data set, and
    ``read_mark_command`` prints the latest label. ``build_write_command(first, count, mean)``
    writes ``count`` pairs, starting with key number ``first``, with values of ``mean`` bytes on
    average. If the output contains ``busy_text``, the store is still loading its data, and the
    command must be repeated. ``build_read_command(keys)`` prints one value per line.
    """

    read_mark_command: Argv
    build_write_command: Callable[[int, int, int], Argv]
    build_mark_commands: Callable[[str], tuple[Argv, ...]]
    busy_text: str
    build_read_command: Callable[[Sequence[str]], Argv]


# The hint for a file whose entries would be lost if autotune replaced the file.
FILE_REPLACED_HINT = (
    "remove `replace: true` to edit the file, or add the entries to your own template"
)


@dataclass(frozen=True)
class Service:
    """A program in a tier, files that another program serves, or settings of the host.

    A subclass overrides the attributes and methods that apply to its service. The defaults have no
    effect.

    ``programs`` maps names in ``Placement.programs`` to executables. For each name, the first
    executable that exists is used. ``packages`` are the Debian packages that contain the executables;
    ``package_source`` names the source of other packages. ``ordering_rules`` contains pairs (a, b) of
    parameters or expressions with a ≤ b; ``a`` is lowered in a candidate configuration that violates a
    rule. ``runs_when`` lists the service's own parameters, by bare name, and the values with which the
    service runs.

    ``config_paths`` contains two paths of the service's configuration file: for private processes, and
    for the distribution's unit. ``template`` is the path of the file's template, with ``{role}`` if the
    template depends on the role. ``unit_name`` is the distribution's systemd unit.

    ``deployment`` is the service's name under a tier's ``service:``, and ``other_names`` are common
    names of the service or of similar software. ``role`` is the service's function in the deployment.
    ``port`` is the default port of the distribution's unit. An application server has no port, but a
    ``gateway_protocol``. Each service that lists the application server's protocol in
    ``gateway_protocols`` forms a deployment with this server (``nginx+php-fpm``). ``application`` is
    the name under a tier's ``app:`` for files that an application server runs.

    A ``per_deployment`` host service exists once per deployment; see ``for_deployment``. An
    ``isolated_only`` service exists only on runtimes that isolate services from their hosts.
    ``interpreter`` names the build of the language interpreter (``fpm``), whose settings are tuned as a
    separate service. ``runs_application`` is true if each request occupies a process until the response
    is sent.

    ``unit_reloads`` is true if a reload of the unit rereads the files, but no signal does.
    ``reload_keeps_processes`` is true if processes survive a reload and reread their files.
    ``forgets_on_restart`` is true if a restart empties the service's cache, which then needs a warm-up.
    ``keeps_data`` is true if the data belong to the user. A service that keeps data never runs as a
    private process, and the search never chooses it instead of another service. ``load_protocol`` is
    the protocol of load generators that can test this service alone. ``unit_nofile`` is LimitNOFILE in
    the distribution's unit, and ``limits_template`` the template of the drop-in that changes this
    limit. ``serving_processes`` names the processes that serve requests, if ``programs`` only manage
    these processes.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    role: ClassVar[Role]
    deployment: ClassVar[str] = ""
    other_names: ClassVar[tuple[str, ...]] = ()
    port: ClassVar[int] = 0
    gateway_protocol: ClassVar[str] = ""
    gateway_protocols: ClassVar[frozenset[str]] = frozenset()
    application: ClassVar[str] = ""
    per_deployment: ClassVar[bool] = False
    isolated_only: ClassVar[bool] = False
    runs_application: ClassVar[bool] = False
    forgets_on_restart: ClassVar[bool] = False
    keeps_data: ClassVar[bool] = False
    load_protocol: ClassVar[str] = ""
    unit_nofile: ClassVar[Bound] = 1024
    limits_template: ClassVar[str] = "limits/limits.conf.j2"
    config_paths: ClassVar[tuple[str, str]] = ("", "")
    template: ClassVar[str] = ""
    unit_name: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    package_source: ClassVar[str] = ""
    ordering_rules: ClassVar[tuple[tuple[str, str], ...]] = ()
    reload_signal: ClassVar[str | None] = None
    unit_reloads: ClassVar[bool] = False
    reload_keeps_processes: ClassVar[bool] = False
    needs: ClassVar[ResourceNeeds] = ResourceNeeds()
    runs_when: ClassVar[Conditions] = ()
    serving_processes: ClassVar[tuple[str, ...]] = ()

    @property
    def key(self) -> str:
        """Return the service's key in the registry and on the command line. The key is the
        service's name, unless two services share that name.
        """
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
    def can_run_privately(self) -> bool:
        """True if a private instance of the service can run next to its unit during a study."""
        return type(self).build_start_command is not Service.build_start_command

    def config_path(self, placement: Placement) -> str:
        """Return the path of the service's configuration file."""
        return (placement.adopted and placement.adopted.main) or placement.choose(
            *self.config_paths
        )

    def list_config_files(self, placement: Placement) -> tuple[ConfigFile, ...]:
        template_name = self.template.format(role=placement.role)
        return (ConfigFile(self.config_path(placement), template_name),) if template_name else ()

    def list_created_files(self, placement: Placement) -> tuple[str, ...]:
        """Return the files that the server itself creates, and that a restore of the host removes."""
        return ()

    def build_sysctls(self, placement: Placement, settings: Settings) -> Mapping[str, str]:
        """Return the kernel settings, such as ``net.core.somaxconn``, that the service sets on its
        host.
        """
        return {}

    def build_container_limits(
        self, placement: Placement, settings: Settings
    ) -> Mapping[str, Value]:
        """Return the resource limits that an ``isolated_only`` service adds to the definition of
        its container.
        """
        return {}

    def get_unit(self, placement: Placement) -> str | None:
        """Return the systemd unit that runs the service, or ``None`` for a service without
        processes.
        """
        return (placement.adopted and placement.adopted.unit) or self.unit_name or None

    def build_validation(
        self, placement: Placement, files: Mapping[str, bytes]
    ) -> Argv | TrialStart | None:
        """Return the command with which the software validates files in the working directory."""
        return None

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        """Return the command that starts the service in the foreground, or ``None`` if another
        program serves its files.
        """
        return None

    def get_socket(self, placement: Placement) -> str | Endpoint | None:
        """Return the address at which the running service accepts connections: a socket's path in
        the working directory, or an endpoint.
        """
        return placement.listen if self.port else None

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        """Return the commands that print the effective values of parameters."""
        return ()

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        """Return the commands that print the effective values of the configuration files, without a
        running server.

        The commands change nothing, and run while candidate files are mounted at the paths of the
        configuration files.
        """
        return ()

    def build_server_check(self, placement: Placement) -> ServerCheck | None:
        """Return the check of a load balancer's servers, or ``None`` if the load balancer does not
        report the states of its servers.
        """
        return None

    def find_recovery_seconds(self, files: Mapping[str, bytes]) -> float:
        """Return the longest time in seconds until the service uses a recovered server again.

        ``files`` are the load balancer's configuration files. The result is 0 if the service
        retries failed servers immediately.
        """
        return 0.0

    def build_unpersisted_check(
        self, placement: Placement, files: Mapping[str, bytes], *, allows_data_loss: bool = False
    ) -> Argv | None:
        """Return a command for root that prints which settings, data or cluster a restart with ``files``
        would lose.

        The first line of the output describes the problem, and the second line describes the fix.
        The output is empty if a restart loses nothing, or only data that may be lost.
        """
        return None

    def for_deployment(self, services: tuple[Service, ...]) -> Service | None:
        """Return this ``per_deployment`` service for a deployment of ``services``, or ``None`` if
        the deployment does not need it.
        """
        return self

    def recommend_settings(
        self, facts: Mapping[str, float], current_settings: Settings
    ) -> Settings:
        """Return the settings that a published tool recommends, by bare parameter name.

        ``facts`` are host facts (see `HostFacts.names`). The result is empty if no published tool
        recommends settings for the service.
        """
        return {}

    def expected_body(self, data_set: Data) -> bytes | None:
        """Return the body of a correct response from the application, or ``None`` for an unknown
        application.
        """
        return None

    def build_loader(self, placement: Placement) -> StoreLoader | None:
        """Return the commands that fill a store, or ``None`` if the service stores no data."""
        return None

    def build_prefill_command(
        self, placement: Placement, pairs: Mapping[str, str]
    ) -> tuple[Argv, bytes] | None:
        """Return the command that writes ``pairs`` into a cache, in the order of the mapping, and the
        command's standard input.

        The result is ``None`` if only clients can fill the cache. The command prints text once all
        pairs are stored.
        """
        return None


def resolve_config_files(service: Service, placement: Placement) -> tuple[ConfigFile, ...]:
    """Return the host's own files if autotune adopted them, or else the service's files."""
    return (
        service.list_config_files(placement)
        if placement.adopted is None
        else placement.adopted.files
    )


def build_user_prefix(user: str | None, group: str | None) -> Argv:
    """Return a ``setpriv`` (util-linux) prefix for servers that cannot switch to another user
    themselves.

    The result is empty if ``user`` is ``None``.
    """
    if user is None:
        return ()
    return ("setpriv", f"--reuid={user}", f"--regid={group or ''}", "--init-groups")
