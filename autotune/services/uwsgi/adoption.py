"""Which uWSGIs run on a host, and what their .ini files say of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from posixpath import basename, join

from autotune.services import app_server, unit_files
from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.app_server import Candidate
from autotune.services.config_files import Config, gather
from autotune.services.directives import (
    NUMBER,
    Absent,
    Accepts,
    Adopted,
    Position,
    Tunable,
    line_end,
    map_directives,
)
from autotune.services.uwsgi import syntax
from autotune.services.uwsgi.service import INHERITED, PARAMETERS, UNIT, Uwsgi
from autotune.strict import is_whole

_PLACES = ("srv/*", "srv/*/*", "opt/*", "opt/*/*", "var/www/*", "var/www/*/*", "home/*", "home/*/*")
_APPLICATIONS = "/etc/uwsgi/apps-enabled"


def find(host: RunningHost) -> Iterator[RunningService | str]:
    return app_server.running(host, Uwsgi, _candidates(host))


def _candidates(host: RunningHost) -> Iterator[Candidate | str]:
    """Of each unit its application, if it has one."""
    for unit, files in dict(_units(host)).items():
        if len(files) > 1:
            yield f"{unit}: {len(files)} applications of uWSGI share it: one that has a unit is tuned"
        for path in files if len(files) == 1 else ():
            config = gather(host.tree, path, syntax.read, syntax.included)
            yield unit, config, _listens(config)


def _units(host: RunningHost) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Units with the files of their applications: named in the command, an emperor's, or Debian's."""
    for unit in unit_files.naming(host.tree, "uwsgi"):
        starting = unit_files.starting(host.tree, unit)
        words = [word.text.strip("\"'") for word in starting[1].arguments] if starting else []
        if any(basename(word.lstrip("-@:+!")).startswith("uwsgi") for word in words):
            named = " ".join(words).replace("=", " ").split()
            emperor = [join(after, "*.ini") for before, after in pairwise(named)
                       if before == "--emperor"]  # fmt: skip
            paths = [path for word in (*named, *emperor) if word.endswith(".ini")
                     for path in host.tree.matching(word)]  # fmt: skip
            yield unit, tuple(dict.fromkeys(paths))
    if host.runs(UNIT):
        yield UNIT, host.tree.matching(f"{_APPLICATIONS}/*.ini")


def _listens(config: Config) -> str:
    """A TCP port, or the path of a unix socket; where Debian puts it if the file does not say."""
    name = basename(config.main).removesuffix(".ini")
    values = [placed.words[0] for placed in config.called("socket") if placed.words]
    place = (values or [f"/run/uwsgi/app/{name}/socket"])[0].replace("%n", name)
    return place if "/" in place else place.rpartition(":")[2]


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Where a file says it, or below the head of the section."""
    tree, config = service.host.tree, service.config
    inherited = (
        tree.files.get(INHERITED, b"").decode(errors="replace") if service.unit == UNIT else ""
    )
    values = {line.name.text: line.arguments[0].text
              for line in syntax.read(inherited) if line.arguments}  # fmt: skip
    tunables = []
    for parameter in PARAMETERS:
        option = parameter.name.replace("_", "-")
        value = values.get(option, "")
        default = int(value) if is_whole(value) else parameter.stock
        line = rf'"\n{option} = " ~ {parameter.name}'
        tunables.append(
            Tunable(parameter.name, option, NUMBER, absent=Absent(default, _head, line))
        )
    return map_directives(config, tunables, accepts)


def _head(config: Config) -> Position | None:
    """The end of the line with the name of the section."""
    heads = config.called(syntax.SECTION)
    return line_end(config, heads[0].path, heads[0].end[1]) if heads else None


ADOPTION = Adoption(
    known_as="uWSGI",
    units=(UNIT,),
    paths=(*unit_files.ANY, "etc/uwsgi", INHERITED[1:], *(f"{place}/*.ini" for place in _PLACES)),
    version="command -v uwsgi >/dev/null && echo uWSGI $(uwsgi --version)",
    find=find,
    tune=tune,
)
