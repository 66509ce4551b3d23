"""Apache with mpm_event, and what Apache is with any module: how it is validated, run and asked.

``server-info?config`` has the directives as the server read them, ``server-status?auto`` its
scoreboard with a place for each worker there may be. Where the scoreboard is shorter than configured,
a limit has lowered it: one in the file, or one that a reload cannot change.
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

# The name under which a server shows its state (templates/apache/status.conf.j2).
STATUS_HOST = "status.autotune.internal"
_TAG = re.compile(r"<[^<>]*>")
# mod_info: `<dd><tt>&nbsp;18:&nbsp;ServerLimit <i>10</i></tt></dd>`
_DIRECTIVE = re.compile(r"(?<!\d)\d+:\s*(\w+)\s+(\S[^\n]*)")


class ApacheServer(Service):
    """A role has one template and the parameters of its multi-processing module, which is ``threaded``
    or has a process for each request."""

    name = "apache"
    title = "Apache"
    port = 80
    config = ("apache2.conf", "/etc/apache2/apache2.conf")
    unit_name = "apache2.service"
    limits_template = "limits/apache2.conf.j2"
    reload_signal = "USR1"
    threaded: ClassVar[bool] = False
    # It shows its state over HTTP alone: curl asks it on its own host. Under systemd its
    # environment is Debian's, which apache2ctl knows.
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
        """Parameters as they are in effect, from the text of both pages, one after the other. Nothing
        unless both are there."""
        scoreboard = re.search(r"(?m)^Scoreboard: (\S+)$", text)
        words = dict(_directives(text))
        if not scoreboard or not words:
            return {}
        values = {p.name: value for p in self.parameters if p.name in words and p.name != "ListenBacklog"
                  and (value := notation_of(p, ON_OFF).read(words[p.name])) is not None}  # fmt: skip
        return {**values, **self._workers(values, len(scoreboard[1]))}

    def _workers(self, asked: Settings, slots: int) -> Settings:
        """Whole processes, of ThreadLimit threads at most, and no more of them than ServerLimit."""

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
    """Processes of many threads each (mpm_event). Role ``proxy`` balances over the tier it forwards to;
    role ``web`` hands on to PHP-FPM."""

    deployment = "apache"
    role = Role.PROXY
    template = "apache/{role}.conf.j2"
    gateways = frozenset({"fastcgi"})
    packages = ("apache2", "curl")
    parameters = EVENT_PARAMETERS
    needs = EVENT_NEEDS
    threaded = True
    # Apache itself raises MaxSpareThreads where that leaves room for less than one process.
    at_most = (
        ("StartServers", "ServerLimit"),
        ("MinSpareThreads", "MaxSpareThreads - ThreadsPerChild"),
        ("proxy_smax", "proxy_max"),
        ("proxy_min", "proxy_smax"),
    )


SERVICES = (Apache(),)


def asking(site: Site, *pages: str) -> Argv:
    """The command that fetches the pages on a server's state, to be run on its host."""
    urls = (f"http://{site.listen}/server-{page}" for page in pages)
    return (site.programs["curl"], "-sS", "--max-time", "5", "-H", f"Host: {STATUS_HOST}", *urls)


def _directives(page: str) -> Iterator[tuple[str, str]]:
    """Directives and their values; settings of a balancer's members are called ``proxy_<key>``."""
    for name, argument in _DIRECTIVE.findall(html.unescape(_TAG.sub("", page))):
        if name not in ("BalancerMember", "ProxySet"):
            yield name, argument.strip()
            continue
        for key, equals, value in (word.partition("=") for word in argument.split()):
            if equals:
                yield ("" if key == "lbmethod" else "proxy_") + key, value
