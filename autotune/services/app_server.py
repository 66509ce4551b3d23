"""Application servers behind a proxy, on a TCP port or a Unix socket of their host."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from autotune.services import unit_environment, unit_files
from autotune.services.adoption import (
    Adoption,
    RunningHost,
    RunningService,
    TunablesFunction,
    TuneFunction,
)
from autotune.services.base import Argv, Endpoint, Placement, ResourceNeeds, Role, Service
from autotune.services.config_files import MAX_PATH_BYTES, Config, Directive, PlacedDirective, Word
from autotune.services.diagnosis import (
    BUSY_WORKERS,
    Diagnosis,
    Resource,
    WorkerPool,
    build_command_query,
    build_counter_rule,
)
from autotune.services.directives import (
    NUMBER,
    AdoptionResult,
    Tunable,
    ValueCheck,
    map_directives,
    merge_results,
)
from autotune.services.unit_environment import EnvironmentSetting, UnitEnvironment
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint, parse_json

# Perl code that runs before and after a server's own ``stats_script``. $text contains the server's
# configuration file without comments. ``stats_script`` sets $place to a Unix socket or to
# host:port, and may set $request.
_READ_FILE_SCRIPT = r"""
open my $file, '<', my $path = shift or exit;
my $text = join '', grep { !/^\s*#/ } <$file>;
my ($place, $request);
"""
_QUERY_SCRIPT = r"""
exit if !$place;
my $socket = $place =~ m{^/} ? IO::Socket::UNIX->new($place) : IO::Socket::INET->new($place) or exit;
print $socket $request || '';
print while defined($_ = <$socket>)
"""
ServerCandidate = tuple[str, Config, str]  # a unit, its configuration, and its port or socket
TLS_REASON = (
    "not tuned, because it serves HTTPS itself: let it serve HTTP behind a proxy to tune it"
)
# Where a parameter is set: a number in a file or in the environment, a directive, or the reason why the
# parameter is not tuned.
ParameterLocation = Word | EnvironmentSetting | Tunable | str


_UNIT_TEMPLATE_REASON = "it is a template unit: only instances with their own unit are tuned"
_RIVAL_REASON = (
    "not tuned, because {} sets the same address: remove the address from the unit that does not"
    " listen"
)


def explain_command_option(option_name: str, file: str) -> str:
    """Return the reason why a parameter that the unit's command sets is not tuned."""
    return f"its command sets `{option_name}`: move it to {file} to tune it"


def explain_condition(file_path: str) -> str:
    """Return the reason why a parameter that is set only under a condition is not tuned."""
    return f"{file_path} sets it conditionally: set it on a line without a condition to tune it"


def explain_socket_unit(host: RunningHost, unit: str) -> str:
    """Return why the connection queue is not tuned, or an empty string if the server itself opens
    its socket.
    """
    return (
        "its socket unit sets it with `Backlog=`"
        if unit_files.find_socket_address(host.tree, unit)
        else ""
    )


class AppServer(Service):
    """A server in which each request occupies a worker (a process or thread) until the response is
    sent.

    ``stats_script`` is Perl code that finds the address of the stats server in the configuration
    file.
    """

    role = Role.APP
    runs_application = True
    stats_script: ClassVar[str] = ""

    def get_socket(self, placement: Placement) -> str | Endpoint:
        return placement.adopted_address or placement.listen

    def build_stats_command(self, placement: Placement) -> Argv:
        """Return the command that prints the server's stats on its host."""
        modules = ("-MIO::Socket::UNIX", "-MIO::Socket::INET")
        return (
            "perl",
            *modules,
            "-e",
            _READ_FILE_SCRIPT + self.stats_script + _QUERY_SCRIPT,
            self.config_path(placement),
        )


def build_needs(processes: str, threads: str, source: str) -> ResourceNeeds:
    """Return the resource needs of a server with one managing process and ``processes`` workers.

    ``threads`` is an expression for the total number of threads.
    """
    return ResourceNeeds(
        workers=threads,
        processes=f"{processes} + 1",
        rss=45 * 2**20,
        memory=f"{threads} * 1 MB",
        source=source,
    )


def parse_stats(output: str) -> Mapping[str, Any]:
    """Return the JSON object that follows any protocol lines in a server's stats, or an empty
    mapping.
    """
    try:
        stats = parse_json(output[output.find("{") :])
    except ValueError:
        return {}
    return stats if isinstance(stats, dict) else {}


def list_objects(json_object: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the JSON objects in the list called ``key``, or an empty list."""
    listed_objects = json_object.get(key)
    return (
        [item for item in listed_objects if isinstance(item, dict)]
        if isinstance(listed_objects, list)
        else []
    )


def build_diagnosis(
    service: AppServer,
    processes: str,
    threads: str = "threads",
    *,
    killed_workers: tuple[str, str, str],
    connection_changes: tuple[str, ...] = ("backlog+",),
    keepalive_changes: tuple[str, ...] = (),
    counter_parser: Callable[[str], Mapping[str, float]] | None = None,
    accepts_early: bool = False,
) -> Diagnosis:
    """Return the diagnosis data of a server.

    ``processes`` and ``threads`` are the parameters for the number of processes and for the number of
    threads per process. ``killed_workers`` describes terminated workers: a counter or kind of log
    message, a pattern for log lines, and text that follows the count. ``keepalive_changes`` let clients
    reuse connections. ``counter_parser`` parses the server's stats. `Diagnosis` explains
    ``accepts_early``.
    """
    complaint_kind, line_pattern, killed_explanation = killed_workers
    worker_pool = WorkerPool(
        processes_parameter=processes,
        threads_parameter=threads,
        increase_advice=f"raise {processes}, or {threads}",
    )
    counter_query = counter_parser and build_command_query(
        build_command=service.build_stats_command,
        level_names=frozenset({BUSY_WORKERS}),
        parse_counters=counter_parser,
        interval_seconds=2.0,
    )
    return Diagnosis(
        counter_query=counter_query,
        find_log=service.get_unit,
        complaint_patterns={complaint_kind: re.compile(line_pattern)},
        accepts_early=accepts_early,
        threads_parameter=processes,  # in one interpreter, only one thread runs at a time
        recommended_changes={
            Resource.CPU: (f"{processes}+",),
            Resource.WORKERS: (f"{processes}+", f"{threads}+"),
            Resource.CONNECTIONS: connection_changes,
            Resource.MEMORY: (f"{processes}-", f"{threads}+"),
            Resource.HANDSHAKES: keepalive_changes,
        },
        refusal_rules=(build_counter_rule(complaint_kind, killed_explanation),),
        worker_rules=(worker_pool.detect_exhaustion,),
    )


def build_adoption(
    service: type[Service],
    list_candidates: Callable[[RunningHost], Iterable[ServerCandidate | str]],
    tune_function: TuneFunction | None = None,
    *,
    list_tunables: TunablesFunction = lambda _: (),
    paths: Iterable[str] = (),
    version_script: str,
    visible: VisibleDirectives,
) -> Adoption:
    """Return the adoption of a server that runs in the user's own units. ``paths`` are further
    locations of configuration files.
    """
    return Adoption(
        title=service.title,
        units=(service.unit_name,),
        paths=(*unit_files.ALL_UNIT_PATHS, *unit_environment.ENVIRONMENT_FILES, *paths),
        version_script=version_script,
        find_services=lambda host: _find_running(host, service, list_candidates(host)),
        visible=visible,
        tune_parameters=tune_function,
        list_tunables=list_tunables,
    )


def parse_address(address: str) -> str:
    """Return the TCP port or the path of a Unix socket in an address."""
    location = re.sub(r"^unix:(//)?|\?.*$", "", address)
    return location if "/" in location and "://" not in location else location.rpartition(":")[2]


def match_sockets(host: RunningHost, socket_pattern: str) -> list[str]:
    """Return the ports and sockets on ``host`` that match a shell pattern."""
    if len(socket_pattern) > MAX_PATH_BYTES:
        return []
    return [location for location in host.backlogs if fnmatchcase(location, socket_pattern)]


def _drop_jobs(
    host: RunningHost, candidates: Iterable[ServerCandidate | str]
) -> list[ServerCandidate | str]:
    """Return the candidates without jobs (`Type=oneshot`) that have the address of a server."""

    def is_job(candidate: ServerCandidate) -> bool:
        return unit_files.find_option(host.tree, candidate[0], "Type") == "oneshot"

    all_candidates = [*candidates]
    server_locations = {c[2] for c in all_candidates if not isinstance(c, str) and not is_job(c)}
    return [
        c
        for c in all_candidates
        if isinstance(c, str) or c[2] not in server_locations or not is_job(c)
    ]


def _find_rival(server: ServerCandidate, candidates: Iterable[ServerCandidate | str]) -> str:
    """Return another unit with the address of ``server``, or an empty string. The files do not show which
    unit listens.
    """
    unit, _, listen_location = server
    rivals = (
        candidate[0]
        for candidate in candidates
        if not isinstance(candidate, str) and candidate[2] == listen_location
    )
    return next((rival for rival in rivals if rival != unit and "@." not in rival), "")


def _find_running(
    host: RunningHost, service: type[Service], candidates: Iterable[ServerCandidate | str]
) -> Iterator[RunningService | str]:
    """Yield the ``candidates`` that are listening, and the reasons why other servers are not tuned.
    Only the first server on a Unix socket is tuned.

    If a candidate is text, it is the reason why a server is not tuned. A systemd specifier (`%i`)
    in an address matches any text.
    """
    first_unit, servers = "", _drop_jobs(host, candidates)
    for candidate in servers:
        if isinstance(candidate, str):
            yield candidate
            continue
        unit, config, listen_location = candidate
        socket = "" if is_uint(listen_location) else listen_location
        if not match_sockets(host, re.sub(r"%[a-zA-Z]", "*", glob.escape(listen_location))):
            continue
        if "@." in unit:
            yield f"{unit}: {_UNIT_TEMPLATE_REASON}"
            continue
        if rival := _find_rival(candidate, servers):
            yield f"{unit}: {_RIVAL_REASON.format(rival)}"
            continue
        if socket and first_unit:
            skip_reason = (
                f"autotune tunes only one {service.title} per host that listens on a unix socket"
            )
            yield f"{unit}: {skip_reason}, and has selected {first_unit}"
            continue
        first_unit = unit if socket else first_unit
        port = service.port if socket else int(listen_location)
        yield RunningService(
            host=host,
            key=service.name,
            config=config,
            tier_kind="app",
            port=port,
            listen_address=socket,
            unit=unit,
        )


def tune_parameters(
    config: Config,
    environment: UnitEnvironment,
    location_by_parameter: Mapping[str, ParameterLocation],
    accepts_value: ValueCheck,
) -> AdoptionResult:
    """Return edits that tune every parameter at its location. If one number sets several
    parameters, only the first of them is tuned.
    """
    adoption_results, environment_settings = [AdoptionResult()], list[EnvironmentSetting]()
    owner_by_source: dict[Word | tuple[str, str], str] = {}
    for parameter_name, parameter_location in location_by_parameter.items():
        owning_parameter = parameter_name
        if isinstance(parameter_location, Word | EnvironmentSetting):
            value_source = (
                (parameter_location.variable, parameter_location.option)
                if isinstance(parameter_location, EnvironmentSetting)
                else parameter_location
            )
            owning_parameter = owner_by_source.setdefault(value_source, parameter_name)
        if isinstance(parameter_location, str) or owning_parameter != parameter_name:
            shared_reason = f"it shares its value with {owning_parameter}"
            adoption_results[0].skipped[parameter_name] = (
                parameter_location if isinstance(parameter_location, str) else shared_reason
            )
        elif isinstance(parameter_location, EnvironmentSetting):
            environment_settings.append(parameter_location)
        elif isinstance(parameter_location, Word):
            directive = PlacedDirective(
                config.main_file, Directive(Word(parameter_name, 0), (parameter_location,))
            )
            single_config = replace(config, directives=(directive,))
            adoption_results.append(
                map_directives(
                    single_config, [Tunable(parameter_name, parameter_name, NUMBER)], accepts_value
                )
            )
        else:
            adoption_results.append(map_directives(config, [parameter_location], accepts_value))
    return merge_results(
        *adoption_results,
        unit_environment.tune_variables(environment, environment_settings, accepts_value),
    )
