"""Find running uWSGIs, and map their .ini files to parameters."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, join

from autotune.services import app_server, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import Candidate
from autotune.services.config_files import Config, Tree, gather
from autotune.services.directives import NUMBER, Absent, Tunable, below
from autotune.services.understood import Understood
from autotune.services.uwsgi import syntax
from autotune.services.uwsgi.service import INHERITED, PARAMETERS, UNIT, Uwsgi
from autotune.strict import is_whole

_WITH_A_FILE = "to tune uWSGI, use an .ini file with a section [uwsgi]"
_APPLICATIONS = "/etc/uwsgi/apps-enabled"


def _candidates(host: RunningHost) -> Iterator[Candidate | str]:
    """Yield the application of each unit with exactly one, or the reason why it is not tuned."""
    for unit, files in dict(_units(host)).items():
        if len(files) > 1:
            yield f"{unit}: not tuned, because {len(files)} uWSGI applications share it"
        if not files and unit != UNIT and "@." not in unit:  # a package ships a template unit
            yield f"{unit}: {_WITH_A_FILE}"
        for path in files if len(files) == 1 else ():
            config = _read(host.tree, path)
            if config.called(syntax.SECTION):
                yield unit, config, _listens(config)
            else:
                yield f"{unit}: {_WITH_A_FILE}"


def _units(host: RunningHost) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield units with their applications' files, from the command, an emperor's vassals, or
    Debian.
    """
    for unit in unit_files.naming(host.tree, "uwsgi"):
        words = _words(host.tree, unit)
        if any(basename(word.lstrip("-@:+!")).startswith("uwsgi") for word in words):
            files = [path for word in words if word.partition(":")[0].endswith(".ini")
                     for path in host.tree.matching(word.partition(":")[0])]  # fmt: skip
            vassals = unit_environment.values_of(words, "--emperor")
            named = (
                placed for path in files for placed in _read(host.tree, path).called("emperor")
            )
            vassals += [placed.words[0] for placed in named if placed.words]
            of_vassals = [
                path for place in vassals for path in host.tree.matching(join(place, "*.ini"))
            ]
            yield unit, tuple(dict.fromkeys(of_vassals if vassals else files))
    if host.runs(UNIT) and (files := [*host.tree.matching(f"{_APPLICATIONS}/*.ini")]):
        yield UNIT, tuple(files)


def _read(tree: Tree, path: str) -> Config:
    return gather(tree, path, syntax.read, syntax.included)


def _words(tree: Tree, unit: str) -> list[str]:
    """Return the words of a unit's command. `--option=value` is split like `--option value`."""
    starting = unit_files.starting(tree, unit)
    words = (word.text.strip("\"'") for word in starting[1].arguments) if starting else ()
    return " ".join(words).replace("=", " ").split()


def _listens(config: Config) -> str:
    """Return a TCP port or socket path, by default Debian's socket."""
    name = basename(config.main).removesuffix(".ini")
    values = [placed.words[0] for placed in config.called("socket") if placed.words]
    return app_server.place_of((values or [f"/run/uwsgi/app/{name}/socket"])[0].replace("%n", name))


def _tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield each parameter at its last occurrence, or below the section header.

    The files override the environment, and the command may override the files.
    """
    tree, config = service.host.tree, service.config
    environment = unit_environment.read(tree, service.unit)
    by_command = {syntax.called(word.lstrip("-")): word for word in _words(tree, service.unit)
                  if word.startswith("-")}  # fmt: skip
    inherited = tree.content(INHERITED) if service.unit == UNIT else ""
    values = {line.name.text: line.arguments[0].text
              for line in syntax.read(inherited) if line.arguments}  # fmt: skip
    for parameter in PARAMETERS:
        name, option = parameter.name, parameter.name.replace("_", "-")
        value = values.get(option, environment.value(f"UWSGI_{name.upper()}"))
        default = int(value) if is_whole(value) else parameter.stock
        left = ""
        if option in by_command:
            left = app_server.said_by_command(by_command[option], config.main)
        elif any(placed.directive.within for placed in config.called(option)):
            left = app_server.conditional(config.main)
        absent = Absent(default, below(config, syntax.SECTION), f"\n{option} = ")
        yield Tunable(name, option, NUMBER, absent=absent, last=True, left=left)


UNDERSTOOD = Understood(
    syntax.read,
    frozenset(
        (*(parameter.name.replace("_", "-") for parameter in PARAMETERS), syntax.SECTION, "socket")
    ),
    reads=frozenset((syntax.SECTION, "socket")),
    writes=frozenset(("workers",)),
)

ADOPTION = app_server.adoption(
    Uwsgi, _candidates, tunables=_tunables, understood=UNDERSTOOD,
    paths=("etc/uwsgi", "etc/uwsgi.ini", "etc/uwsgi.d", INHERITED[1:],
           *(f"{place}/*.ini" for place in ("home/*", *unit_environment.PLACES))),
    version="command -v uwsgi >/dev/null && echo uWSGI $(uwsgi --version)",
)  # fmt: skip
