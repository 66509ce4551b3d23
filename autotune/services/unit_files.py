"""Units of the host's service manager: where they are, their syntax, and the command they start."""

from __future__ import annotations

import re
from functools import lru_cache
from posixpath import basename, dirname

from autotune.services.config_files import Directive, Tree, Word, stripped

# In order of precedence, the highest first.
PLACES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_LINE = re.compile(r"[^\n]+")
_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\[^\s]|[^\s"'\\])+""")
# unit option argv…: runs argv with the option, as the unit's account, in its directory and with its
# environment. The service that runs, and the socket it listens at, stay as they are.
AS_UNIT = """
unit=$1 option=$2
shift 2
for name in User Group WorkingDirectory Environment; do
    value=$(systemctl show -P "$name" -- "$unit")
    [ -z "$value" ] || set -- "--property=$name=$value" "$@"
done
while read -r file missing; do
    case $missing in *yes*) file=-$file ;; esac
    [ -z "$file" ] || set -- "--property=EnvironmentFile=$file" "$@"
done <<END
$(systemctl show -P EnvironmentFiles -- "$unit")
END
# A new unit does not see what is mounted for this command alone: STAGED and PATH, a line each, again and
# again. It gets each staged file, read-only, at a place where only root can change names.
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
# The words of $unit's command, a space between.
UNIT_WORDS = r"""systemctl show -P ExecStart -- "$unit" | sed 's/.*argv\[\]=//; s/ ; .*//; q'"""
# The words that the main process of $unit was started with, a NUL behind each. A process that has given
# itself another title no longer shows them: then they are those of the unit's command.
MAIN_WORDS = rf"""
pid=$(systemctl show -P MainPID -- "$unit")
case $(tr '\0' ' ' <"/proc/$pid/cmdline") in
    *': '*\[*\]*) {UNIT_WORDS} | tr ' \n' '\0\0' ;;
    *) cat "/proc/$pid/cmdline" ;;
esac
"""


def paths(unit: str) -> tuple[str, ...]:
    """Where a unit may be, and drop-ins of it, relative to ``/``."""
    return tuple(f"{place[1:]}/{unit}{end}" for place in PLACES for end in ("", ".d"))


# Units to read for a program that may run under any unit's name.
ANY = tuple(f"{place[1:]}/{name}" for place in PLACES[:2]
            for name in ("*.service", "*.service.d", "*.socket"))  # fmt: skip


def drop_in(unit: str) -> str:
    """A file of autotune's own that overrides those of packages."""
    return f"{PLACES[0]}/{unit}.d/zz-autotune.conf"


def starting(tree: Tree, unit: str) -> tuple[str, Directive] | None:
    """The file whose command takes effect, and that command: the last drop-in's that has one, or else the
    unit's own."""
    for path in reversed(files(tree, unit)):
        if line := command(tree.text(path)):
            return path, line
    return None


def files(tree: Tree, unit: str) -> tuple[str, ...]:
    """A unit's own file, and its drop-ins in the order that systemd reads them."""
    own = [path for place in PLACES if (path := tree.real(f"{place}/{unit}")) in tree.files]
    drop_ins = {basename(path): path for place in reversed(PLACES)
                for path in tree.matching(f"{place}/{unit}.d/*.conf")}  # fmt: skip
    return (*own[:1], *(drop_ins[name] for name in sorted(drop_ins)))


def unfollowed(tree: Tree, unit: str) -> tuple[str, ...]:
    """Links in place of its drop-ins that lead to nothing that was read."""
    return tuple(path for place in PLACES for path in tree.unfollowed(f"{place}/{unit}.d/*.conf"))


def option(tree: Tree, unit: str, name: str) -> str:
    """The first word of the last value that a unit gives an option; empty where it gives none."""
    lines = [line for path in files(tree, unit) for line in read(tree.text(path))
             if line.name.text == name and line.arguments]  # fmt: skip
    return lines[-1].arguments[0].text if lines else ""


def opened(tree: Tree, unit: str) -> str:
    """Where its socket unit listens for it; empty where there is none."""
    return option(tree, f"{unit.removesuffix('service')}socket", "ListenStream")


def naming(tree: Tree, program: str) -> tuple[str, ...]:
    """The names of units that mention a program in their file or a drop-in."""
    files = (path for place in PLACES for pattern in ("*.service", "*.service.d/*.conf")
             for path in tree.matching(f"{place}/{pattern}"))  # fmt: skip
    units = (path if path.endswith(".service") else dirname(path).removesuffix(".d")
             for path in files if program.encode() in tree.files[path])  # fmt: skip
    return tuple(dict.fromkeys(basename(path) for path in units))


def command(text: str) -> Directive | None:
    """What a unit starts: its last ``ExecStart``; none where that is empty, a reset."""
    commands = [line for line in read(text)
                if line.name.text == "ExecStart" and line.within == (("[Service]",),)]  # fmt: skip
    return commands[-1] if commands and commands[-1].arguments else None


@lru_cache(maxsize=64)  # each parameter of a service asks for the same few units
def read(text: str) -> tuple[Directive, ...]:
    """Every assignment with its words as arguments, those on continuation lines included."""
    assignments: list[Directive] = []
    section, words, goes_on = "", list[Word](), False
    for line in _LINE.finditer(text):
        bare, start = line[0].strip(), line.start()
        if bare.startswith(("#", ";")):
            continue  # between continuation lines, too
        if not goes_on and bare.startswith("["):
            section = bare
            continue
        if not goes_on:
            name, sign, _ = line[0].partition("=")
            words = [stripped(name, start)]
            start += len(name) + len(sign)
        goes_on = line[0].endswith("\\")
        words += [Word(word[0], word.start())
                  for word in _WORD.finditer(text, start, line.end() - goes_on)]  # fmt: skip
        if not goes_on:
            assignments.append(Directive(words[0], tuple(words[1:]), ((section,),)))
    return tuple(assignments)
