"""Apache with mpm_event, and the validation, start and status queries that all multi-processing
modules share.

``server-info?config`` lists the effective directives, and ``server-status?auto`` the scoreboard, with
one slot per possible worker. A scoreboard that is shorter than configured shows that another limit
applies: a limit in the file, or a limit that a reload cannot change.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from autotune.services.apache.parameters import EVENT_NEEDS, EVENT_PARAMETERS
from autotune.services.base import Argv, Placement, Programs, Readback, Role, Service, Settings
from autotune.services.directives import ON_OFF, select_notation
from autotune.services.readback import build_backlog_readback
from autotune.strict_parsing import split_lines

# Host name for Apache's status pages (templates/apache/status.conf.j2).
STATUS_HOST = "status.autotune.internal"
_FINISHING_SLOT = "G"
_DUMP_SCRIPT = """
for module in /usr/lib/apache2/modules/mod_info.so /usr/lib64/httpd/modules/mod_info.so \\
    modules/mod_info.so; do
    [ ! -e "$module" ] || exec "$@" -C "LoadModule info_module $module" -t -D DUMP_CONFIG
done
exec "$@" -t -D DUMP_CONFIG
"""
_TAG_PATTERN = re.compile(r"<[^<>]*>")
# For example, in mod_info: `<dd><tt>&nbsp;18:&nbsp;ServerLimit <i>10</i></tt></dd>`
_DIRECTIVE_PATTERN = re.compile(r"(?<!\d)\d+:\s*(\w+)\s+(\S[^\n]*)")


class ApacheServer(Service):
    """Base class of all Apache services. ``is_threaded`` is false if each request occupies a process."""

    name = "apache"
    title = "Apache"
    port = 80
    config_paths = ("apache2.conf", "/etc/apache2/apache2.conf")
    unit_name = "apache2.service"
    limits_template = "limits/apache2.conf.j2"
    reload_signal = "USR1"
    is_threaded: ClassVar[bool] = False
    # Apache's status is available only over HTTP, so curl requests it on the host. Under systemd,
    # apache2ctl loads Debian's environment.
    programs: ClassVar[Programs] = {
        "apache2": ("apache2", "httpd"),
        "apache2ctl": ("apache2ctl", "httpd"),
        "curl": ("curl",),
    }

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (*self._build_command(placement), "-t")

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv:
        return (*self._build_command(placement), "-DFOREGROUND")

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        pages_command = build_status_command(placement, "status?auto", "info?config")
        is_adopted = bool(placement.adopted and placement.adopted.files)
        return (
            Readback(pages_command, partial(self._parse_effective, is_adopted=is_adopted)),
            build_backlog_readback(placement, "ListenBacklog"),
        )

    def list_file_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        # With `-t -D DUMP_CONFIG`, mod_info prints all directives. The script loads mod_info if the
        # site does not load it.
        dump_command = ("sh", "-c", _DUMP_SCRIPT, "sh", *self._build_command(placement))
        return (Readback(dump_command, self._parse_dump),)

    def _parse_dump(self, output: str) -> Settings:
        """Return the parameters in the configuration that mod_info prints. The last value of a
        directive applies.
        """
        directive_lines = (line.strip().partition(" ") for line in split_lines(output))
        text_by_directive = {
            name: argument.strip() for name, _, argument in directive_lines if name[:1].isalpha()
        }
        value_by_parameter = {
            p.name: select_notation(p, ON_OFF).parse(text_by_directive[p.name])
            for p in self.parameters
            if p.name in text_by_directive
        }
        return {name: value for name, value in value_by_parameter.items() if value is not None}

    def _parse_effective(self, output: str, *, is_adopted: bool = False) -> Settings:
        """Return the effective parameters from the text of the status and info pages. Return no
        parameters if a page is missing. ``is_adopted`` is true for a site's own configuration.
        """
        scoreboard = re.search(r"(?m)^Scoreboard: (\S+)$", output)
        text_by_directive = dict(_parse_directives(output))
        if not scoreboard or not text_by_directive:
            return {}
        value_by_parameter = {
            p.name: value
            for p in self.parameters
            if p.name in text_by_directive
            and p.name != "ListenBacklog"
            and (value := select_notation(p, ON_OFF).parse(text_by_directive[p.name])) is not None
        }
        return {
            **value_by_parameter,
            **self._compute_effective_workers(
                value_by_parameter, scoreboard[1], is_adopted=is_adopted
            ),
        }

    def _compute_effective_workers(
        self, configured_values: Settings, scoreboard: str, *, is_adopted: bool
    ) -> Settings:
        """Return the effective numbers of workers, which ThreadLimit and ServerLimit may reduce."""

        def get_number(directive_name: str) -> int:
            return int(configured_values.get(directive_name, 0))

        thread_limits = map(get_number, ("ThreadsPerChild", "ThreadLimit"))
        threads = min(thread_limits) if self.is_threaded else 1
        if not threads:
            return {}
        worker_limit = get_number("MaxRequestWorkers") // threads * threads
        # After a reload with a lower limit, slots of processes that are exiting or have exited
        # remain above the limit.
        occupied_slots = min(len(scoreboard), worker_limit)
        effective_slots = (
            occupied_slots if worker_limit else len(scoreboard.rstrip(_FINISHING_SLOT))
        )
        # A site's own ServerLimit may be higher than the number of processes that can run.
        is_limit_own = is_adopted and self.is_threaded and worker_limit > 0
        limits_processes = effective_slots < worker_limit or is_limit_own
        return {
            "MaxRequestWorkers": effective_slots,
            **({"ThreadsPerChild": threads} if self.is_threaded else {}),
            **({"ServerLimit": effective_slots // threads} if limits_processes else {}),
        }

    def _build_command(self, placement: Placement) -> Argv:
        program = placement.programs[placement.choose("apache2", "apache2ctl")]
        return (program, *placement.choose(("-d", "."), ()), "-f", self.config_path(placement))


class Apache(ApacheServer):
    """Apache with mpm_event: processes with many threads. In role ``web``, Apache forwards requests
    to PHP-FPM.
    """

    deployment = "apache"
    other_names = ("httpd", "apache2")
    role = Role.PROXY
    template = "apache/{role}.conf.j2"
    gateway_protocols = frozenset({"fastcgi"})
    packages = ("apache2", "curl")
    parameters = EVENT_PARAMETERS
    needs = EVENT_NEEDS
    is_threaded = True
    # Apache itself raises MaxSpareThreads to at least MinSpareThreads + ThreadsPerChild.
    ordering_rules = (
        ("StartServers", "ServerLimit"),
        ("MinSpareThreads", "MaxSpareThreads - ThreadsPerChild"),
        ("proxy_smax", "proxy_max"),
        ("proxy_min", "proxy_smax"),
    )


SERVICES = (Apache(),)


def build_status_command(placement: Placement, *pages: str) -> Argv:
    """Return the command that fetches status pages on the server's host."""
    urls = (f"http://{placement.listen}/server-{page}" for page in pages)
    return (
        placement.programs["curl"],
        "--disable",  # a .curlrc on the host could change the request
        "-sS",
        "--noproxy",
        "*",
        "--max-time",
        "5",
        "-H",
        f"Host: {STATUS_HOST}",
        *urls,
    )


def _parse_directives(page: str) -> Iterator[tuple[str, str]]:
    """Yield directives with their values. For settings of balancer members, the name is
    ``proxy_<key>``.
    """
    for directive_name, argument in _DIRECTIVE_PATTERN.findall(
        html.unescape(_TAG_PATTERN.sub("", page))
    ):
        if directive_name not in ("BalancerMember", "ProxySet"):
            yield directive_name, argument.strip()
            continue
        for setting_key, equals_sign, value in (word.partition("=") for word in argument.split()):
            if equals_sign:
                yield ("" if setting_key == "lbmethod" else "proxy_") + setting_key, value
