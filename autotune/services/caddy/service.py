"""Caddy as a load balancer, or as a web server in front of PHP-FPM.

Caddy has one process, which rereads its Caddyfile on `caddy reload`, but not on a signal. Environment
variables configure Go's runtime, so changing them needs a restart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import ClassVar

from autotune.services.base import (
    Argv,
    ConfigFile,
    Placement,
    Programs,
    Readback,
    ResourceNeeds,
    Role,
    Service,
    Settings,
    Value,
    build_user_prefix,
    on_reload,
    on_restart,
    with_guidance,
)
from autotune.services.diagnosis import Diagnosis, Resource
from autotune.services.readback import parse_number
from autotune.services.unit_files import UNIT_RUN_SCRIPT, get_drop_in_path
from autotune.strict_parsing import parse_json, split_lines

GO_DOCS, PROXY_DOCS = "pkg.go.dev/runtime, Environment Variables", "caddyserver.com, reverse_proxy"
PROXY_ROLE, POOL = frozenset({Role.PROXY}), "keepalive_idle_conns_per_host"

PARAMETERS = with_guidance((
    on_restart("gomaxprocs", "Number of threads that run Caddy's code. The default is one per CPU.",
        low=1, high="2 * cpus", stock="cpus", recommended="cpus", source=GO_DOCS),
    on_restart("gogc",
        "Heap growth in percent that triggers a garbage collection. High values save CPU but need"
        " memory.",
        low=50, high=1600, log=True, stock=100, source=GO_DOCS),
    on_reload("lb_policy", "Load-balancing method, if there are several web hosts.",
        choices=("random", "round_robin", "least_conn"), stock="random", roles=PROXY_ROLE,
        source=PROXY_DOCS),
    # In Caddy's issue 2805, 1000 connections reduced the mean latency from 2.94 ms to 0.68 ms.
    on_reload(POOL, "Maximum number of idle connections per web host.",
        low=2, high=4096, log=True, stock=32, recommended=1000, roles=PROXY_ROLE,
        source=f"{PROXY_DOCS}; github.com/caddyserver/caddy, issue 2805"),
    on_reload("max_conns_per_host",
        "Maximum number of connections per web host. Further requests wait; 0 means no limit.",
        # Without a limit, there are at most as many connections to a web host as local ports.
        low=0, high=1024, stock=0, special_values={0: "65535"}, roles=PROXY_ROLE, source=PROXY_DOCS),
    on_reload("compression",
        "Request compressed responses from web hosts, even if the client does not accept them.",
        stock=True, roles=PROXY_ROLE, source=PROXY_DOCS),
),
    capacity="gomaxprocs gogc+ lb_policy keepalive_idle_conns_per_host+ max_conns_per_host",
    small="compression-",
    safe={"gogc": (100, 800), "gomaxprocs": (1, "cpus"), POOL: (32, 2048)},
)  # fmt: skip

UNIT_NAME = "caddy.service"
# Arguments: directory, unit. Prints the Go runtime's variables in Caddy's environment.
# A private process has no unit, but a file with its process ID.
_ENVIRONMENT_SCRIPT = """
cd "$1" || exit
if [ -n "$2" ]; then pid=$(systemctl show --value -p MainPID -- "$2")
else read -r pid rest <caddy.pid-of; fi
tr '\\0' '\\n' <"/proc/$pid/environ" | grep -E '^(GOMAXPROCS|GOGC)='
"""
# Debian always has perl-base, but no HTTP client. The address is `host:port`, or the path of a socket
# relative to the directory, because an absolute path may be too long. Caddy checks the header `Host`.
_ADMIN_CLIENT = (
    "perl",
    "-MIO::Socket::IP",
    "-MIO::Socket::UNIX",
    "-e",
    (
        "my ($directory, $address) = @ARGV; chdir $directory; $address =~ s/^:/localhost:/;"
        " my $is_tcp = $address =~ /:\\d+$/;"
        " my $s = ($is_tcp ? IO::Socket::IP->new(PeerAddr => $address, Timeout => 5)"
        " : IO::Socket::UNIX->new($address)) or die qq($!\\n);"
        " print $s qq(GET /config/ HTTP/1.0\\r\\nHost: ), $is_tcp ? $address : q(), qq(\\r\\n\\r\\n);"
        " print while <$s>"
    ),
)
_UNKNOWN = "unknown"
_VARIABLE_PATTERN = re.compile(r"(?m)^(GOMAXPROCS|GOGC)=(\S+)$")


class Caddy(Service):
    """In role ``proxy``, Caddy distributes requests over the hosts of the tier behind it. In role
    ``web``, Caddy forwards requests to PHP-FPM.
    """

    name = "caddy"
    title = "Caddy"
    deployment = "caddy"
    role = Role.PROXY
    port = 80
    config_paths = ("Caddyfile", "/etc/caddy/Caddyfile")
    template = "caddy/{role}.conf.j2"
    unit_name = UNIT_NAME
    # The value of LimitNOFILE in Debian's unit.
    unit_nofile = "min(1048576, nofile)"
    unit_reloads = True
    reload_keeps_processes = True
    gateway_protocols = frozenset({"fastcgi"})
    packages = ("caddy",)
    programs: ClassVar[Programs] = {"caddy": ("caddy",)}
    parameters = PARAMETERS
    needs = ResourceNeeds(
        # The heap grows by `gogc` percent before a garbage collection.
        memory="64 MB + gogc * 176 KB",
        source="peak resident size of 2.6 with 300 connections, for three values of `gogc`",
    )

    def list_config_files(self, placement: Placement) -> tuple[ConfigFile, ...]:
        environment_path = placement.choose("caddy.env", get_drop_in_path(UNIT_NAME))
        return (
            *super().list_config_files(placement),
            ConfigFile(environment_path, "caddy/environment.conf.j2"),
        )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        command = self._build_command(placement, "validate")
        # In a container, `unit` is set, and systemd is missing.
        if not placement.installed or placement.unit:
            return command
        # The validation may create log files and certificates. The unit's account runs the validation,
        # because Caddy cannot use root's files. The last word of the command is the script's second
        # argument.
        unit = self.get_unit(placement) or UNIT_NAME
        return ("sh", "-c", UNIT_RUN_SCRIPT, "sh", unit, command[-1], *command[:-1])

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        user_prefix = build_user_prefix(placement.user, placement.group)
        variables = files.get("caddy.env", b"").decode().split()
        return (*user_prefix, "env", *variables, *self._build_command(placement, "run"))

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        directory = placement.choose(placement.directory, "/")
        unit = placement.choose("", self.get_unit(placement) or UNIT_NAME)
        admin_address = placement.adopted_address or placement.choose(
            "caddy.sock", "localhost:2019"
        )
        return (
            Readback(("sh", "-c", _ENVIRONMENT_SCRIPT, "sh", directory, unit), parse_effective),
            Readback((*_ADMIN_CLIENT, directory, admin_address), parse_effective),
        )

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (Readback(self._build_command(placement, "adapt"), parse_effective),)

    def _build_command(self, placement: Placement, subcommand: str) -> Argv:
        """Return the command that runs one of Caddy's subcommands. Private processes store their data
        in the working directory.
        """
        # Without STEPPATH, each command would create `.step` in the home directory.
        variables = (
            "STEPPATH=/tmp",
            *placement.choose(("XDG_DATA_HOME=.", "XDG_CONFIG_HOME=."), ()),
        )
        options = (f"--config={self.config_path(placement)}", "--adapter", "caddyfile")
        return ("env", *variables, placement.programs["caddy"], subcommand, *options)


SERVICES = (Caddy(),)


def parse_effective(output: str) -> Settings:
    """Return the values of Go's environment variables, and the values in Caddy's JSON configuration.

    A value in the configuration is included only if it is the same in all proxies.
    """
    environment_variables = _VARIABLE_PATTERN.findall(output)
    values_by_name = {name.lower(): {parse_number(value)} for name, value in environment_variables}
    for parameter_name, value in _list_proxy_values(output):
        values_by_name.setdefault(parameter_name, set()).add(value)
    agreed_values = {
        name: column.pop() for name, column in values_by_name.items() if len(column) == 1
    }
    return {name: value for name, value in agreed_values.items() if value != _UNKNOWN}


def _list_proxy_values(output: str) -> Iterator[tuple[str, Value]]:
    """Yield the names and values of the parameters of each proxy."""
    pending_items: list[object] = []
    with suppress(ValueError):
        pending_items += [parse_json(line) for line in split_lines(output) if line.startswith("{")]
    for json_item in pending_items:  # grows in the loop
        if isinstance(json_item, list):
            pending_items += json_item
        elif isinstance(json_item, dict):
            pending_items += json_item.values()
            transport = _get_json_object(json_item, "transport")
            if (
                json_item.get("handler") == "reverse_proxy"
                and transport.get("protocol", "http") == "http"
            ):
                selection_policy = _get_json_object(
                    _get_json_object(json_item, "load_balancing"), "selection_policy"
                )
                # The default applies only if the file sets no option of the pool.
                connection_pool = _get_json_object(transport, "keep_alive") or {
                    "max_idle_conns_per_host": 32
                }
                yield "lb_policy", str(selection_policy.get("policy", "random"))
                yield (
                    POOL,
                    parse_number(str(connection_pool.get("max_idle_conns_per_host", _UNKNOWN))),
                )
                yield (
                    "max_conns_per_host",
                    parse_number(str(transport.get("max_conns_per_host", 0))),
                )
                yield "compression", transport.get("compression") is not False


def _get_json_object(json_object: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = json_object.get(key)
    return value if isinstance(value, dict) else {}


DIAGNOSIS = Diagnosis(
    counter_query=None,
    find_log=lambda placement: placement.choose(
        f"{placement.directory}/caddy.out", "caddy.service"
    ),
    complaint_patterns={
        "no_live_upstreams": re.compile(r"no upstreams available"),
        "upstream_timed_out": re.compile(
            r"dial tcp [^\"]{0,500}i/o timeout|timeout awaiting response"
        ),
        "upstream_refused": re.compile(r"dial (tcp|unix) [^\"]{0,500}connection refused"),
        "open_files": re.compile(r"too many open files"),
        "no_ports": re.compile(r"cannot assign requested address"),
    },
    recommended_changes={
        Resource.CPU: ("keepalive_idle_conns_per_host+", "gogc+", "compression=False"),
        Resource.WORKERS: ("gomaxprocs+",),
        Resource.CONNECTIONS: ("keepalive_idle_conns_per_host+", "max_conns_per_host+"),
        Resource.MEMORY: ("gogc-",),
        Resource.UPSTREAM_HANDSHAKES: ("keepalive_idle_conns_per_host+",),
    },
    threads_parameter="gomaxprocs",
)
