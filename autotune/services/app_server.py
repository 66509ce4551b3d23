"""Application servers behind a proxy, at a TCP port or a unix socket of their host."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from autotune.services import unit_environment, unit_files
from autotune.services.adoption import Adoption, RunningHost, RunningService, Tunables, Tune
from autotune.services.base import Argv, Endpoint, Needs, Role, Service, Site
from autotune.services.config_files import LONGEST_PATH, Config, Directive, PlacedDirective, Word
from autotune.services.diagnosis import (
    WORKING,
    Diagnosis,
    Resource,
    WorkerPool,
    by_command,
    counted,
)
from autotune.services.directives import NUMBER, Accepts, Adopted, Tunable, joined, map_directives
from autotune.services.understood import Understood
from autotune.services.unit_environment import Environment, Setting
from autotune.strict import is_whole, parse_json

# Perl around ``find_stats``. $text is the server's file without comments. ``find_stats`` sets
# $place to a unix socket or host:port, and may set the $request.
_READ = r"""
open my $file, '<', my $path = shift or exit;
my $text = join '', grep { !/^\s*#/ } <$file>;
my ($place, $request);
"""
_ASKED = r"""
exit if !$place;
my $socket = $place =~ m{^/} ? IO::Socket::UNIX->new($place) : IO::Socket::INET->new($place) or exit;
print $socket $request || '';
print while defined($_ = <$socket>)
"""
Candidate = tuple[str, Config, str]  # a unit, its configuration, and its port or socket
# Location of a parameter: a number in a file or the environment, a directive, or the reason why it
# is not tuned.
Place = Word | Setting | Tunable | str


_TEMPLATE = "it is a template unit: only instances with their own unit are tuned"


def said_by_command(option: str, file: str) -> str:
    """Return the reason why a parameter set by a unit's command is not tuned."""
    return f"its command sets `{option}`: move it to {file} to tune it"


def conditional(file: str) -> str:
    """Return the reason why a parameter set only under a condition is not tuned."""
    return f"{file} sets it under a condition: set it on an unconditional line to tune it"


def by_socket_unit(host: RunningHost, unit: str) -> str:
    """Return the reason why the connection queue is not tuned, or empty if the server opens its
    socket.
    """
    return "its socket unit sets it with `Backlog=`" if unit_files.opened(host.tree, unit) else ""


class AppServer(Service):
    """A server whose worker, process or thread, is occupied until a request is answered.

    ``find_stats`` is Perl that finds the address of the stats in the server's file.
    """

    role = Role.APP
    runs_application = True
    find_stats: ClassVar[str] = ""

    def socket(self, site: Site) -> str | Endpoint:
        return site.own_place or site.listen

    def asking(self, site: Site) -> Argv:
        """Return the command that prints the server's stats on its host."""
        modules = ("-MIO::Socket::UNIX", "-MIO::Socket::INET")
        return ("perl", *modules, "-e", _READ + self.find_stats + _ASKED, self.config_path(site))


def needs_of(processes: str, at_work: str, source: str) -> Needs:
    """Return the needs of a server with one managing process and ``processes`` workers.

    ``at_work`` is the total number of threads.
    """
    return Needs(
        workers=at_work,
        processes=f"{processes} + 1",
        rss=45 * 2**20,
        memory=f"{at_work} * 1 MB",
        source=source,
    )


def stats(text: str) -> Mapping[str, Any]:
    """Return the JSON object in a server's stats after protocol lines, or an empty mapping."""
    try:
        answer = parse_json(text[text.find("{") :])
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def each(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the objects in the list of this name, or an empty list."""
    listed = of.get(name)
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def diagnosis(
    service: AppServer,
    processes: str,
    threads: str = "threads",
    *,
    ended: tuple[str, str, str],
    waiting: tuple[str, ...] = ("backlog+",),
    counters: Callable[[str], Mapping[str, float]] | None = None,
) -> Diagnosis:
    """Return the diagnosis of a server.

    ``processes`` and ``threads`` are the parameters for the number of processes and of threads in
    each. ``ended`` describes terminated workers: counter or kind of complaint, pattern of log
    lines, and text after the count. ``counters`` parses the stats.
    """
    kind, line, why = ended
    pool = WorkerPool(processes=processes, threads=threads, more=f"raise {processes}, or {threads}")
    query = counters and by_command(
        command=service.asking, levels=frozenset({WORKING}), more=counters, every=2.0
    )
    return Diagnosis(
        counters=query,
        log=service.unit,
        complaints={kind: re.compile(line)},
        threads=processes,  # one interpreter runs one thread at a time
        moves={
            Resource.CPU: (f"{processes}+",),
            Resource.WORKERS: (f"{processes}+", f"{threads}+"),
            Resource.CONNECTIONS: waiting,
            Resource.MEMORY: (f"{processes}-", f"{threads}+"),
        },
        refusal_rules=(counted(kind, why),),
        worker_rules=(pool.taken,),
    )


def adoption(
    service: type[Service],
    candidates: Callable[[RunningHost], Iterable[Candidate | str]],
    tune: Tune | None = None,
    *,
    tunables: Tunables = lambda _: (),
    paths: Iterable[str] = (),
    version: str,
    understood: Understood,
) -> Adoption:
    """Return the adoption of a server in the user's units. ``paths`` may contain its files."""
    return Adoption(
        known_as=service.title,
        units=(service.unit_name,),
        paths=(*unit_files.ANY, *unit_environment.FILES, *paths),
        version=version,
        find=lambda host: _running(host, service, candidates(host)),
        understood=understood,
        tune=tune,
        tunables=tunables,
    )


def place_of(address: str) -> str:
    """Return the TCP port or the path of a unix socket in an address."""
    place = re.sub(r"^unix:(//)?|\?.*$", "", address)
    return place if "/" in place and "://" not in place else place.rpartition(":")[2]


def listening(host: RunningHost, pattern: str) -> list[str]:
    """Return the ports and sockets of ``host`` that match a shell pattern."""
    if len(pattern) > LONGEST_PATH:
        return []
    return [place for place in host.backlogs if fnmatchcase(place, pattern)]


def _running(
    host: RunningHost, service: type[Service], candidates: Iterable[Candidate | str]
) -> Iterator[RunningService | str]:
    """Yield the ``candidates`` that listen: all at TCP ports, but only the first at a unix socket.

    A text candidate is the reason why a server is not tuned. A systemd specifier (`%i`) in an
    address matches any text.
    """
    first = ""
    for candidate in candidates:
        if isinstance(candidate, str):
            yield candidate
            continue
        unit, config, place = candidate
        socket = "" if is_whole(place) else place
        if not listening(host, re.sub(r"%[a-zA-Z]", "*", glob.escape(place))):
            continue
        if "@." in unit:
            yield f"{unit}: {_TEMPLATE}"
            continue
        if socket and first:
            several = f"only one {service.title} per host is tuned at a unix socket"
            yield f"{unit}: {several}, and that is {first}"
            continue
        first = unit if socket else first
        port = service.port if socket else int(place)
        yield RunningService(host=host, key=service.name, config=config, kind="app", port=port,
                             listen=socket, unit=unit)  # fmt: skip


def tune(
    config: Config, environment: Environment, places: Mapping[str, Place], accepts: Accepts
) -> Adopted:
    """Tune every parameter in its place. Of parameters that share a number, only the first is
    tuned.
    """
    parts, settings = [Adopted()], list[Setting]()
    owners: dict[Word | tuple[str, str], str] = {}
    for name, place in places.items():
        owner = name
        if isinstance(place, Word | Setting):
            number = (place.variable, place.option) if isinstance(place, Setting) else place
            owner = owners.setdefault(number, name)
        if isinstance(place, str) or owner != name:
            same = f"it shares its value with {owner}"
            parts[0].left[name] = place if isinstance(place, str) else same
        elif isinstance(place, Setting):
            settings.append(place)
        elif isinstance(place, Word):
            directive = PlacedDirective(config.main, Directive(Word(name, 0), (place,)))
            alone = replace(config, directives=(directive,))
            parts.append(map_directives(alone, [Tunable(name, name, NUMBER)], accepts))
        else:
            parts.append(map_directives(config, [place], accepts))
    return joined(*parts, unit_environment.tune(environment, settings, accepts))
