"""Servers that run an application behind a proxy, at a TCP port or a unix socket of their host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from autotune.services.adoption import RunningHost, RunningService
from autotune.services.base import Endpoint, Role, Service, Site
from autotune.services.config_files import Config
from autotune.strict import is_whole

Candidate = tuple[str, Config, str]  # a unit, how it is configured, and its port or socket


_TEMPLATE = "it is a template of units: one that has a unit of its own is tuned"


def said_by_command(option: str, file: str) -> str:
    """Why a parameter is left that a unit's command sets."""
    return f"its command says `{option}`: in {file} it is tuned"


def conditional(file: str) -> str:
    """Why a parameter is left that a file sets in some cases."""
    return f"{file} says it under a condition: a line of its own has it tuned"


def own_socket(site: Site) -> str:
    """The unix socket that it listens at; empty where it is at a TCP port."""
    return site.own.listen if site.own else ""


class AppServer(Service):
    """A request keeps one of its workers, processes or threads, until it is answered."""

    role = Role.APP
    runs_application = True

    def socket(self, site: Site) -> str | Endpoint:
        return own_socket(site) or site.listen


def running(
    host: RunningHost, service: type[Service], candidates: Iterable[Candidate | str]
) -> Iterator[RunningService | str]:
    """Of the ``candidates`` those that listen: each at a TCP port, and the first at a unix socket.

    A candidate that is text is the reason why one is not tuned. Specifiers in a place may be anything.
    """
    first = ""
    for candidate in candidates:
        if isinstance(candidate, str):
            yield candidate
            continue
        unit, config, place = candidate
        socket = "" if is_whole(place) else place
        pattern = re.sub(r"%[a-zA-Z]", "*", place)
        if not any(fnmatchcase(listens, pattern) for listens in host.backlogs):
            continue
        if "@." in unit:
            yield f"{unit}: {_TEMPLATE}"
            continue
        if socket and first:
            several = f"of the {service.title}s of a host at unix sockets one is tuned"
            yield f"{unit}: {several}, and {first} is"
            continue
        first = unit if socket else first
        port = service.port if socket else int(place)
        yield RunningService(host=host, key=service.name, config=config, kind="app", port=port,
                             listen=socket, unit=unit)  # fmt: skip
