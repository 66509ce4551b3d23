"""Which directives of Apache are parameters, and what its files say of the stack."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from posixpath import dirname, join

from autotune.services.adoption import (
    Adoption,
    Layout,
    Layouts,
    RunningHost,
    RunningService,
    at_http_port,
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
    Tunable,
    below,
    joined,
    last_line,
    map_directives,
    new_file,
)
from autotune.strict import is_whole

LAYOUTS = Layouts((
    Layout("Debian, Ubuntu", "apache2.service", "/etc/apache2/apache2.conf"),
    Layout("Fedora, RHEL", "httpd.service", "/etc/httpd/conf/httpd.conf"),
    Layout("SUSE", "apache2.service", "/etc/apache2/httpd.conf"),
))  # fmt: skip
COMMON = ("MaxKeepAliveRequests", "MaxConnectionsPerChild", "StartServers")
EVENT = ("ThreadsPerChild", "AsyncRequestWorkerFactor", "MinSpareThreads", "MaxSpareThreads")
# Workers of prefork are processes.
PREFORK = ("MinSpareServers", "MaxSpareServers", "MaxRequestWorkers")
_ROOT = re.compile(r"""(?mi)^[ \t]*ServerRoot[ \t]+["']?([^"'\s]+)""")
_MODULE = re.compile(r"(?:mod_)?(?:mpm_)?(\w+?)(?:_module|\.c)?")
_EXPORTED = re.compile(r"""(?m)^\s*export\s+(\w+)=["']?([^"'\s$]*)""")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SWITCHES = re.compile(r"-D\s*(\w+)")
CONDITIONS = ("ifmodule", "ifdefine", "ifversion", "iffile")
BUILT_IN = ("core", "so", "http", "log_config", "logio", "unixd", "version", "watchdog")
PASSING = ("ProxyPass", "BalancerMember", "ProxyPassMatch")
UNSAID = ("ServerLimit", "ThreadLimit", "ThreadsPerChild", "MaxRequestWorkers")
SERVERS = {"event": 16, "worker": 16, "prefork": 256}  # ServerLimit unless it is set


def read(tree: Tree, main: str = LAYOUTS[0].main) -> Config:
    """The directives that take effect with the modules that are loaded and the variables defined."""
    match = _ROOT.search(tree.content(main))
    root = match[1] if match else ""
    variables = dict(_EXPORTED.findall(tree.content(f"{dirname(main)}/envvars")))
    config = gather(
        tree, main, syntax.read, lambda directive: _included(directive, root, variables)
    )
    config = replace(config, any_case=True)
    defined = {*variables, *_SWITCHES.findall(variables.get("APACHE_ARGUMENTS", ""))}
    modules = loaded(config)
    return replace(config, directives=tuple(
        placed for placed in config.directives
        if all(_holds(section, defined, modules) for section in placed.directive.within)))  # fmt: skip


def _holds(section: tuple[str, ...], defined: Collection[str], modules: Collection[str]) -> bool:
    """Whether a section takes effect: not if its module is not loaded or its variable not defined."""
    kind, name = section[0].lower(), "".join(section[1:2])
    bare = name.removeprefix("!")
    if kind == "ifdefine":
        return (bare in defined) != name.startswith("!")
    if kind == "ifmodule" and modules:
        return (_module(bare) in {*modules, *BUILT_IN}) != name.startswith("!")
    return True


def _bare(config: Config) -> Config:
    """The configuration with directives of conditional sections moved outside: there, too, the last
    one counts."""

    def outside(placed: PlacedDirective) -> PlacedDirective:
        blocks = placed.directive.within
        within = tuple(block for block in blocks if block[0].lower() not in CONDITIONS)
        return replace(placed, directive=replace(placed.directive, within=within))

    return replace(config, directives=tuple(map(outside, config.directives)))


def _included(directive: Directive, root: str, variables: dict[str, str]) -> str | None:
    """What a directive includes. Adds to ``variables`` what files define on the way."""
    name = directive.name.text.lower()
    words = [word.text.strip("\"'") for word in directive.arguments]
    if name == "define" and words:
        variables[words[0]] = " ".join(words[1:])
    if name not in ("include", "includeoptional") or len(words) != 1:
        return None
    return join(root, _VARIABLE.sub(lambda it: variables.get(it[1], it[0]), words[0]))


def loaded(config: Config) -> set[str]:
    """The loaded modules, by the part that all their names share."""
    return {_module(placed.words[0]) for placed in config.called("LoadModule") if placed.words}


def _module(name: str) -> str:
    """`event` for `mpm_event_module` and `event.c`, `proxy` for `proxy_module` and `mod_proxy.c`."""
    match = _MODULE.fullmatch(name)
    return match[1] if match else name


def mpm(config: Config) -> str:
    """`event`, `worker` or `prefork`, by the module that is loaded."""
    return next((name for name in SERVERS if name in loaded(config)), "")


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not (layout := LAYOUTS.of(host)):
        return
    config = read(host.tree, layout.main)
    module, to_proxy = mpm(config), passes(config)
    runs_php = module == "prefork" and "php" in loaded(config)
    if not runs_php and module != "event":
        yield f"Apache with mpm_{module or 'unknown'} as it is used here is not tuned"
        return
    names = (word.partition(":")[0] for p in config.called("ServerName") for word in p.words)
    running = RunningService(
        host=host,
        key="apache-mod-php" if runs_php else "apache",
        config=_bare(config),
        kind="lb" if to_proxy and not runs_php else "web",
        behind=to_proxy,
        gateway="fastcgi" if not runs_php and _asks_fastcgi(config) else "",
        unit=layout.own_unit,
        site=site_name(names),
    )
    yield at_http_port(running, "Apache", _listens(config))


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter of Apache in these files, of the multi-processing module that is in use."""
    config = service.config
    prefork = mpm(config) == "prefork"
    numbers = (*COMMON, *(PREFORK if prefork else EVENT))
    adopted = map_directives(config, _tunables(config, numbers), accepts)
    if prefork:
        return joined(adopted, _limit(config, "ServerLimit", "MaxRequestWorkers", adopted))
    return joined(adopted, _processes(config, adopted, accepts))


def _tunables(config: Config, numbers: tuple[str, ...]) -> Iterator[Tunable]:
    for name, notation, default in (
        ("KeepAlive", CAPITAL_ON_OFF, True),
        ("KeepAliveTimeout", SECONDS, 5),
    ):
        absent = last_line(config, default, f"{name} ")
        yield Tunable(name, name, notation, last=True, absent=absent)
    absent = Absent(511, below(config, "Listen"), "\nListenBacklog ")
    yield Tunable("ListenBacklog", "ListenBacklog", NUMBER, last=True, absent=absent)
    yield from (Tunable(name, name, NUMBER, last=True) for name in numbers)


# Added where no file sets the number of workers, as in most distributions; Apache's own values are the
# baseline.
_UNSAID = """
<IfModule mpm_event_module>
ServerLimit {{ [16, ServerLimit] | max }}
ThreadLimit {{ [64, ThreadsPerChild] | max }}
ThreadsPerChild {{ ThreadsPerChild }}
MaxRequestWorkers {{ MaxRequestWorkers }}
</IfModule>
"""


def _processes(config: Config, adopted: Adopted, accepts: Accepts) -> Adopted:
    """event: workers come in whole processes, so MaxRequestWorkers / ThreadsPerChild is ServerLimit."""
    if not any(config.called(name) for name in UNSAID) and accepts("ServerLimit", 16):
        adopted.left.pop("ThreadsPerChild", None)
        end = len(config.texts[config.main])
        return new_file(config.main, _UNSAID, {"ServerLimit": 16, "ThreadsPerChild": 25}, end)
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


def _limit(config: Config, name: str, variable: str, adopted: Adopted) -> Adopted:
    """Raise a limit where a parameter exceeds it, and never lower it. A value that exceeds the limit
    already today is cut by it: at that value the limit stays as it is."""
    limits, workers = ([placed for placed in config.called(it) if placed.words]
                     for it in (name, "MaxRequestWorkers"))  # fmt: skip
    default = 64 if name == "ThreadLimit" else SERVERS[mpm(config)]
    now, today = config.last(name, str(default)), adopted.values.get(variable)
    if today is None or not is_whole(now):
        return Adopted()
    more = f"{variable} > {int(now)} and {variable} != {today}"
    if limits:
        return Adopted((Edit.exchange(limits[-1], f'{{{{ {variable} if {more} else "{now}" }}}}'),))
    text = rf'{{{{ "\n{name} " ~ {variable} if {more} else "" }}}}'
    return Adopted((Edit.insertion(workers[-1].end, text),))


# -- the stack around it --------------------------------------------------------------------------


def _listens(config: Config) -> Iterator[tuple[str, bool]]:
    """Where HTTP is spoken, and whether over TLS."""
    for placed in config.called("Listen"):
        sections = (" ".join(block).lower() for block in placed.directive.within if block[1:])
        encrypted = "https" in placed.words or any("ssl" in section for section in sections)
        yield (placed.words or ("",))[0], encrypted


def passes(config: Config) -> tuple[str, ...]:
    """``host:port`` of every web server behind."""
    words = _words(config, *PASSING)
    urls = (word.strip("\"'").partition("://") for word in words)
    schemes = ("http", "https")
    return tuple(dict.fromkeys(p.partition("/")[0] for s, mark, p in urls if mark and s in schemes))


def _asks_fastcgi(config: Config) -> bool:
    """Whether some requests go to an application server: by a handler, as distributions have it for
    PHP-FPM, or by what passes them on (mod_proxy_fcgi)."""
    return any("fcgi://" in word for word in _words(config, "SetHandler", *PASSING))


def _words(config: Config, *directives: str) -> Iterator[str]:
    return (word for name in directives for placed in config.called(name) for word in placed.words)


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
