"""Apache with mpm_event, and the common parts of all modules: validation, start and queries.

``server-info?config`` lists the effective directives, and ``server-status?auto`` the scoreboard
with a slot per possible worker. A scoreboard shorter than configured means that a limit applies:
one in the file, or one that a reload cannot change.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from autotune.services.apache.parameters import EVENT_NEEDS, EVENT_PARAMETERS
from autotune.services.base import Argv, Programs, Readback, Role, Service, Settings, Site
from autotune.services.directives import ON_OFF, notation_of
from autotune.services.readback import backlog_in_force

# Host name for Apache's status pages (templates/apache/status.conf.j2).
STATUS_HOST = "status.autotune.internal"
_TAG = re.compile(r"<[^<>]*>")
# mod_info: `<dd><tt>&nbsp;18:&nbsp;ServerLimit <i>10</i></tt></dd>`
_DIRECTIVE = re.compile(r"(?<!\d)\d+:\s*(\w+)\s+(\S[^\n]*)")


class ApacheServer(Service):
    """Base of Apache services. ``threaded`` is false if each request occupies a process."""

    name = "apache"
    title = "Apache"
    port = 80
    config = ("apache2.conf", "/etc/apache2/apache2.conf")
    unit_name = "apache2.service"
    limits_template = "limits/apache2.conf.j2"
    reload_signal = "USR1"
    threaded: ClassVar[bool] = False
    # Its status is available only over HTTP, so curl queries it on its host. Under systemd,
    # apache2ctl loads Debian's environment.
    programs: ClassVar[Programs] = {
        "apache2": ("apache2", "httpd"),
        "apache2ctl": ("apache2ctl", "httpd"),
        "curl": ("curl",),
    }

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-t")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-DFOREGROUND")

    def effective(self, site: Site) -> tuple[Readback, ...]:
        pages = asking(site, "status?auto", "info?config")
        return (Readback(pages, self._in_effect), backlog_in_force(site, "ListenBacklog"))

    def _in_effect(self, text: str) -> Settings:
        """Parse effective parameters from the text of both pages, or nothing if one is missing."""
        scoreboard = re.search(r"(?m)^Scoreboard: (\S+)$", text)
        words = dict(_directives(text))
        if not scoreboard or not words:
            return {}
        values = {p.name: value for p in self.parameters if p.name in words and p.name != "ListenBacklog"
                  and (value := notation_of(p, ON_OFF).read(words[p.name])) is not None}  # fmt: skip
        return {**values, **self._workers(values, len(scoreboard[1]))}

    def _workers(self, asked: Settings, slots: int) -> Settings:
        """Return the effective worker numbers, limited by ThreadLimit and ServerLimit."""

        def number(name: str) -> int:
            return int(asked.get(name, 0))

        threads = min(number("ThreadsPerChild"), number("ThreadLimit")) if self.threaded else 1
        if not threads:
            return {}
        lowered = slots < number("MaxRequestWorkers") // threads * threads
        return {
            "MaxRequestWorkers": slots,
            **({"ThreadsPerChild": threads} if self.threaded else {}),
            **({"ServerLimit": slots // threads} if lowered else {}),
        }

    def _command(self, site: Site) -> Argv:
        program = site.programs[site.place("apache2", "apache2ctl")]
        return (program, *site.place(("-d", "."), ()), "-f", self.config_path(site))


class Apache(ApacheServer):
    """Apache with mpm_event: processes with many threads. Role ``web`` forwards to PHP-FPM."""

    deployment = "apache"
    role = Role.PROXY
    template = "apache/{role}.conf.j2"
    gateways = frozenset({"fastcgi"})
    packages = ("apache2", "curl")
    parameters = EVENT_PARAMETERS
    needs = EVENT_NEEDS
    threaded = True
    # Apache itself raises MaxSpareThreads if less than one process fits.
    at_most = (
        ("StartServers", "ServerLimit"),
        ("MinSpareThreads", "MaxSpareThreads - ThreadsPerChild"),
        ("proxy_smax", "proxy_max"),
        ("proxy_min", "proxy_smax"),
    )


SERVICES = (Apache(),)


def asking(site: Site, *pages: str) -> Argv:
    """Return the command that fetches the status pages on the server's host."""
    urls = (f"http://{site.listen}/server-{page}" for page in pages)
    return (site.programs["curl"], "-sS", "--max-time", "5", "-H", f"Host: {STATUS_HOST}", *urls)


def _directives(page: str) -> Iterator[tuple[str, str]]:
    """Yield directives and values. Settings of balancer members are named ``proxy_<key>``."""
    for name, argument in _DIRECTIVE.findall(html.unescape(_TAG.sub("", page))):
        if name not in ("BalancerMember", "ProxySet"):
            yield name, argument.strip()
            continue
        for key, equals, value in (word.partition("=") for word in argument.split()):
            if equals:
                yield ("" if key == "lbmethod" else "proxy_") + key, value
