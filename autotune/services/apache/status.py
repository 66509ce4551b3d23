"""Reading values in effect out of what a running Apache tells of itself.

``server-info?config`` has the directives as the server read them, ``server-status?auto`` its
scoreboard with a place for each worker there may be. Where that is shorter than was asked for, a
limit has lowered it: one in the file, or one that a reload cannot change.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from autotune.services.base import Settings, Value
from autotune.services.readback import Parser, number

# The name under which a server tells of itself (templates/apache/status.conf.j2).
STATUS_HOST = "status.autotune.internal"
_TAG = re.compile(r"<[^>]*>")
# mod_info: `<dd><tt>&nbsp;18:&nbsp;ServerLimit <i>10</i></tt></dd>`
_DIRECTIVE = re.compile(r"\d+:\s*(\w+)\s+(\S[^\n]*)")
_SWITCHES = {"on": True, "off": False}


@dataclass(frozen=True)
class Running:
    """``directives`` as the server read them; ``slots`` the workers it may have."""

    directives: Mapping[str, Value]
    slots: int

    def number(self, name: str) -> int:
        """A directive's value; 0 where it is not there or no whole number."""
        value = self.directives.get(name)
        return value if isinstance(value, int) else 0


def in_effect(names: frozenset[str], limits: Callable[[Running], Settings]) -> Parser:
    """Parser of both pages, one after the other: the parameters called ``names``, with what Apache
    made of them where ``limits`` says so. Nothing unless both are there."""

    def parse(text: str) -> Settings:
        running = understood(text)
        if running is None:
            return {}
        values = {name: running.directives[name] for name in names if name in running.directives}
        return {**values, **limits(running)}

    return parse


def understood(text: str) -> Running | None:
    scoreboard = re.search(r"(?m)^Scoreboard: (\S+)$", text)
    directives = dict(_directives(text))
    return Running(directives, len(scoreboard[1])) if scoreboard and directives else None


def threads(running: Running) -> Settings:
    """mpm_event: whole processes, no more than ServerLimit of them, of ThreadLimit at most."""
    per_child = min(running.number("ThreadsPerChild"), running.number("ThreadLimit"))
    if not per_child:
        return {}
    asked = running.number("MaxRequestWorkers") // per_child * per_child
    values = {"ThreadsPerChild": per_child, "MaxRequestWorkers": running.slots}
    return values | ({"ServerLimit": running.slots // per_child} if running.slots < asked else {})


def processes(running: Running) -> Settings:
    """mpm_prefork: no more than ServerLimit processes."""
    lowered = running.slots < running.number("MaxRequestWorkers")
    values = {"MaxRequestWorkers": running.slots}
    return values | ({"ServerLimit": running.slots} if lowered else {})


def _directives(page: str) -> Iterator[tuple[str, Value]]:
    """Directives and their values; what is said of the members of a balancer as ``proxy_<key>``."""
    for name, argument in _DIRECTIVE.findall(html.unescape(_TAG.sub("", page))):
        if name not in ("BalancerMember", "ProxySet"):
            yield name, _value(argument.strip())
            continue
        for key, equals, value in (word.partition("=") for word in argument.split()):
            if equals:
                yield ("" if key == "lbmethod" else "proxy_") + key, _value(value)


def _value(text: str) -> Value:
    return _SWITCHES.get(text.lower(), number(text))
