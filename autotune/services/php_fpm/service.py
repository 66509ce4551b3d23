"""PHP-FPM: the pool of PHP processes behind a web server, over a Unix socket."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from posixpath import dirname, join
from typing import ClassVar

from autotune.services import base
from autotune.services.base import (
    SOMAXCONN,
    Argv,
    Endpoint,
    Placement,
    Programs,
    Readback,
    ResourceNeeds,
    Role,
    Service,
    Settings,
    with_guidance,
)
from autotune.services.diagnosis import Diagnosis, Resource, WorkerPool
from autotune.services.php_fpm.syntax import parse_log
from autotune.services.readback import (
    build_backlog_parser,
    build_backlog_readback,
    build_config_parser,
)
from autotune.services.unit_environment import build_environment_prefix
from autotune.strict_parsing import is_uint, split_lines

DOCS = "php.net, FPM configuration"
VERSIONS = ("8.5", "8.4", "8.3", "8.2", "8.1", "8.0", "7.4")
# The version in the names of Debian's units and files.
_VERSION_PATTERN = re.compile(r"php/?([0-9]+\.[0-9]+)[-/](?:fpm|apache2)")
_DEBIAN_UNIT_PATTERN = re.compile(r"(php[0-9]+\.[0-9]+-fpm)\.service")
on_reload = partial(base.on_reload, source=DOCS)
on_restart = partial(base.on_restart, source=DOCS)
IF_DYNAMIC = (("pm", ("dynamic",)),)

PARAMETERS = with_guidance((
    on_reload("pm",
        "Number of children: fixed, adapted to the load, or started on demand.",
        choices=("static", "dynamic", "ondemand"), stock="dynamic", recommended="static"),
    on_reload("max_children", "Maximum number of PHP processes, and thus of concurrent requests.",
        low=2, high=256, log=True, stock=5, recommended="8 * cpus", published={Role.APP: 75}),
    on_reload("start_servers", "Number of children at start.",
        low=1, high=128, log=True, stock=2, recommended="4 * cpus", when=IF_DYNAMIC),
    on_reload("min_spare_servers",
        "Minimum number of idle children. Below it, FPM forks a few per second.",
        low=1, high=64, log=True, stock=1, recommended="2 * cpus", when=IF_DYNAMIC),
    on_reload("max_spare_servers", "Maximum number of idle children. Above it, FPM stops some.",
        low=1, high=256, log=True, stock=3, recommended="8 * cpus", when=IF_DYNAMIC),
    on_reload("process_idle_timeout", "Idle time after which an on-demand child exits.",
        low=1, high=120, log=True, stock=10, unit="s", when=(("pm", ("ondemand",)),)),
    on_reload("max_requests",
        "Number of requests after which a child and its connections are replaced; 0 means never.",
        choices=(0, 500, 2000, 10_000), stock=0),
    on_restart("listen_backlog",
        "Maximum number of requests that wait for a child. The kernel limits it to somaxconn.",
        low=64, high=65535, log=True, stock=511, recommended=4096, capped_by=SOMAXCONN),
),
    capacity="pm max_children+ start_servers+ min_spare_servers+ max_spare_servers+ max_requests"
    " listen_backlog+",
    small="process_idle_timeout+",
    safe={"max_children": (2, "64 * cpus"), "listen_backlog": (256, 65_535)},
)  # fmt: skip

# `php-fpm -tt` prints these settings for each pool; the backlog is read from the kernel.
PARAMETERS_BY_DIRECTIVE = {"pm": "pm"} | {
    f"pm.{parameter.name}": parameter.name
    for parameter in PARAMETERS
    if parameter.name not in ("pm", "listen_backlog")
}


# FPM also logs its configuration, including passwords in the environment of pools, so `error_log`
# is /dev/null in this run. Lines that may contain passwords are removed on the host.
_READBACK_SCRIPT = r"""
conf=$(mktemp) && trap 'rm -f "$conf"' EXIT || exit
{
    printf '[global]\nerror_log = /dev/null\n'
    sed 's/^[ \t]*error_log[ \t]*=/;&/' "$1"
} >"$conf"
shift
"$@" -y "$conf" -tt 2>&1 | sed '/\t\(env\|php_[a-z_]*\)\[/d'
"""


class PhpFpm(Service):
    """PHP-FPM with one pool, ``www``, which listens on a Unix socket in the working directory."""

    name = "php_fpm"
    other_names = ("php",)
    key = "php-fpm"
    title = "PHP-FPM"
    role = Role.APP
    gateway_protocol = "fastcgi"
    interpreter = "fpm"
    runs_application = True
    packages = ("php-fpm", "php-memcached", "php-redis")
    parameters = PARAMETERS
    ordering_rules = (
        ("max_spare_servers", "max_children"),
        ("start_servers", "max_spare_servers"),
        ("min_spare_servers", "start_servers"),
    )
    reload_signal = "USR2"
    template = "php_fpm/php-fpm.conf.j2"
    # The newest version that is installed is used, unless files of another version are adopted.
    programs: ClassVar[Programs] = {
        "php-fpm": (*(f"php-fpm{version}" for version in VERSIONS), "php-fpm")
    }
    needs = ResourceNeeds(
        workers="max_children",
        processes="max_children + 1",
        rss=30 * 2**20,
        source="resident size of a child of PHP-FPM 8.2 with its extensions, shared pages included",
    )

    def config_path(self, placement: Placement) -> str:
        debian_path = f"/etc/php/{_find_version(placement)}/fpm/php-fpm.conf"
        return (placement.adopted and placement.adopted.main) or placement.choose(
            "php-fpm.conf", debian_path
        )

    def get_unit(self, placement: Placement) -> str:
        return (
            placement.adopted and placement.adopted.unit
        ) or f"php{_find_version(placement)}-fpm.service"

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (
            *build_environment_prefix(placement, self.get_unit(placement)),
            *self._build_command(placement),
            "-t",
        )

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (*self._build_command(placement), "--nodaemonize")

    def get_socket(self, placement: Placement) -> str | Endpoint:
        name = placement.socket_name
        return Endpoint(placement.listen.host, int(name)) if is_uint(name) else name

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        location = self.get_socket(placement)
        if isinstance(location, Endpoint):
            pool_placement = replace(placement, listen=location)
            return (
                *self.list_file_readbacks(placement),
                build_backlog_readback(pool_placement, "listen_backlog"),
            )

        def parse_own_backlog(output: str) -> Settings:
            own_lines = (line for line in split_lines(output) if placement.socket_name in line)
            return build_backlog_parser("listen_backlog")("\n".join(own_lines))

        return (*self.list_file_readbacks(placement), Readback(("ss", "-lxH"), parse_own_backlog))

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        output_parser = build_config_parser(parse_log, PARAMETERS_BY_DIRECTIVE)
        return (Readback(self._build_readback_command(placement), output_parser),)

    def _build_command(self, placement: Placement) -> Argv:
        return (*self._build_program(placement), "-y", self.config_path(placement))

    def _build_program(self, placement: Placement) -> Argv:
        return (find_program(placement), *placement.choose(("-p", "."), ()))

    def _build_readback_command(self, placement: Placement) -> Argv:
        return (
            "sh",
            "-c",
            _READBACK_SCRIPT,
            "sh",
            self.config_path(placement),
            *build_environment_prefix(placement, self.get_unit(placement)),
            *self._build_program(placement),
        )


SERVICES = (PhpFpm(),)


def find_program(placement: Placement, program: str = "php-fpm") -> str:
    """Return the path of the program to which the host's own files belong, or else of the newest one."""
    newest_program, adopted = placement.programs[program], placement.adopted
    names = (adopted.unit, *(file.path for file in adopted.files)) if adopted else ()
    match = next(filter(None, map(_VERSION_PATTERN.search, names)), None)
    return join(dirname(newest_program), f"{program}{match[1]}") if match else newest_program


def _find_version(placement: Placement) -> str:
    """Return the PHP version in Debian's names of programs, units and directories: php-fpm8.2,
    php8.2-fpm.service, /etc/php/8.2.
    """
    return find_program(placement).rpartition("php-fpm")[2]


def _find_log(placement: Placement) -> str:
    """Return the log file, or the unit if the distribution's log file is unknown.

    PHP-FPM writes to `error_log`, even under systemd. Debian names the log after the unit.
    """
    unit = PhpFpm().get_unit(placement)
    debian_unit = _DEBIAN_UNIT_PATTERN.fullmatch(unit)
    return placement.choose(
        f"{placement.directory}/php-fpm.log",
        f"/var/log/{debian_unit[1]}.log" if debian_unit else unit,
    )


CHILD_POOL = WorkerPool(
    processes_parameter="max_children",
    worker_noun="children",
    increase_advice="raise max_children",
    faster_start_advice="raise start_servers, or set pm = static",
    log_complaint=("max_children", "server reached pm.max_children setting"),
)
DIAGNOSIS = Diagnosis(
    counter_query=None,
    find_log=_find_log,
    complaint_patterns={"max_children": re.compile(r"reached (?:pm\.)?max_children")},
    recommended_changes={
        Resource.CPU: ("pm=static",),
        Resource.WORKERS: ("max_children+", "pm=static", "start_servers+", "min_spare_servers+"),
        Resource.CONNECTIONS: ("listen_backlog+",),
        Resource.MEMORY: ("max_children-",),
    },
    worker_rules=(CHILD_POOL.detect_exhaustion,),
)
