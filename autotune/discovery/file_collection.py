"""Fetch a host's configuration files: first the files at the usual paths, then all files that fetched
files reference.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from posixpath import dirname, normpath

from autotune.config_text import is_utf8
from autotune.deploy.host_commands import Command, run_commands
from autotune.errors import AutotuneError
from autotune.services.adoption import RunningHost
from autotune.services.config_files import (
    MAX_ARCHIVE_BYTES,
    MAX_PATH_BYTES,
    FileTree,
    list_ancestors,
    unpack_tree,
)
from autotune.services.registry import SHIPPED, Catalogue
from autotune.strict_parsing import decompress_gzip
from autotune.transports.base import Transport

READ_TIMEOUT_SECONDS = 60.0
MAX_TARGET_DEPTH = 3  # maximum depth of files below a directory that a link points to
MAX_LINK_ROUNDS = 6  # maximum number of rounds for links that point to links
MAX_NAMED_ROUNDS = 8  # maximum number of rounds for fetched files that name further files
MAX_NAMED_PATHS = 2000  # maximum number of paths and patterns per round
_ALL_LEVELS, _NO_LEVELS = "99", "0"
# Size limits in kilobytes. Files at usual paths may be data, so the limit for files that a
# configuration names is higher.
USUAL_SIZE_LIMIT, NAMED_SIZE_LIMIT = 512, 4096
_KERNEL_DIRECTORIES = ("/proc/", "/sys/", "/dev/")

# Files with keys and passwords are skipped. Skipped files are still listed, because they may set values.
_KEY_NAMES = (
    "-name '*.key' -o -name '*.pem' -o -name '*.htpasswd' -o -name '.htpasswd' -o -name '*shadow*'"
)
# The arguments are a depth, a size limit, a pattern to skip, and patterns of paths. The script prints an
# archive in base64, then a list of skipped files in base64. Globs are expanded, but patterns are not
# split into words.
_COLLECT_SCRIPT = f"""
cd / && command -v tar >/dev/null || {{ echo 'there is no tar' >&2; exit 1; }}
depth=$1 limit=$2 skip=$3
shift 3
IFS=
for pattern in "$@"; do
    shift
    for place in $pattern; do
        if [ -e "$place" ] || [ -L "$place" ]; then set -- "$@" "$place"; fi
    done
done
[ "$#" = 0 ] && exit 0
kinds=l
[ "$depth" != 0 ] || kinds=l,d
find "$@" -maxdepth "$depth" \\( -type "$kinds" -o -type f -size "-${{limit}}k" ! \\( {_KEY_NAMES} \\) \\
    ! -name '*.so' ! -path "$skip" \\) -print0 2>/dev/null |
    tar -c --no-recursion --null -T - 2>/dev/null | gzip -c | base64 -w 0
echo
find "$@" -maxdepth "$depth" -type f ! -name '*.so' \\( -size "+$((limit - 1))k" -o {_KEY_NAMES} \\
    -o -path "$skip" \\) -printf '%s %p\\0' 2>/dev/null | gzip -c | base64 -w 0
"""


def build_usual_command(patterns: Iterable[str]) -> Command:
    """Return the command that packs the files and directories that match ``patterns``."""
    return _build_command(_ALL_LEVELS, USUAL_SIZE_LIMIT, "*/ssl/*", patterns)


def _build_command(depth: str, limit_kilobytes: int, skip: str, patterns: Iterable[str]) -> Command:
    script_arguments = (
        depth,
        str(limit_kilobytes),
        skip,
        *(f"./{pattern.lstrip('/')}" for pattern in patterns),
    )
    return Command(("sh", "-c", _COLLECT_SCRIPT, "sh", *script_arguments))


def unpack_collected(host: str, output: str, limit_kilobytes: int = USUAL_SIZE_LIMIT) -> FileTree:
    """Return the files in the output of the collecting script. Raises AutotuneError."""
    archive, _, skipped_archive = output.strip().partition("\n")
    tree = unpack_archive(host, archive)
    try:
        skipped_names = (
            decompress_gzip(base64.b64decode(skipped_archive, validate=True), MAX_ARCHIVE_BYTES)
            if skipped_archive.strip()
            else b""
        )
    except ValueError as error:
        raise AutotuneError(f"cannot unpack the list of files from {host}: {error}") from error
    unread: dict[str, str] = {}
    for line in skipped_names.decode("utf-8", "surrogateescape").split("\0"):
        size, _, path = line.partition(" ")
        is_too_large = size.isdecimal() and int(size) > (limit_kilobytes - 1) * 1024
        reason = (
            f"it is larger than {limit_kilobytes} KB"
            if is_too_large
            else "its name suggests a key or a password"
        )
        if path:
            unread[normpath(f"/{path}")] = reason
    return tree.merge(FileTree(unread=unread))


def unpack_archive(host: str, archive: str, root: str = "/") -> FileTree:
    """Return the files in a tar archive that is encoded in base64. Raises AutotuneError."""
    if not archive.strip():
        return FileTree()
    try:
        return unpack_tree(base64.b64decode(archive, validate=True), root)
    except ValueError as error:
        reason = f"cannot unpack the configuration files of {host}: {error}: {archive[:200]}"
        raise AutotuneError(reason) from error


def follow_links(
    transport: Transport, tree: FileTree, named_paths: Collection[str] = ()
) -> FileTree:
    """Return the tree, extended by the targets of links that only root can change.

    ``named_paths`` may contain links that are not in the tree.
    """
    requested_paths: set[str] = set()
    for _ in range(MAX_LINK_ROUNDS):
        unread_targets = tuple(
            target for target in tree.unread_targets if tree.directories and is_utf8(target)
        )
        paths = {path for path in (*tree.links, *unread_targets, *named_paths) if is_utf8(path)}
        unknown_paths = {
            *unread_targets,
            *(ancestor for path in paths for ancestor in list_ancestors(dirname(path))),
        } - requested_paths
        if not unknown_paths:
            break
        requested_paths |= unknown_paths
        new_targets = tuple(path for path in unread_targets if path in unknown_paths)
        # Read the parent directories, which show who can change a link.
        commands = [_build_parents_command(unknown_paths)]
        commands += [
            _build_command(str(MAX_TARGET_DEPTH), USUAL_SIZE_LIMIT, "*/ssl/*", new_targets)
        ] * bool(new_targets)
        for command_result in run_commands(transport, commands, timeout=READ_TIMEOUT_SECONDS):
            tree = tree.merge(unpack_collected(transport.name, command_result.stdout))
    return tree


_PARENTS_SCRIPT = """
cd / && find "$@" -maxdepth 0 \\( -type d -o -type l \\) -print0 2>/dev/null |
    tar -c --no-recursion --null -T - 2>/dev/null | gzip -c | base64 -w 0
"""


def _build_parents_command(paths: Iterable[str]) -> Command:
    return Command(
        ("sh", "-c", _PARENTS_SCRIPT, "sh", *(f"./{path[1:]}" for path in sorted(paths)))
    )


def collect_named_files(
    transport: Transport, host: RunningHost, tree: FileTree, catalogue: Catalogue = SHIPPED
) -> FileTree:
    """Return the tree, extended by the files that adoption requested.

    Commands, working directories, environment variables and includes may reference files in any
    directory.
    """
    usual_patterns = [
        normpath(f"/{path}") for adoption in catalogue.list_programs() for path in adoption.paths
    ]
    requested_paths: set[str] = set()
    for _ in range(MAX_NAMED_ROUNDS):
        unfetched_paths = sorted(_list_unfetched(tree, usual_patterns) - requested_paths)[
            :MAX_NAMED_PATHS
        ]
        if not unfetched_paths:
            break
        requested_paths |= {*unfetched_paths}
        command = _build_command(_NO_LEVELS, NAMED_SIZE_LIMIT, "", unfetched_paths)
        (command_result,) = run_commands(transport, [command], timeout=READ_TIMEOUT_SECONDS)
        fetched_tree = unpack_collected(transport.name, command_result.stdout, NAMED_SIZE_LIMIT)
        if any((fetched_tree.files, fetched_tree.links, fetched_tree.directories)):
            fetched_paths = (*fetched_tree.files, *fetched_tree.links)
            tree = follow_links(transport, tree.merge(fetched_tree), fetched_paths)
        else:
            tree = tree.merge(fetched_tree)
        look_up_files(host.with_tree(tree), catalogue)
    return tree


def look_up_files(host: RunningHost, catalogue: Catalogue = SHIPPED) -> None:
    """Run the adoption of every service, so that the tree records the requested paths."""
    for adoption in catalogue.list_programs():
        for running_service in adoption.find_services(host):
            if not isinstance(running_service, str):
                adoption.adopt(running_service, lambda *_: True)


def _list_unfetched(tree: FileTree, usual_patterns: Collection[str]) -> set[str]:
    """Return the requested paths that have not been fetched."""
    patterns = [pattern.split("/") for pattern in usual_patterns]
    unfetched_paths: set[str] = set()
    for requested_path in tree.requested:
        path = normpath(requested_path)
        is_valid = path.startswith("/") and path.isprintable() and is_utf8(path) and path != "/"
        if not is_valid or len(path) > MAX_PATH_BYTES or path.startswith(_KERNEL_DIRECTORIES):
            continue
        if any(_is_below_pattern(path.split("/"), pattern) for pattern in patterns):
            unfetched_paths |= {*tree.find_unread(path)}
        elif path not in tree.files:
            unfetched_paths.add(path)
    return unfetched_paths


def _is_below_pattern(path_components: list[str], pattern: list[str]) -> bool:
    """True if ``pattern`` matches a path or one of its parent directories."""
    component_pairs = zip(path_components, pattern, strict=False)
    return len(path_components) >= len(pattern) and all(
        w == p or fnmatchcase(w, p) for w, p in component_pairs
    )
