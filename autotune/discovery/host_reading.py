"""Services on a host and their configuration, read in one exchange that changes nothing."""

from __future__ import annotations

import base64
import re
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from posixpath import dirname

from autotune.config_text import is_utf8
from autotune.deploy.host_commands import Command, run_commands, run_required
from autotune.discovery.listeners import parse_listeners
from autotune.errors import AutotuneError
from autotune.services.adoption import RunningHost
from autotune.services.config_files import FileTree, list_ancestors, unpack_tree
from autotune.services.registry import list_programs, map_adoptions, services_of
from autotune.space.facts import HostFacts
from autotune.strict_parsing import is_uint, split_lines
from autotune.transports.base import SshHost, Transport
from autotune.transports.facts import read_host_facts

READ_TIMEOUT_SECONDS = 60.0  # seconds
MAX_TARGET_DEPTH = 3  # levels below the directory that a link points to
MAX_LINK_ROUNDS = 6  # rounds that follow links to links

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
# Configurations are small text files. Large files, keys and passwords are skipped.
_SMALL_FILES_EXPRESSION = (
    r"\( -type l -o -type f -size -512k ! -name '*.key' ! -name '*.pem' ! -name '*.htpasswd' "
    r"! -name '.htpasswd' ! -name '*.so' ! -path '*/ssl/*' \) -print0 2>/dev/null"
)
_PACK_SCRIPT = "tar -c --no-recursion --null -T - 2>/dev/null | gzip -c | base64 -w 0"
_PACK_FILES_SCRIPT = f"""
cd / && command -v tar >/dev/null || {{ echo 'there is no tar' >&2; exit 1; }}
for pattern in "$@"; do
    shift
    for place in $pattern; do
        [ -e "$place" ] && set -- "$@" "$place"
    done
done
[ "$#" = 0 ] && exit 0
find "$@" {_SMALL_FILES_EXPRESSION} | {_PACK_SCRIPT}
"""
# Links may lead outside of the read paths. Parent directories show who can change a link.
_PACK_PARENTS_SCRIPT = f"""
cd / && find "$@" -maxdepth 0 \\( -type d -o -type l \\) -print0 2>/dev/null | {_PACK_SCRIPT}
"""
_PACK_TARGETS_SCRIPT = f"""
cd / && find "$@" -maxdepth {MAX_TARGET_DEPTH} {_SMALL_FILES_EXPRESSION} | {_PACK_SCRIPT}
"""


@dataclass(frozen=True, kw_only=True)
class DiscoveredHost(RunningHost):
    """``address`` is where the host was reached.

    ``names`` are its own names and addresses, which the configurations of other hosts may contain.
    """

    name: str
    address: str
    facts: HostFacts
    user: str | None = None
    port: int | None = None
    versions: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()


def read_host(transport: Transport, host: SshHost) -> DiscoveredHost:
    """Read ``host``. The result has its own short host name, if that is usable.

    Raises HostUnreachable, or AutotuneError if the account cannot become root on the host.
    """
    every = list_programs()
    scripts = (
        (_LIST_UNITS_SCRIPT, *(unit for a in every for unit in (*a.units, *a.other_units))),
        (_HOST_NAMES_SCRIPT,),
        (_SOCKETS_SCRIPT,),
        (_PACK_FILES_SCRIPT, *(path for adoption in every for path in adoption.paths)),
        ("ss -ltnpH",),
    )
    asked = [Command(("sh", "-c", script, "sh", *arguments)) for script, *arguments in scripts]
    units, names, sockets, files, listening = run_commands(
        transport, asked, timeout=READ_TIMEOUT_SECONDS
    )
    if not units.ok:
        raise AutotuneError(
            f"{host.name} has no systemd, which autotune needs to reload its services",
            hint="write a target with `autotune init --example command`",
        )
    tree = _follow_links(transport, _unpack_tree(transport.name, files.stdout))
    own, processors = names.stdout.split(), sockets.stdout.partition("\n")[0].strip()
    if not is_uint(processors):
        raise AutotuneError(f"{host.name}: `nproc` did not print the number of processors")
    return DiscoveredHost(
        name=_shorten_name(own, host.address),
        address=host.address,
        user=host.user,
        port=host.port,
        tree=tree,
        facts=read_host_facts(transport, units=True),
        units=dict(line.split(" ", 1) for line in split_lines(units.stdout) if " " in line),
        names=frozenset({host.address, *own}),
        processors=int(processors),
        backlogs=_parse_backlogs(sockets.stdout),
        listeners=parse_listeners(listening.stdout),
    )


def read_versions(host: DiscoveredHost, transport: Transport) -> DiscoveredHost:
    """Return the host with the names and versions of installed software, for people to read.

    This takes most of a second of CPU on a host with application servers.
    """
    script = "\n".join(
        [_IS_ACTIVE_SCRIPT, *(adoption.version_script for adoption in list_programs()), ":"]
    )
    (versions,) = run_commands(
        transport, [Command(("sh", "-c", script))], timeout=READ_TIMEOUT_SECONDS
    )
    return replace(host, versions=tuple(line for line in split_lines(versions.stdout) if line))


def list_config_paths(deployments: Iterable[str]) -> tuple[str, ...]:
    """Return the paths where services of deployments are configured; a pattern gives its directory.

    Patterns outside /etc are left out: directories of data and applications may be of any size.
    """
    every = {key: adoption.paths for key, adoption in map_adoptions().items()}
    patterns = [path for name in deployments for service, _ in services_of(name)
                for path in every.get(service.key, ())]  # fmt: skip
    plain = (re.sub(r"(^|/)[^/]*[*?\[].*", "", pattern) for pattern in patterns
             if pattern.startswith("etc/") or not re.search(r"[*?\[]", pattern))  # fmt: skip
    paths = sorted({f"/{path.strip('/')}" for path in plain if path})
    return tuple(path for path in paths
                 if not any(path.startswith(f"{other}/") for other in paths))  # fmt: skip


def read_isolated_host(
    transport: Transport,
    host: SshHost,
    deployments: Iterable[str],
    paths: Sequence[str],
    archive_command: Sequence[str],
    shell_functions: str,
) -> DiscoveredHost:
    """Return a host as services with their own file system see it.

    ``archive_command`` prints a tar archive of each of ``paths``, in base64. It needs no program from
    inside that file system.
    """
    commands = [Command(tuple(archive_command), required=True), Command(("nproc",), required=True)]
    archives, processors = run_required(
        transport, commands, timeout=READ_TIMEOUT_SECONDS, functions=shell_functions
    )
    trees = [_unpack_tree(transport.name, text, dirname(path))
             for path, text in zip(paths, split_lines(archives.stdout), strict=False)]  # fmt: skip
    units = (service.unit_name for name in deployments for service, _ in services_of(name))
    return DiscoveredHost(
        name=transport.name,
        address=host.address,
        tree=FileTree(*({path: what for tree in trees for path, what in getattr(tree, kind).items()}
                    for kind in ("files", "links", "modes"))),
        facts=read_host_facts(transport),
        units=dict.fromkeys(filter(None, units), "active"),
        processors=int(processors.stdout),
    )  # fmt: skip


def _follow_links(transport: Transport, tree: FileTree) -> FileTree:
    """Return the tree with the targets of its links, if only root can change those links."""
    asked: set[str] = set()
    for _ in range(MAX_LINK_ROUNDS):
        targets = tuple(end for end in tree.unread_targets if tree.directories and is_utf8(end))
        paths = {path for path in (*tree.links, *targets) if is_utf8(path)}
        above = {
            *targets,
            *(each for path in paths for each in list_ancestors(dirname(path))),
        } - asked
        if not above:
            break
        asked |= above
        below = tuple(path for path in targets if path in above)
        commands = [
            Command(("sh", "-c", script, "sh", *(f"./{path[1:]}" for path in sorted(locations))))
            for script, locations in ((_PACK_PARENTS_SCRIPT, above), (_PACK_TARGETS_SCRIPT, below))
            if locations
        ]
        for answer in run_commands(transport, commands, timeout=READ_TIMEOUT_SECONDS):
            tree = tree.merge(_unpack_tree(transport.name, answer.stdout))
    return tree


def _parse_backlogs(printed: str) -> dict[str, int]:
    """Return backlogs by path or port; of several sockets the shortest, which fills first."""
    backlogs: dict[str, int] = {}
    for size, location in _BACKLOG_PATTERN.findall(printed):
        key = location if location.startswith("/") else location.rpartition(":")[2]
        backlogs[key] = min(int(size), backlogs.get(key, int(size)))
    return backlogs


def _shorten_name(names: list[str], address: str) -> str:
    for name in (*names[:1], address):
        short = re.sub(r"[^A-Za-z0-9_-]", "", name.partition(".")[0])[:40]
        if re.match(r"[A-Za-z]", short):
            return short
    return "host"


def _unpack_tree(host: str, archive: str, root: str = "/") -> FileTree:
    if not archive.strip():
        return FileTree()
    try:
        return unpack_tree(base64.b64decode(archive, validate=True), root)
    except (ValueError, tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = f"cannot unpack the configuration files of {host}: {error}: {archive[:200]}"
        raise AutotuneError(reason) from error
