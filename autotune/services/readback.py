"""Reading values in effect out of what servers and ``ss`` print."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from autotune.services.base import Settings, Value


def number(text: str) -> Value:
    """``text`` as an int or float where it is one."""
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def words(names: Mapping[str, str]) -> Callable[[str], Settings]:
    """Parser of ``name value`` lines (``memcached-tool settings``): their names → ours."""

    def parse(text: str) -> Settings:
        rows = (line.split(None, 1) for line in text.splitlines())
        return {names[row[0]]: number(row[1].strip()) for row in rows
                if len(row) == 2 and row[0] in names}  # fmt: skip

    return parse


def alternating(names: Mapping[str, str]) -> Callable[[str], Settings]:
    """Parser of a name line followed by its value line (``redis-cli CONFIG GET``)."""

    def parse(text: str) -> Settings:
        lines = [line.strip() for line in text.splitlines()]
        pairs = zip(lines[::2], lines[1::2], strict=False)
        return {names[name]: number(value) for name, value in pairs if name in names}

    return parse


def listen_backlog(name: str = "backlog") -> Callable[[str], Settings]:
    """Parser of ``ss -ltnH``/``ss -lxH``: Send-Q of a listening socket is its backlog in force."""

    def parse(text: str) -> Settings:
        for line in text.splitlines():
            fields = line.split()
            for index, field in enumerate(fields):
                if field == "LISTEN" and len(fields) > index + 2:
                    return {name: int(fields[index + 2])}
        return {}

    return parse


def directives(names: Mapping[str, str]) -> Callable[[str], Settings]:
    """Parser of ``nginx -T`` or ``php-fpm -tt``: the first occurrence of each directive."""

    def parse(text: str) -> Settings:
        found: dict[str, Value] = {}
        for directive, name in names.items():
            pattern = rf"(?m)(?:^|\s){re.escape(directive)}(?:\s*=\s*|\s+)([^;\s]+)"
            if match := re.search(pattern, text):
                value = match[1]
                found[name] = {"on": True, "off": False}.get(value, number(value))
        return found

    return parse
