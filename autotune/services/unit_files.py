"""systemd units on a host: their locations, syntax and commands."""

from __future__ import annotations

import re
from functools import lru_cache
from posixpath import basename, dirname

from autotune.services.config_files import Directive, FileTree, Word, strip_word

# Directories of unit files, in descending order of precedence (systemd.unit(5)).
UNIT_DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
SERVICE_SECTION = "[Service]"  # systemd ignores options of services in other sections
ADMIN_DIRECTORY = "/etc/systemd/system"  # directory of the administrator's own units and drop-ins
_LINE_PATTERN = re.compile(r"(?m)^[^\n]*")
_BYTE_ORDER_MARK = "\ufeff"  # systemd ignores it at the start of a file
_WORD_PATTERN = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\[^\s]|[^\s"'\\])+""")
# Arguments: unit, option, argv… Runs argv with the option under the unit's account, in the unit's
# directory and environment. The running service and its socket are not affected. `--` comes before argv,
# because the service's account may have written it, and systemd-run must not read options in it. If the
# unit starts as root and serves under one other account, argv runs under this account, because it may
# load the application. If $AUTOTUNE_AS_ROOT is set, or if argv changes the account, it runs as root.
# If argv comes from the process $AUTOTUNE_PID, it runs under the account of this process.
UNIT_RUN_SCRIPT = """
unit=$1 option=$2
shift 2
set -- -- "$@"
group=$(systemctl show --value -p ControlGroup -- "$unit")
user=$(systemctl show --value -p User -- "$unit")
case $user in root | 0) user= ;; esac
pids=${AUTOTUNE_PID-}
if [ -n "$pids" ]; then
    [ -r "/proc/$pids/status" ] || exit 1 # the process has ended, so its account is unknown
elif [ -n "$group" ] && [ -z "${AUTOTUNE_AS_ROOT-}" ]; then
    # The second path is for cgroup v1.
    for tree in /sys/fs/cgroup /sys/fs/cgroup/systemd; do
        pids="$pids $(cat "$tree$group/cgroup.procs" 2>/dev/null)"
    done
    for word; do
        case ${word##*/} in sudo | runuser | setpriv | su | chrt) pids= ;; esac
    done
fi
if [ -n "$pids" ] && [ -z "$user" ]; then
    accounts=$(
        for pid in $pids; do
            awk '$1 == "Uid:" { uid = $3 } $1 == "Gid:" && uid > 0 { print uid ":" $3 }' \
                "/proc/$pid/status" 2>/dev/null
        done | sort -u | paste -sd , -
    )
    case $accounts in
        '' | *,*) ;;
        *) set -- "--property=User=${accounts%:*}" "--property=Group=${accounts#*:}" "$@" ;;
    esac
fi
for name in User Group WorkingDirectory Environment; do
    value=$(systemctl show --value -p "$name" -- "$unit")
    # A directory that may be missing is printed with `!`, but set with `-`.
    case $name$value in WorkingDirectory!*) value=-${value#!} ;; esac
    [ -z "$value" ] || set -- "--property=$name=$value" "$@"
done
# Later files override earlier ones. The loop reverses their order, so it starts with the last file.
while read -r file missing; do
    case $missing in *yes*) file=-$file ;; esac
    [ -z "$file" ] || set -- "--property=EnvironmentFile=$file" "$@"
done <<END
$(systemctl show --value -p EnvironmentFiles -- "$unit" | tac)
END
# A new unit does not see this command's private mounts: pairs of lines, STAGED and PATH. Each staged
# file is bound read-only in a directory where only root can rename files.
if [ -n "${AUTOTUNE_STAGED-}" ]; then
    place=$(mktemp -d -p /run autotune-check.XXXXXXXXXX) && chmod 755 "$place" || exit
    trap 'rm -rf "$place"' EXIT
    number=0
    while IFS= read -r staged && IFS= read -r path; do
        number=$((number + 1)) at= of=$#
        : >"$place/$number"
        while [ "$of" -gt 0 ]; do
            word=$1 of=$((of - 1))
            shift
            if [ "$word" = "$path" ]; then word=$place/$number at=$word; fi
            set -- "$@" "$word"
        done
        [ "$path" != "$option" ] || at=$place/$number option=$place/$number
        set -- "--property=BindReadOnlyPaths=$staged:${at:-$path}" "$@"
    done <<END
$AUTOTUNE_STAGED
END
    systemd-run --quiet --pipe --wait --collect "$@" "$option"
    exit
fi
exec systemd-run --quiet --pipe --wait --collect "$@" "$option"
"""
# Prints the words of the command of $unit, separated by spaces.
UNIT_COMMAND_SCRIPT = (
    r"""systemctl show --value -p ExecStart -- "$unit" | sed 's/.*argv\[\]=//; s/ ; .*//; q'"""
)
# Prints the words on the command line of $unit's main process, each followed by NUL. A process that
# changed its title no longer shows its command line, so the unit's command is used instead.
PROCESS_COMMAND_SCRIPT = rf"""
pid=$(systemctl show --value -p MainPID -- "$unit")
case $(tr '\0' ' ' <"/proc/$pid/cmdline") in
    *': '*\[*\]*) {UNIT_COMMAND_SCRIPT} | tr ' \n' '\0\0' ;;
    *) cat "/proc/$pid/cmdline" ;;
esac
"""


def list_unit_paths(unit: str) -> tuple[str, ...]:
    """Return the possible paths of a systemd unit and of its drop-ins, relative to ``/``."""
    file_names = (*_list_unit_names(unit), *(f"{name}.d" for name in _list_drop_in_names(unit)))
    return tuple(f"{location[1:]}/{name}" for location in UNIT_DIRECTORIES for name in file_names)


# The paths of all units, for a program whose unit may have any name.
ALL_UNIT_PATHS = tuple(
    f"{place[1:]}/{name}"
    for place in UNIT_DIRECTORIES
    for name in ("*.service", "*.service.d", "service.d", "*.socket")
)


def _list_unit_names(unit: str) -> tuple[str, ...]:
    """Return the names that a unit's file may have, with the template's name last."""
    template, separator, instance_and_suffix = unit.partition("@")
    suffix = instance_and_suffix.rpartition(".")[2]
    return (
        (unit, f"{template}@.{suffix}") if separator and instance_and_suffix != suffix else (unit,)
    )


def _list_drop_in_names(unit: str) -> tuple[str, ...]:
    """Return the names whose drop-ins apply to a unit, starting with the most specific."""
    unit_stem, _, unit_suffix = unit.rpartition(".")
    stem_parts = unit_stem.partition("@")[0].split("-")
    prefix_names = (
        "-".join(stem_parts[:part_count]) + f"-.{unit_suffix}"
        for part_count in range(len(stem_parts) - 1, 0, -1)
    )
    return (*_list_unit_names(unit), *prefix_names, unit_suffix)


def get_drop_in_path(unit: str) -> str:
    """Return the path of autotune's drop-in, which overrides drop-ins from packages."""
    return f"{ADMIN_DIRECTORY}/{unit}.d/zz-autotune.conf"


def is_own_file(path: str, unit: str) -> bool:
    """True if an administrator's file applies to a single unit. Templates and drop-ins such as
    `shop-.service.d` apply to several units.
    """
    own_path = f"{ADMIN_DIRECTORY}/{unit}"
    return path == own_path or dirname(path) == f"{own_path}.d"


def find_exec_start(file_tree: FileTree, unit: str) -> tuple[str, Directive] | None:
    """Return the path of the file with a unit's effective command, and the command. The file is the last
    drop-in with a command, or else the unit's own file.
    """
    for path in reversed(list_unit_files(file_tree, unit)):
        if line := parse_exec_start(file_tree.read_text(path)):
            return path, line
    return None


def list_arguments(file_tree: FileTree, unit: str) -> tuple[Word, ...]:
    """Return the words of a unit's effective command as they are written; empty if it was not read."""
    exec_start = find_exec_start(file_tree, unit)
    return exec_start[1].arguments if exec_start else ()


def list_unit_files(file_tree: FileTree, unit: str) -> tuple[str, ...]:
    """Return a unit's own file, and its drop-ins in the order in which systemd reads them."""
    unit_paths = [
        path
        for name in _list_unit_names(unit)
        for unit_directory in UNIT_DIRECTORIES
        if (path := file_tree.resolve(f"{unit_directory}/{name}")) in file_tree.files
    ]
    drop_in_by_name = {
        basename(path): real_path
        for name in reversed(_list_drop_in_names(unit))
        for unit_directory in reversed(UNIT_DIRECTORIES)
        for path, real_path in file_tree.match(f"{unit_directory}/{name}.d/*.conf").items()
    }
    # A link to /dev/null masks drop-ins with the same name.
    ordered_drop_ins = (drop_in_by_name[name] for name in sorted(drop_in_by_name))
    paths = (*unit_paths[:1], *ordered_drop_ins)
    return tuple(path for path in paths if path in file_tree.files and path.isprintable())


def find_unread_drop_ins(file_tree: FileTree, unit: str) -> dict[str, str]:
    """Return those drop-ins of a unit that were not read, each with the reason."""
    reasons: dict[str, str] = {}
    for unit_directory in UNIT_DIRECTORIES:
        for name in _list_drop_in_names(unit):
            pattern = f"{unit_directory}/{name}.d/*.conf"
            for link in file_tree.find_broken_links(pattern):
                reasons[link] = file_tree.explain_missing(link)
            reasons |= file_tree.find_unread(pattern)
            reasons |= {
                path.encode("unicode_escape").decode(): "its name contains control characters"
                for path in file_tree.glob(pattern)
                if not path.isprintable()
            }
    return reasons


def find_option(file_tree: FileTree, unit: str, option_name: str) -> str:
    """Return the first word of the last value of an option in a unit, or an empty string."""
    section = "[Socket]" if unit.endswith(".socket") else SERVICE_SECTION
    option_lines = [
        line
        for path in list_unit_files(file_tree, unit)
        for line in parse_directives(file_tree.read_text(path))
        if line.name.text == option_name and line.arguments and line.blocks == ((section,),)
    ]
    return option_lines[-1].arguments[0].text.strip("\"'") if option_lines else ""


def find_socket_address(file_tree: FileTree, unit: str) -> str:
    """Return the address on which the unit's socket unit listens, or an empty string if there is
    none.
    """
    return find_option(file_tree, f"{unit.removesuffix('service')}socket", "ListenStream")


def find_units_mentioning(file_tree: FileTree, program: str) -> tuple[str, ...]:
    """Return the units whose file or drop-ins mention a program."""
    # A link to a unit is an alias of that unit. A link to a file elsewhere is a separate unit.
    mentioning_files = (
        real_path if dirname(real_path) in UNIT_DIRECTORIES else path
        for unit_directory in UNIT_DIRECTORIES
        for pattern in ("*.service", "*.service.d/*.conf")
        for path, real_path in file_tree.match(f"{unit_directory}/{pattern}").items()
        if program.encode() in file_tree.files.get(real_path, b"")
    )
    unit_paths = (
        path if path.endswith(".service") else dirname(path).removesuffix(".d")
        for path in mentioning_files
    )
    return tuple(dict.fromkeys(basename(path) for path in unit_paths))


def parse_exec_start(unit_text: str) -> Directive | None:
    """Return the last ``ExecStart`` of a unit, or None for an empty ``ExecStart``, which resets the
    command.
    """
    exec_starts = [
        line
        for line in parse_directives(unit_text)
        if line.name.text == "ExecStart" and line.blocks == ((SERVICE_SECTION,),)
    ]
    return exec_starts[-1] if exec_starts and exec_starts[-1].arguments else None


@lru_cache(maxsize=64)  # adoption parses the same few units for each parameter of a service
def parse_directives(unit_text: str) -> tuple[Directive, ...]:
    """Return every assignment with its words as arguments, including words on continuation lines.

    An empty line or the end of the file ends an assignment, even after a backslash.
    """
    assignments: list[Directive] = []
    section_header, assignment_words, is_continued = "", list[Word](), False
    for line in _LINE_PATTERN.finditer(f"{unit_text}\n"):
        line_text = line[0].rstrip("\r")
        stripped_line, line_start = line_text.removeprefix(_BYTE_ORDER_MARK).strip(), line.start()
        if stripped_line.startswith(("#", ";")):
            continue  # comments may be between continuation lines, too
        if not is_continued and not stripped_line:
            continue
        if not is_continued and stripped_line.startswith("["):
            section_header = stripped_line
            continue
        if not is_continued:
            option_name, equals_sign, _ = line_text.partition("=")
            assignment_words = [strip_word(option_name, line_start)]
            line_start += len(option_name) + len(equals_sign)
        is_continued = line_text.endswith("\\")
        line_end = line.start() + len(line_text) - is_continued
        assignment_words += [
            Word(word[0], word.start())
            for word in _WORD_PATTERN.finditer(unit_text, line_start, line_end)
        ]
        if not is_continued:
            assignments.append(
                Directive(assignment_words[0], tuple(assignment_words[1:]), ((section_header,),))
            )
    return tuple(assignments)
