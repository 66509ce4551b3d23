"""Reading values in effect out of what servers and ``ss`` print."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from autotune.services.base import Readback, Settings, Site, Value

Parser = Callable[[str], Settings]

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
# nginx's own lexis: quoted text, punctuation, a comment where a word could start, a bare word.
_NGINX = re.compile(
    r""""(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>(?:\\.|[^'\\])*)'"""
    r"""|(?P<mark>[;{}])|\#[^\n]*|(?P<word>(?:\\.|\$\{[^}]*\}|[^\s;{}\\])+)|\\""",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"(?:^\[[^\]]*\] NOTICE: )?\s*([\w.]+) = (.*)")


def number(text: str) -> Value:
    """``text`` as an int or float where it is one."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def words(names: Mapping[str, str]) -> Parser:
    """Parser of ``name value`` lines (``memcached-tool settings``): their names → ours."""

    def parse(text: str) -> Settings:
        rows = (line.split(None, 1) for line in text.splitlines())
        return {names[row[0]]: number(row[1].strip()) for row in rows
                if len(row) == 2 and row[0] in names}  # fmt: skip

    return parse


def alternating(names: Mapping[str, str], switches: Collection[str] = ()) -> Parser:
    """Parser of a name line followed by its value line (``redis-cli CONFIG GET``).

    ``switches`` are those of ours that say yes or no.
    """

    def parse(text: str) -> Settings:
        lines = [line.strip() for line in text.splitlines()]
        pairs = zip(lines[::2], lines[1::2], strict=False)
        found = {names[name]: number(value) for name, value in pairs if name in names}
        return {
            name: value == "yes" if name in switches else value for name, value in found.items()
        }

    return parse


def listen_backlog(name: str = "backlog") -> Parser:
    """Parser of ``ss -ltnH``/``ss -lxH``: Send-Q of a listening socket is its backlog in force.

    Of several sockets (one per worker, one per address family) the shortest queue counts: it is
    the first to overflow.
    """

    def parse(text: str) -> Settings:
        found = re.findall(r"(?m)^(?:\S+\s+)?LISTEN\s+\d+\s+(\d+)\s", text)
        return {name: min(int(backlog) for backlog in found)} if found else {}

    return parse


def backlog_in_force(site: Site, name: str = "backlog") -> Readback:
    """What the kernel made of the queue a server asked for: it says so of the socket itself."""
    return Readback(("ss", "-ltnH", f"sport = :{site.listen.port}"), listen_backlog(name))


def directives(names: Mapping[str, str]) -> Parser:
    """Parser of ``nginx -T``: of a directive that is there more than once, the outermost."""

    def parse(text: str) -> Settings:
        found: dict[str, Value] = {}
        depths: dict[str, int] = {}
        for depth, statement in _statements(text):
            name = names.get(statement[0])
            if name and len(statement) > 1 and depth < depths.get(name, depth + 1):
                depths[name] = depth
                found[name] = {"on": True, "off": False}.get(statement[1], number(statement[1]))
        return found

    return parse


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Simple directives and the number of blocks each is in; messages around them are none."""
    depth, statement = 0, list[str]()
    for token in _NGINX.finditer(text):
        mark = token["mark"]
        if mark is None:
            # A comment is a token without any of these.
            statement += [w for w in token.group("double", "single", "word") if w is not None]
            continue
        if mark == ";" and statement:
            yield depth, statement
        depth += {"{": 1, "}": -1}.get(mark, 0)
        statement = []


def assignments(names: Mapping[str, str]) -> Parser:
    """Parser of ``php-fpm -tt``: the first ``name = value`` of each name."""

    def parse(text: str) -> Settings:
        found: dict[str, Value] = {}
        for line in text.splitlines():
            match = _ASSIGNMENT.fullmatch(line)
            if match and match[1] in names:
                found.setdefault(names[match[1]], number(match[2].strip()))
        return found

    return parse
