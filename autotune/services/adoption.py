"""Adopt running services: find their configuration files and the parameters that are tunable."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from posixpath import dirname

from autotune.services.base import Role, Value
from autotune.services.config_files import Config, FileTree
from autotune.services.directives import AdoptionResult, Tunable, ValueCheck, map_directives
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

_LOOPBACK_PATTERN = re.compile(r"127\.|localhost\b|\[?::1\b")
_HOSTNAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)+")


@dataclass(frozen=True)
class Listener:
    """A program that listens on a TCP port. ``is_local`` is true if the program listens only on
    loopback. The name of an unknown program is empty.
    """

    program: str
    port: int
    is_local: bool

    def __str__(self) -> str:
        return f"{self.program or 'something'} ({self.port}{', locally' if self.is_local else ''})"


@dataclass(frozen=True, kw_only=True)
class RunningHost:
    """The part of a running host's state that adoption needs.

    ``units`` maps units to states; a running unit that is masked has the state ``masked``.
    ``processors`` is the number of online CPUs, regardless of CPU quotas. ``backlogs`` maps
    listening sockets (path or port) to queue lengths. ``effective`` maps a deployment, a port and a
    service to the parameter values that the running service reports.
    """

    tree: FileTree
    units: Mapping[str, str] = field(default_factory=dict)
    processors: int = 1
    backlogs: Mapping[str, int] = field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    effective: Mapping[tuple[str, int, str], Mapping[str, Value]] = field(default_factory=dict)

    def with_tree(self, file_tree: FileTree) -> RunningHost:
        """Return a copy of this host whose files are those in ``file_tree``."""
        return replace(self, tree=file_tree)

    def is_active(self, unit: str) -> bool:
        return self.units.get(unit) == "active"

    def is_active_masked(self, unit: str) -> bool:
        """True if the unit is running but the service manager would not start it again."""
        return self.units.get(unit) == "masked"


@dataclass(frozen=True, kw_only=True)
class RunningService:
    """A service that is running on a host.

    ``key`` is the service's key in the registry. ``tier_kind`` is the kind of the service's tier:
    lb, http_cache, web, app, cache, store or db. ``port`` is the TCP port; ``listen_address`` is a
    socket or an address, for clients that need more than the port. ``backends`` lists the servers
    to which the service forwards requests, as ``host:port``. ``gateway_protocol`` is the protocol
    between the service and an application server, and ``gateway_addresses`` are the application
    server's addresses. ``instance`` distinguishes several versions of the service on one host.
    ``role`` is the service's role in the deployment. ``tls`` is true if ``port`` uses TLS; a port
    without TLS is preferred. ``hostname`` is the host name of a site that the service serves.
    ``restart_loss`` describes the data that a restart loses, or is empty. ``unit`` is set only if
    the name of the systemd unit or the service's main file differs from Debian's.
    """

    key: str
    host: RunningHost
    config: Config
    tier_kind: str = ""
    port: int = 0
    listen_address: str = ""
    backends: tuple[str, ...] = ()
    gateway_protocol: str = ""
    gateway_addresses: tuple[str, ...] = ()
    instance: str = ""
    role: Role = Role.WEB
    tls: bool = False
    hostname: str = ""
    restart_loss: str = ""
    unit: str = ""


@dataclass(frozen=True)
class DistributionLayout:
    """The systemd unit, main configuration file and program directory of a service on
    ``distributions``.

    If several instances may run on one host, the paths contain ``{version}`` and ``{name}``.
    """

    distributions: str
    unit: str
    main_file: str
    program_directory: str = ""
    version: str = ""
    name: str = ""

    def for_instance(self, version: str = "", name: str = "") -> DistributionLayout:
        """Return the layout of one instance, with the version and name filled in."""
        unit, main_file, programs = (
            path_template.format(version=version, name=name)
            for path_template in (self.unit, self.main_file, self.program_directory)
        )
        return DistributionLayout(self.distributions, unit, main_file, programs, version, name)

    def match_instance(self, unit_or_path: str) -> DistributionLayout | None:
        """Return the layout of the instance that ``unit_or_path`` belongs to, or ``None``.

        ``unit_or_path`` is the name of a systemd unit, or a path in the directory of a main configuration
        file.
        """
        for pattern in (re.escape(self.unit), f"{re.escape(dirname(self.main_file))}/.*"):
            instance_pattern = pattern.replace(r"\{version\}", "(?P<version>[0-9.]+)")
            match = re.fullmatch(
                instance_pattern.replace(r"\{name\}", "(?P<name>[^/]+)"), unit_or_path
            )
            if match:
                return self.for_instance(**match.groupdict())
        return None

    @property
    def unit_unless_debian(self) -> str:
        """Return the value for `RunningService.unit`: the systemd unit, or an empty string on
        Debian.
        """
        return "" if self.distributions.startswith("Debian") else self.unit


class DistributionLayouts(tuple[DistributionLayout, ...]):
    """All layouts of a service, one per distribution."""

    __slots__ = ()

    def match_instance(self, unit_or_path: str) -> DistributionLayout | None:
        """Return the first layout that a unit or a file belongs to."""
        return next(filter(None, (layout.match_instance(unit_or_path) for layout in self)), None)

    def select_for_host(self, host: RunningHost) -> DistributionLayout | None:
        """Return the first layout whose unit is running and whose main file exists, or else Debian's
        layout if Debian's unit is running.
        """
        active_layouts = [layout for layout in self if host.is_active(layout.unit)]
        present_layouts = (
            layout
            for layout in active_layouts
            if host.tree.resolve(layout.main_file) in host.tree.files
        )
        return next(present_layouts, None) or next(
            (layout for layout in active_layouts if not layout.unit_unless_debian), None
        )

    @property
    def other_units(self) -> tuple[str, ...]:
        """Return the units that do not exist on Debian, for `Adoption.other_units`."""
        debian_units = {layout.unit for layout in self if not layout.unit_unless_debian}
        return tuple(
            dict.fromkeys(layout.unit for layout in self if layout.unit not in debian_units)
        )

    @property
    def running_condition(self) -> str:
        """Return a shell condition that is true if any of the service's units is running, for
        `Adoption.version_script`.
        """
        return "{ " + " || ".join(f"runs {layout.unit}" for layout in self) + "; }"


# Returns the reason why an unread file may set the parameter with a given name, or an empty string.
HiddenReason = Callable[[str], str]


def explain_unread(
    config: Config, may_set: Callable[[str, tuple[tuple[str, ...], ...]], bool] = lambda *_: True
) -> HiddenReason:
    """Return a function that explains which unread configuration file may set a given parameter.

    ``may_set`` returns true if a file that is included inside the given blocks may set the
    parameter.
    """

    def explain(parameter_name: str) -> str:
        reasons = (
            f"{path} may set it, but was not read: {reason}"
            for path, reason in config.unread_files.items()
            if may_set(parameter_name, config.unread_blocks.get(path, ()))
        )
        return next(reasons, "")

    return explain


TuneFunction = Callable[[RunningService, ValueCheck], AdoptionResult]
TunablesFunction = Callable[[RunningService], Iterable[Tunable]]


@dataclass(frozen=True)
class Adoption:
    """How to detect a service on a host, and how to tune the service's own configuration files.

    ``title`` is the service's display name. ``units`` are systemd units (names or patterns), and
    ``other_units`` are the units on other distributions. ``paths`` are the service's configuration
    files and directories below ``/`` (names or shell patterns). ``version_script`` is a shell line that
    prints the service's name and version. The script may call ``runs UNIT`` to test whether a unit is
    running. ``find_services`` yields running services, and reasons why a service is not tuned. If each
    parameter is a separate directive, ``list_tunables`` returns the parameters. Otherwise,
    ``tune_parameters`` returns the edits that tune the parameters. ``visible`` determines which words
    in the service's files may be shown. ``explain_hidden`` returns a function that explains which
    unread file may set a parameter. ``new_file_modes`` are the modes (permissions) of files that do not
    exist yet, by path.
    """

    title: str
    units: tuple[str, ...]
    other_units: tuple[str, ...] = field(default=(), kw_only=True)
    paths: tuple[str, ...]
    version_script: str
    find_services: Callable[[RunningHost], Iterator[RunningService | str]]
    visible: VisibleDirectives
    tune_parameters: TuneFunction | None = None
    list_tunables: TunablesFunction = lambda _: ()
    explain_hidden: Callable[[Config], HiddenReason] = explain_unread
    new_file_modes: Mapping[str, int] = field(default_factory=dict, kw_only=True)

    def adopt(self, running_service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
        """Return the tunable parameters of a running service, their current values, and edits of
        its files.
        """
        hidden_reason = self.explain_hidden(running_service.config)
        adoption_result = self._tune_parameters(
            running_service,
            lambda name, value: not hidden_reason(name) and accepts_value(name, value),
        )
        hidden_reasons = {name: hidden_reason(name) for name in adoption_result.skipped}
        adoption_result.skipped.update(
            {name: reason for name, reason in hidden_reasons.items() if reason}
        )
        return adoption_result

    def _tune_parameters(
        self, running_service: RunningService, accepts_value: ValueCheck
    ) -> AdoptionResult:
        if self.tune_parameters is not None:
            return self.tune_parameters(running_service, accepts_value)
        return map_directives(
            running_service.config, self.list_tunables(running_service), accepts_value
        )


def with_http_port(
    running_service: RunningService,
    title: str,
    addresses: Iterable[tuple[str, bool]],
    programs: Collection[str] = (),
) -> RunningService | str:
    """Return ``running_service`` with its port, or the reason why the service is not adopted.

    ``addresses`` contains HTTP addresses, each with a flag for TLS. ``programs`` are the names of the
    service's processes. If the kernel shows on which ports these processes listen, other ports are
    skipped. Addresses that other hosts can reach take precedence over loopback addresses. Among the
    remaining addresses, ports without TLS take precedence over ports with TLS.
    """
    listen_endpoints = [
        (address, int(port), uses_tls)
        for address, uses_tls in addresses
        if is_uint(port := address.rpartition(":")[2])
    ]
    listening_ports = {
        listener.port for listener in running_service.host.listeners if listener.program in programs
    }
    active_endpoints = [
        endpoint
        for endpoint in listen_endpoints
        if not listening_ports or endpoint[1] in listening_ports
    ]
    if listen_endpoints and not active_endpoints:
        file_ports = ", ".join(
            str(port) for port in dict.fromkeys(port for _, port, _ in listen_endpoints)
        )
        actual_ports = ", ".join(map(str, sorted(listening_ports)))
        return f"{title} is not tuned: its files set port {file_ports}, but it listens on {actual_ports}"
    if not listen_endpoints:
        unread_note = "".join(
            f" ({path}: {reason})" for path, reason in running_service.config.unread_files.items()
        )
        return f"{title} listens on no TCP port{unread_note}: set `load: {{url: …}}` manually to load it"
    chosen_endpoint = min(
        active_endpoints, key=lambda endpoint: (is_loopback(endpoint[0]), endpoint[2])
    )
    return replace(running_service, port=chosen_endpoint[1], tls=chosen_endpoint[2])


def is_loopback(address: str) -> bool:
    """True if only the host itself can reach the address."""
    return bool(_LOOPBACK_PATTERN.match(address))


def select_hostname(candidate_words: Iterable[str]) -> str:
    """Return the first word that is a valid host name for a URL, or an empty string."""
    return next((word for word in candidate_words if _HOSTNAME_PATTERN.fullmatch(word)), "")
