"""Which directives of Apache are parameters, and what its files say of the stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from posixpath import join

from autotune.services.adoption import (
    Adoption,
    Layout,
    Layouts,
    RunningHost,
    RunningService,
    http_port,
    site_name,
)
from autotune.services.apache import syntax
from autotune.services.config_files import Config, Directive, PlacedDirective, Tree, gather
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
    at_end,
    joined,
    map_directives,
)

LAYOUTS = Layouts((
    Layout("Debian, Ubuntu", "apache2.service", "/etc/apache2/apache2.conf"),
    Layout("Fedora, RHEL", "httpd.service", "/etc/httpd/conf/httpd.conf"),
    Layout("SUSE", "apache2.service", "/etc/apache2/httpd.conf"),
))  # fmt: skip
COMMON = ("MaxKeepAliveRequests", "MaxConnectionsPerChild", "StartServers")
EVENT = ("ThreadsPerChild", "AsyncRequestWorkerFactor", "MinSpareThreads", "MaxSpareThreads")
# Workers of prefork are processes.
PREFORK = ("MinSpareServers", "MaxSpareServers", "MaxRequestWorkers")
_NAMES = {name.lower(): name for name in (
    *COMMON, *EVENT, *PREFORK, "KeepAlive", "KeepAliveTimeout", "ListenBacklog", "Listen",
    "ServerLimit", "ThreadLimit", "LoadModule", "ProxyPass", "BalancerMember", "ProxyPassMatch",
)}  # fmt: skip
_ROOT = re.compile(r"""(?mi)^[ \t]*ServerRoot[ \t]+["']?([^"'\s]+)""")
_MPM = re.compile(r"^(?:mpm_)?(event|worker|prefork)(?:_module|\.c)$")
_EXPORTED = re.compile(r"""(?m)^\s*export\s+(\w+)=["']?([^"'\s$]*)""")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SWITCHES = re.compile(r"-D\s*(\w+)")
CONDITIONS = ("ifmodule", "ifdefine", "ifversion", "iffile")
BUILT_IN = tuple(f"{name}_module" for name in ("core", "so", "http", "log_config", "logio", "unixd",
                                               "version", "watchdog"))  # fmt: skip
UNSAID = ("ServerLimit", "ThreadLimit", "ThreadsPerChild", "MaxRequestWorkers")
SERVERS = {"event": 16, "worker": 16, "prefork": 256}  # ServerLimit unless it is set


def read(tree: Tree, main: str = LAYOUTS[0].main) -> Config:
    match = _ROOT.search(tree.content(main))
    root = match[1] if match else ""
    environment = tree.content(f"{main.rpartition('/')[0]}/envvars")
    variables = dict(_EXPORTED.findall(environment))
    config = gather(tree, main, _read, lambda directive: _included(directive, root, variables))
    return replace(config, directives=tuple(
        placed for placed in config.directives
        if all(_holds(block, config, variables) for block in placed.directive.within)))  # fmt: skip


def _read(text: str) -> tuple[Directive, ...]:
    """Directives by the names that the documentation has: Apache takes them in any case."""
    return tuple(
        replace(directive, name=replace(name, text=_NAMES.get(name.text.lower(), name.text)))
        for directive in syntax.read(text)
        for name in [directive.name]
    )


def _holds(block: tuple[str, ...], config: Config, variables: Mapping[str, str]) -> bool:
    """Whether a section counts: not for a module that is not loaded, or a variable that is not there."""
    kind, name = block[0].lower(), block[1] if block[1:] else ""
    bare = name.removeprefix("!")
    if kind == "ifdefine":
        there = bare in variables or bare in _SWITCHES.findall(
            variables.get("APACHE_ARGUMENTS", "")
        )
    elif kind == "ifmodule" and config.called("LoadModule"):
        module = re.sub(r"^(?:mod_)?(\w+)\.c$", r"\1_module", _MPM.sub(r"mpm_\1_module", bare))
        there = module in BUILT_IN or loads(config, module)
    else:
        return True
    return there != name.startswith("!")


def _bare(config: Config) -> Config:
    """With what is in sections that hold as if it were outside: there, too, the last counts."""

    def outside(placed: PlacedDirective) -> PlacedDirective:
        blocks = placed.directive.within
        within = tuple(block for block in blocks if block[0].lower() not in CONDITIONS)
        return replace(placed, directive=replace(placed.directive, within=within))

    return replace(config, directives=tuple(map(outside, config.directives)))


def _included(directive: Directive, root: str, variables: dict[str, str]) -> str | None:
    """Keeps in ``variables`` what files define on the way."""
    words = [word.text.strip("\"'") for word in directive.arguments]
    if directive.name.text.lower() == "define" and words:
        variables[words[0]] = " ".join(words[1:])
    named = directive.name.text.lower() in ("include", "includeoptional") and len(words) == 1
    return (
        join(root, _VARIABLE.sub(lambda it: variables.get(it[1], it[0]), words[0]))
        if named
        else None
    )


def mpm(config: Config) -> str:
    """`event`, `worker` or `prefork`, by the module that is loaded."""
    return next((name for name in SERVERS if loads(config, f"mpm_{name}_module")), "")


def loads(config: Config, module: str) -> bool:
    return any(placed.words[:1] == (module,) for placed in config.called("LoadModule"))


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not (layout := LAYOUTS.of(host)):
        return
    config = read(host.tree, layout.main)
    place, module, to_proxy = http_port(_listens(config)), mpm(config), passes(config)
    runs_php = module == "prefork" and loads(config, "php_module")
    if place is None:
        yield "Apache listens at no TCP port: not adopted, `load: {url: …}` by hand"
    elif runs_php or module == "event":
        names = (word.partition(":")[0] for p in config.called("ServerName") for word in p.words)
        yield RunningService(
            host=host,
            key="apache-mod-php" if runs_php else "apache",
            config=_bare(config),
            kind="lb" if to_proxy and not runs_php else "web",
            port=place[0],
            behind=to_proxy,
            tls=place[1],
            unit=layout.own_unit,
            site=site_name(names),
        )
    else:
        yield f"Apache with mpm_{module or 'unknown'} as it is used here is not tuned"


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter of Apache in these files, of the multi-processing module that is in use."""
    config = service.config
    prefork = mpm(config) == "prefork"
    tunables = _tunables((*COMMON, *(PREFORK if prefork else EVENT)))
    adopted = map_directives(config, tunables, accepts)
    if prefork:
        return joined(adopted, _limit(config, "ServerLimit", "MaxRequestWorkers", adopted))
    return joined(adopted, _threads(config, adopted, accepts))


def _tunables(numbers: Iterable[str]) -> Iterator[Tunable]:
    for name, notation, default in (
        ("KeepAlive", CAPITAL_ON_OFF, True),
        ("KeepAliveTimeout", SECONDS, 5),
    ):
        absent = Absent(default, at_end, rf'"{name} " ~ {notation.write(name)} ~ "\n"')
        yield Tunable(name, name, notation, last=True, absent=absent)
    yield from (Tunable(name, name, NUMBER, last=True) for name in numbers)
    absent = Absent(511, _first_listen, r'"\nListenBacklog " ~ ListenBacklog')
    yield Tunable("ListenBacklog", "ListenBacklog", NUMBER, last=True, absent=absent)


def _first_listen(config: Config) -> Position | None:
    """Behind the first `Listen` that is outside of any section."""
    listens = (p for p in config.called("Listen") if not p.block and p.words)
    return next((placed.end for placed in listens), None)


def _threads(config: Config, adopted: Adopted, accepts: Accepts) -> Adopted:
    """event: workers are whole processes of threads, so that their number says how many."""
    if not any(config.called(name) for name in UNSAID) and accepts("ServerLimit", 16):
        adopted.left.pop("ThreadsPerChild", None)
        return _unsaid(config)
    workers = config.number("MaxRequestWorkers", 0)
    threads = adopted.values.get("ThreadsPerChild")
    if not workers or not isinstance(threads, int) or workers % threads:
        why = "MaxRequestWorkers is no multiple of ThreadsPerChild, or is not there"
        return Adopted(left={"ServerLimit": why})
    processes = workers // threads
    if not accepts("ServerLimit", processes):
        return Adopted(left={"ServerLimit": f"{processes} processes are out of the catalogue"})
    edit = Edit.exchange(config.called("MaxRequestWorkers")[-1], "{{ MaxRequestWorkers }}")
    sized = Adopted((edit,), {"ServerLimit": processes})
    return joined(
        sized,
        _limit(config, "ServerLimit", "ServerLimit", sized),
        _limit(config, "ThreadLimit", "ThreadsPerChild", adopted),
    )


def _unsaid(config: Config) -> Adopted:
    """Where no file says anything of their number, as most distributions have it: Apache's own."""
    text = (
        "{% if ServerLimit != 16 or ThreadsPerChild != 25 %}<IfModule mpm_event_module>\n"
        "ServerLimit {{ [16, ServerLimit] | max }}\nThreadLimit {{ [64, ThreadsPerChild] | max }}\n"
        "ThreadsPerChild {{ ThreadsPerChild }}\nMaxRequestWorkers {{ MaxRequestWorkers }}\n"
        "</IfModule>\n{% endif %}"
    )
    edits = (Edit.insertion(position, text),) if (position := at_end(config)) else ()
    return Adopted(edits, {"ServerLimit": 16, "ThreadsPerChild": 25} if edits else {})


def _limit(config: Config, name: str, variable: str, adopted: Adopted) -> Adopted:
    """A limit that goes up, where it has to, and never down."""
    if variable not in adopted.values:
        return Adopted()
    if now := config.number(name, 0):
        text = f"{{{{ [{now}, {variable}] | max }}}}"
        return Adopted((Edit.exchange(config.called(name)[-1], text),))
    position = next((p.end for p in reversed(config.called("MaxRequestWorkers")) if p.words), None)
    default = 64 if name == "ThreadLimit" else SERVERS.get(mpm(config), 16)
    if position is None or config.called(name):
        return Adopted()
    # What was more than the default today is cut by it: as it is, it stays.
    text = (
        f'{{{{ "\\n{name} " ~ {variable} '
        f'if {variable} > {default} and {variable} != {adopted.values[variable]} else "" }}}}'
    )
    return Adopted((Edit.insertion(position, text),))


# -- the stack around it --------------------------------------------------------------------------


def _listens(config: Config) -> Iterator[tuple[str, bool]]:
    """Where HTTP is spoken, and whether over TLS."""
    for placed in config.called("Listen"):
        sections = (" ".join(block).lower() for block in placed.directive.within if block[1:])
        encrypted = "https" in placed.words or any("ssl" in section for section in sections)
        yield (placed.words or ("",))[0], encrypted


def passes(config: Config) -> tuple[str, ...]:
    """``host:port`` of every web server behind."""
    directives = ("ProxyPass", "BalancerMember", "ProxyPassMatch")
    words = (word for name in directives for placed in config.called(name) for word in placed.words)
    urls = (word.strip("\"'").partition("://") for word in words)
    schemes = ("http", "https")
    return tuple(dict.fromkeys(p.partition("/")[0] for s, mark, p in urls if mark and s in schemes))


ADOPTION = Adoption(
    known_as="Apache (mpm_event, or mpm_prefork with mod_php)",
    units=("apache2.service",),
    elsewhere=LAYOUTS.elsewhere,
    paths=(
        "etc/apache2",
        "etc/httpd/conf",
        "etc/httpd/conf.d",
        "etc/httpd/conf.modules.d",
        "etc/sysconfig/apache2",
    ),
    version=f"{LAYOUTS.running} &&"
    " { apache2 -v || httpd -v; } 2>/dev/null | sed -n 's,^Server version: Apache/,Apache ,p'",
    find=find,
    tune=tune,
)
