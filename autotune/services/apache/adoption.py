"""Map Apache's directives to parameters, with the settings that mpm_event requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotune.services.adoption import Adoption, RunningService
from autotune.services.apache_files import LAYOUTS, SERVERS, directives, find, mpm
from autotune.services.config_files import Config
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
from autotune.services.understood import Understood
from autotune.strict import is_whole

COMMON = ("MaxKeepAliveRequests", "MaxConnectionsPerChild", "StartServers")
EVENT = ("ThreadsPerChild", "AsyncRequestWorkerFactor", "MinSpareThreads", "MaxSpareThreads")
UNSAID = ("ServerLimit", "ThreadLimit", "ThreadsPerChild", "MaxRequestWorkers")


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Return every parameter of Apache with mpm_event in these files."""
    config = service.config
    adopted = map_directives(config, tunables(config, EVENT), accepts)
    return joined(adopted, _processes(config, adopted, accepts))


def tunables(config: Config, numbers: Iterable[str]) -> Iterator[Tunable]:
    """Yield the parameters common to all processing modules, and ``numbers`` of the active one."""
    for name, notation, default in (
        ("KeepAlive", CAPITAL_ON_OFF, True),
        ("KeepAliveTimeout", SECONDS, 5),
    ):
        absent = last_line(config, default, f"{name} ")
        yield Tunable(name, name, notation, last=True, absent=absent)
    absent = Absent(511, below(config, "Listen"), "\nListenBacklog ")
    yield Tunable("ListenBacklog", "ListenBacklog", NUMBER, last=True, absent=absent)
    yield from (Tunable(name, name, NUMBER, last=True) for name in (*COMMON, *numbers))


# Added if no file sets the number of workers, as in most distributions. Apache's defaults are the
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
    """Tune ServerLimit as MaxRequestWorkers / ThreadsPerChild. event runs only whole processes."""
    if not any(config.called(name) for name in UNSAID) and accepts("ServerLimit", 16):
        adopted.left.pop("ThreadsPerChild", None)
        end = len(config.texts[config.main])
        return new_file(config.main, _UNSAID, {"ServerLimit": 16, "ThreadsPerChild": 25}, end)
    workers = config.number("MaxRequestWorkers", 0)
    threads = adopted.values.get("ThreadsPerChild")
    if not workers or not isinstance(threads, int) or workers % threads:
        why = "MaxRequestWorkers is missing or not a multiple of ThreadsPerChild"
        return Adopted(left={"ServerLimit": why})
    processes = workers // threads
    if not accepts("ServerLimit", processes):
        return Adopted(
            left={"ServerLimit": f"{processes} processes are outside the catalogue's range"}
        )
    edit = Edit.exchange(config.called("MaxRequestWorkers")[-1], "{{ MaxRequestWorkers }}")
    sized = Adopted((edit,), {"ServerLimit": processes})
    return joined(
        sized,
        limit(config, "ServerLimit", "ServerLimit", sized),
        limit(config, "ThreadLimit", "ThreadsPerChild", adopted),
    )


def limit(config: Config, name: str, variable: str, adopted: Adopted) -> Adopted:
    """Raise a limit if a parameter exceeds it, and never lower it. If the current value already
    exceeds the limit, Apache truncates it. At that value the limit is not changed."""
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


PREFORK = ("MinSpareServers", "MaxSpareServers", "MaxRequestWorkers")
# Other sections, such as `<Perl>`, contain code.
_SECTIONS = """virtualhost directory directorymatch files filesmatch location locationmatch limit
limitexcept proxy proxymatch macro if elseif else ifmodule ifdefine ifversion iffile requireall
requireany requirenone authnprovideralias authzprovideralias"""
UNDERSTOOD = Understood(
    directives,
    frozenset(name.lower() for name in (
        *COMMON, *EVENT, *UNSAID, *PREFORK, "KeepAlive", "KeepAliveTimeout", "Listen", "ListenBacklog",
        "IfModule", "IfDefine", "IfVersion",
    )),
    blocks=frozenset(_SECTIONS.split()),
    any_case=True,
    reads=frozenset(("listen", "ifmodule", "ifdefine", "ifversion")),
    writes=frozenset(("<IfModule mpm_event_module>", "</IfModule>")),
)  # fmt: skip

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
    understood=UNDERSTOOD,
    tune=tune,
)
