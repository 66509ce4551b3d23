"""Read the services on a host and their configuration in a few round trips, without changing anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from posixpath import dirname

from autotune.deploy.host_commands import Command, run_commands, run_required
from autotune.discovery.file_collection import (
    READ_TIMEOUT_SECONDS,
    build_usual_command,
    collect_named_files,
    follow_links,
    look_up_files,
    unpack_archive,
    unpack_collected,
)
from autotune.discovery.listeners import parse_listeners
from autotune.errors import AutotuneError
from autotune.services.adoption import Adoption, RunningHost
from autotune.services.config_files import FileTree
from autotune.services.registry import SHIPPED, Catalogue
from autotune.space.facts import HostFacts
from autotune.strict_parsing import is_uint, split_lines
from autotune.transports.base import SshHost, Transport
from autotune.transports.facts import read_host_facts

_LIST_UNITS_SCRIPT = """
command -v systemctl >/dev/null || exit 1
set -- $(for name in "$@"; do
    case $name in
        *\\**) systemctl list-unit-files --no-legend --no-pager "$name"
            systemctl list-units --plain --no-legend --no-pager "$name" ;;
        *) echo "$name" ;;
    esac
done | sed -e 's/ .*//' -e '/@\\./d' | sort -u)
{ systemctl show -p LoadState -p ActiveState -- "$@"; echo; } | while IFS== read -r property value; do
    case $property in
        LoadState) loaded=$value ;;
        ActiveState) active=$value ;;
        '') case "$loaded $active" in
                loaded*) echo "$1 $active" ;;
                'masked active') echo "$1 masked" ;;
            esac
            shift ;;
    esac
done
"""
_HOST_NAMES_SCRIPT = "hostname; hostname -I; hostname -f 2>/dev/null; :"
_SOCKETS_SCRIPT = "nproc; ss -lxH; ss -ltnH"
_BACKLOG_PATTERN = re.compile(r"LISTEN\s+[0-9]+\s+([0-9]{1,9})\s+(\S+)")
_IS_ACTIVE_SCRIPT = 'runs() { systemctl -q is-active -- "$1"; }'


@dataclass(frozen=True, kw_only=True)
class DiscoveredHost(RunningHost):
    """A host whose services and files were read. ``address`` is the address at which autotune
    reached the host.

    ``names`` are the host's own names and addresses, which files on other hosts may contain.
    ``catalogue`` contains the services for which autotune searched the host.
    """

    name: str
    address: str
    facts: HostFacts
    user: str | None = None
    port: int | None = None
    versions: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    catalogue: Catalogue = SHIPPED


def _build_probes(adoptions: Sequence[Adoption]) -> list[Command]:
    """Return the commands that read units, names, sockets, listeners and files of a host."""
    scripts = (
        (_LIST_UNITS_SCRIPT, *(unit for a in adoptions for unit in (*a.units, *a.other_units))),
        (_HOST_NAMES_SCRIPT,),
        (_SOCKETS_SCRIPT,),
        ("ss -ltnpH",),
    )
    return [
        *(Command(("sh", "-c", script, "sh", *arguments)) for script, *arguments in scripts),
        build_usual_command(path for adoption in adoptions for path in adoption.paths),
    ]


def read_host(
    transport: Transport, host: SshHost, catalogue: Catalogue = SHIPPED
) -> DiscoveredHost:
    """Read the services and files of ``host``. The result has the host's own short name, if valid.

    Raises HostUnreachable, or AutotuneError if the account cannot become root on the host.
    """
    unit_output, name_output, socket_output, listener_output, collected_files = run_commands(
        transport, _build_probes(catalogue.list_programs()), timeout=READ_TIMEOUT_SECONDS
    )
    if not unit_output.ok:
        raise AutotuneError(
            f"{host.name} has no systemd, which autotune needs to reload services",
            hint="write a target with `autotune init --example command`",
        )
    tree = follow_links(transport, unpack_collected(transport.name, collected_files.stdout))
    host_names, processors = (
        name_output.stdout.split(),
        socket_output.stdout.partition("\n")[0].strip(),
    )
    discovered_host = DiscoveredHost(
        name=_shorten_name(host_names, host.address),
        address=host.address,
        user=host.user,
        port=host.port,
        tree=tree,
        facts=read_host_facts(transport, units=True),
        units=dict(line.split(" ", 1) for line in split_lines(unit_output.stdout) if " " in line),
        names=frozenset({host.address, *host_names}),
        processors=_parse_processors(host.name, processors),
        backlogs=_parse_backlogs(socket_output.stdout),
        listeners=parse_listeners(listener_output.stdout),
        catalogue=catalogue,
    )
    look_up_files(discovered_host, catalogue)
    complete_tree = collect_named_files(transport, discovered_host, tree, catalogue)
    return replace(discovered_host, tree=complete_tree)


def read_versions(host: DiscoveredHost, transport: Transport) -> DiscoveredHost:
    """Return the host with the names and versions of its installed software, for display.

    The commands of application servers take almost a second of CPU time.
    """
    version_scripts = (adoption.version_script for adoption in host.catalogue.list_programs())
    script = "\n".join([_IS_ACTIVE_SCRIPT, *version_scripts, ":"])
    (versions,) = run_commands(
        transport, [Command(("sh", "-c", script))], timeout=READ_TIMEOUT_SECONDS
    )
    return replace(host, versions=tuple(line for line in split_lines(versions.stdout) if line))


def list_config_paths(
    deployments: Iterable[str], catalogue: Catalogue = SHIPPED
) -> tuple[str, ...]:
    """Return the paths of the files and directories with the configuration of ``deployments``. Patterns
    are replaced by their directories.

    Patterns outside of /etc are omitted, because directories with data or applications may be large.
    """
    path_patterns = {key: adoption.paths for key, adoption in catalogue.map_adoptions().items()}
    patterns = [
        path
        for name in deployments
        for service, _ in catalogue.services_of(name)
        for path in path_patterns.get(service.key, ())
    ]
    literal_prefixes = (
        re.sub(r"(^|/)[^/]*[*?\[].*", "", pattern)
        for pattern in patterns
        if pattern.startswith("etc/") or not re.search(r"[*?\[]", pattern)
    )
    paths = sorted({f"/{path.strip('/')}" for path in literal_prefixes if path})
    return tuple(path for path in paths if not any(path.startswith(f"{other}/") for other in paths))


def read_isolated_host(
    transport: Transport,
    host: SshHost,
    deployments: Iterable[str],
    paths: Sequence[str],
    archive_command: Sequence[str],
    shell_functions: str,
    catalogue: Catalogue = SHIPPED,
) -> DiscoveredHost:
    """Return a host with the files in the separate file system of its services.

    ``archive_command`` prints a tar archive of each of ``paths`` in base64. The command uses no program
    in the separate file system.
    """
    commands = [Command(tuple(archive_command), required=True), Command(("nproc",), required=True)]
    archives, processors = run_required(
        transport, commands, timeout=READ_TIMEOUT_SECONDS, functions=shell_functions
    )
    trees = [
        unpack_archive(transport.name, archive_text, dirname(path))
        for path, archive_text in zip(paths, split_lines(archives.stdout), strict=False)
    ]
    units = (
        service.unit_name for name in deployments for service, _ in catalogue.services_of(name)
    )
    return DiscoveredHost(
        name=transport.name,
        address=host.address,
        # Links are resolved only inside the copied directories, whose parents are unknown.
        tree=replace(reduce(FileTree.merge, trees, FileTree()), directories={}),
        facts=read_host_facts(transport),
        units=dict.fromkeys(filter(None, units), "active"),
        processors=_parse_processors(transport.name, processors.stdout.strip()),
        catalogue=catalogue,
    )


def _parse_processors(host: str, printed_count: str) -> int:
    if not is_uint(printed_count):
        raise AutotuneError(f"{host}: `nproc` did not print the number of processors")
    return int(printed_count)


def _parse_backlogs(output: str) -> dict[str, int]:
    """Return backlogs by path or port. If several sockets share a path or port, the shortest backlog is
    returned, because it fills first.
    """
    backlogs: dict[str, int] = {}
    for size, location in _BACKLOG_PATTERN.findall(output):
        path_or_port = location if location.startswith("/") else location.rpartition(":")[2]
        backlogs[path_or_port] = min(int(size), backlogs.get(path_or_port, int(size)))
    return backlogs


def _shorten_name(host_names: list[str], address: str) -> str:
    for host_name in (*host_names[:1], address):
        short_name = re.sub(r"[^A-Za-z0-9_-]", "", host_name.partition(".")[0])[:40]
        if re.match(r"[A-Za-z]", short_name):
            return short_name
    return "host"
