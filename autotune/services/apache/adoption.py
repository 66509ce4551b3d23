"""Which directives of Apache are parameters, and what its files say of the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.apache import syntax
from autotune.services.config_files import Config, Directive, PlacedDirective, Tree, Word, gather
from autotune.services.directives import (
    CAPITAL_ON_OFF,
    NUMBER,
    SECONDS,
    Absent,
    Accepts,
    Adopted,
    Edit,
    Position,
    Tunable,
    behind,
    joined,
    map_directives,
)

MAIN = "/etc/apache2/apache2.conf"
COMMON = ("MaxKeepAliveRequests", "MaxConnectionsPerChild", "StartServers")
EVENT = ("ThreadsPerChild", "AsyncRequestWorkerFactor", "MinSpareThreads", "MaxSpareThreads")
PREFORK = ("MinSpareServers", "MaxSpareServers")
_NAMES = {name.lower(): name for name in (
    *COMMON, *EVENT, *PREFORK, "KeepAlive", "KeepAliveTimeout", "ListenBacklog", "Listen",
    "ServerLimit", "ThreadLimit", "MaxRequestWorkers", "LoadModule", "ProxyPass", "BalancerMember",
    "ProxyPassMatch",
)}  # fmt: skip
_MPM = re.compile(r"(?P<no>!?)(?:mpm_)?(?P<way>event|worker|prefork)(?:_module|\.c)")
SERVERS = {"event": 16, "worker": 16, "prefork": 256}  # ServerLimit where nothing is said of it


def read(tree: Tree) -> Config:
    config = gather(tree, MAIN, _read, _included)
    way = mpm(config)
    return replace(config, seen=tuple(seen for seen in config.seen if _applies(seen, way)))


def _read(text: str) -> tuple[Directive, ...]:
    """Directives by the names that the documentation has: Apache takes them in any case."""
    return tuple(
        replace(directive, name=_canonical(directive.name)) for directive in syntax.read(text)
    )


def _canonical(name: Word) -> Word:
    return replace(name, text=_NAMES.get(name.text.lower(), name.text))


def _applies(seen: PlacedDirective, way: str) -> bool:
    """Not for another way of working than the one that is loaded."""
    for block in seen.directive.within:
        if block[0].lower() == "ifmodule" and len(block) > 1:
            other = _MPM.fullmatch(block[1])
            if other and (other["way"] == way) == bool(other["no"]):
                return False
    return True


def _included(directive: Directive) -> str | None:
    named = directive.name.text.lower() in ("include", "includeoptional")
    if not named or len(directive.arguments) != 1:
        return None
    return directive.arguments[0].text.strip("\"'")


def mpm(config: Config) -> str:
    """`event`, `worker` or `prefork`, by the module that is loaded."""
    for name in SERVERS:
        if loads(config, f"mpm_{name}_module"):
            return name
    return ""


def loads(config: Config, module: str) -> bool:
    return any(seen.words and seen.words[0] == module for seen in config.called("LoadModule"))


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.runs("apache2.service"):
        return
    config = read(host.tree)
    listening, way, to_proxy = ports(config), mpm(config), passes(config)
    runs_php = way == "prefork" and loads(config, "php_module")
    if not listening:
        yield "Apache listens nowhere without TLS, which autotune's load does not speak"
    elif runs_php or way == "event":
        yield RunningService(
            host=host,
            key="apache-mod-php" if runs_php else "apache",
            config=config,
            kind="lb" if to_proxy and not runs_php else "web",
            port=listening[0],
            behind=to_proxy,
        )
    else:
        yield f"Apache with mpm_{way or 'unknown'} as it is used here is not tuned"


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter of Apache in these files, of the way of working that is in use."""
    config = service.config
    tunables = [
        Tunable("KeepAlive", "KeepAlive", CAPITAL_ON_OFF),
        Tunable("KeepAliveTimeout", "KeepAliveTimeout", SECONDS),
        *(Tunable(name, name, NUMBER) for name in COMMON),
        *(Tunable(name, name, NUMBER) for name in (PREFORK if mpm(config) == "prefork" else EVENT)),
        Tunable("ListenBacklog", "ListenBacklog", NUMBER, absent=Absent(
            511, _first_listen, r'"\nListenBacklog " ~ ListenBacklog')),
    ]  # fmt: skip
    adopted = map_directives(config, tunables, accepts)
    sized = _processes if mpm(config) == "prefork" else _threads
    return joined(adopted, sized(config, adopted, accepts))


def _first_listen(config: Config) -> Position | None:
    """Behind the first `Listen` that is outside of any section."""
    for seen in config.called("Listen"):
        if not seen.block and seen.words:
            return seen.path, seen.directive.arguments[-1].end
    return None


def _processes(config: Config, _: Adopted, accepts: Accepts) -> Adopted:
    """prefork: workers are processes; the limit goes up with them."""
    adopted = map_directives(
        config, [Tunable("MaxRequestWorkers", "MaxRequestWorkers", NUMBER)], accepts
    )
    return joined(adopted, _limit(config, "ServerLimit", "MaxRequestWorkers", adopted))


def _threads(config: Config, adopted: Adopted, accepts: Accepts) -> Adopted:
    """event: workers are whole processes of threads, so that their number says how many."""
    workers = _one_number(config, "MaxRequestWorkers")
    threads = adopted.values.get("ThreadsPerChild")
    if not workers or not isinstance(threads, int) or workers % threads:
        why = "MaxRequestWorkers is no multiple of ThreadsPerChild, or is not there"
        return Adopted(left={"ServerLimit": why})
    processes = workers // threads
    if not accepts("ServerLimit", processes):
        return Adopted(left={"ServerLimit": f"{processes} processes are out of the catalogue"})
    workers_directive = config.called("MaxRequestWorkers")[0]
    word = workers_directive.directive.arguments[0]
    written = Edit(workers_directive.path, word.start, word.end, "{{ MaxRequestWorkers }}")
    sized = Adopted((written,), {"ServerLimit": processes})
    sized = joined(sized, _limit(config, "ServerLimit", "ServerLimit", sized))
    return joined(sized, _limit(config, "ThreadLimit", "ThreadsPerChild", adopted))


def _limit(config: Config, name: str, variable: str, adopted: Adopted) -> Adopted:
    """A limit that goes up, where it has to, and never down."""
    if variable not in adopted.values:
        return Adopted()
    now = _one_number(config, name)
    if now:
        word = config.called(name)[0].directive.arguments[0]
        text = f"{{{{ [{now}, {variable}] | max }}}}"
        return Adopted((Edit(config.called(name)[0].path, word.start, word.end, text),))
    position = behind("MaxRequestWorkers")(config)
    default = 64 if name == "ThreadLimit" else SERVERS.get(mpm(config), 16)
    if position is None or config.called(name):
        return Adopted()
    # What was more than the default today is cut by it: as it is, it stays.
    text = (
        f'{{{{ "\\n{name} " ~ {variable} '
        f'if {variable} > {default} and {variable} != {adopted.values[variable]} else "" }}}}'
    )
    return Adopted((Edit(*position, position[1], text),))


def _one_number(config: Config, name: str) -> int:
    """The value of a directive that is there once; 0 without."""
    directives = config.called(name)
    words = directives[0].words if len(directives) == 1 else ()
    return int(words[0]) if len(words) == 1 and words[0].isdigit() else 0


# -- what is said of the stack --------------------------------------------------------------------


def ports(config: Config) -> tuple[int, ...]:
    numbers = (seen.words[0].rpartition(":")[2] for seen in config.called("Listen")
             if seen.words and "https" not in seen.words
             and not any(block[-1:] and "ssl" in " ".join(block).lower()
                         for block in seen.directive.within))  # fmt: skip
    return tuple(dict.fromkeys(int(port) for port in numbers if port.isdigit()))


def passes(config: Config) -> tuple[str, ...]:
    """``host:port`` of every web server behind."""
    return tuple(dict.fromkeys(_behind(config)))


def _behind(config: Config) -> Iterator[str]:
    for name in ("ProxyPass", "BalancerMember", "ProxyPassMatch"):
        for seen in config.called(name):
            for word in seen.words:
                scheme, mark, place = word.strip("\"'").partition("://")
                if mark and scheme in ("http", "https"):
                    yield place.partition("/")[0]


ADOPTION = Adoption(
    known_as="Apache (mpm_event, or mpm_prefork with mod_php)",
    units=("apache2.service",),
    paths=("etc/apache2",),
    version="runs apache2.service &&"
    " apache2 -v 2>/dev/null | sed -n 's,^Server version: Apache/,Apache ,p'",
    find=find,
    tune=tune,
)
