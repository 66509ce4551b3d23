"""Map Apache's directives to parameters, with the settings that mpm_event requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotune.services import unit_files
from autotune.services.adoption import Adoption, RunningService
from autotune.services.apache_config import (
    DEFAULT_SERVER_LIMITS,
    LAYOUTS,
    find_mpm,
    find_services,
    parse_directives,
)
from autotune.services.base import Value
from autotune.services.config_files import Config
from autotune.services.directives import (
    CAPITAL_ON_OFF,
    NUMBER,
    SECONDS,
    AdoptionResult,
    DirectiveInsertion,
    Edit,
    Tunable,
    ValueCheck,
    add_new_file,
    append_line,
    find_line_end,
    map_directives,
    merge_results,
)
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

COMMON_DIRECTIVES = ("MaxKeepAliveRequests", "MaxConnectionsPerChild", "StartServers")
EVENT_DIRECTIVES = (
    "ThreadsPerChild",
    "AsyncRequestWorkerFactor",
    "MinSpareThreads",
    "MaxSpareThreads",
)
DEFAULT_THREAD_LIMIT = 64
WORKER_LIMIT_DIRECTIVES = ("ServerLimit", "ThreadLimit", "ThreadsPerChild", "MaxRequestWorkers")


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    """Return every parameter of Apache with mpm_event, tuned in the service's files or skipped with
    a reason.
    """
    config = service.config
    adoption_result = map_directives(config, list_tunables(config, EVENT_DIRECTIVES), accepts_value)
    return merge_results(adoption_result, _tune_processes(config, adoption_result, accepts_value))


def list_tunables(config: Config, numeric_directives: Iterable[str]) -> Iterator[Tunable]:
    """Yield tunables for the parameters that all multi-processing modules share, and for the active
    module's ``numeric_directives``.
    """
    for name, notation, default_value in (
        ("KeepAlive", CAPITAL_ON_OFF, True),
        ("KeepAliveTimeout", SECONDS, 5),
    ):
        insertion = append_line(config, default_value, f"{name} ")
        yield Tunable(
            name,
            name,
            notation,
            last_wins=True,
            insertion=insertion,
            skip_reason=_explain_override(config, name),
        )
    insertion = DirectiveInsertion(511, find_line_end(config, "Listen"), "\nListenBacklog ")
    yield Tunable("ListenBacklog", "ListenBacklog", NUMBER, last_wins=True, insertion=insertion)
    yield from (
        Tunable(name, name, NUMBER, last_wins=True, skip_reason=_explain_override(config, name))
        for name in (*COMMON_DIRECTIVES, *numeric_directives)
    )


def _explain_override(config: Config, name: str) -> str:
    """Return a reason if a virtual host overrides a directive's server-wide value, or if a limit lowers
    the value. The result is empty otherwise.
    """
    is_nested = any(placed.block.lower() == "virtualhost" for placed in config.find_all(name))
    if is_nested:
        return f"a <VirtualHost> overrides `{name}`"
    if name == "MaxRequestWorkers":
        return _explain_server_limit(config)
    return _explain_threads(config) if name == "ThreadsPerChild" else ""


def _explain_server_limit(config: Config) -> str:
    """Return a reason if mpm_prefork lowers the number of processes to ServerLimit, or else an empty
    string.
    """
    server_limit = config.find_last_number("ServerLimit", DEFAULT_SERVER_LIMITS["prefork"])
    worker_count = config.find_last_number("MaxRequestWorkers", 0)
    is_lowered = worker_count > server_limit
    return (
        f"Apache lowers `MaxRequestWorkers {worker_count}` to ServerLimit {server_limit}"
        if is_lowered
        else ""
    )


def _explain_threads(config: Config) -> str:
    """Return a reason if ThreadLimit restricts the number of threads, or else an empty string."""
    thread_limit = config.find_last_number("ThreadLimit", DEFAULT_THREAD_LIMIT)
    thread_count = config.find_last_number("ThreadsPerChild", 0)
    if thread_count > thread_limit:
        return f"Apache lowers `ThreadsPerChild {thread_count}` to ThreadLimit {thread_limit}"
    # A higher ThreadLimit takes effect at a restart, but ThreadsPerChild changes by reloads.
    is_low = thread_limit < DEFAULT_THREAD_LIMIT
    return f"`ThreadLimit {thread_limit}` limits it: remove that line to tune it" if is_low else ""


# This template is added if no file sets the number of workers, as in most distributions. Apache's
# defaults are then the baseline.
_WORKER_LIMITS_TEMPLATE = """
<IfModule mpm_event_module>
ServerLimit {{ [16, ServerLimit] | max }}
ThreadLimit {{ [64, ThreadsPerChild] | max }}
ThreadsPerChild {{ ThreadsPerChild }}
MaxRequestWorkers {{ MaxRequestWorkers }}
</IfModule>
"""
_DEFAULT_WORKER_LIMITS = {"ServerLimit": 16, "ThreadsPerChild": 25}


def _tune_processes(
    config: Config, directive_result: AdoptionResult, accepts_value: ValueCheck
) -> AdoptionResult:
    """Tune ServerLimit, whose baseline is the number of processes that Apache may run
    (MaxRequestWorkers / ThreadsPerChild).
    """
    if reason := next(filter(None, map(config.explain_uncertain, WORKER_LIMIT_DIRECTIVES)), ""):
        return AdoptionResult(skipped={"ServerLimit": reason})
    if not any(config.find_all(name) for name in WORKER_LIMIT_DIRECTIVES) and all(
        accepts_value(name, value) for name, value in _DEFAULT_WORKER_LIMITS.items()
    ):
        directive_result.skipped.pop("ThreadsPerChild", None)
        file_end = len(config.texts[config.main_file])
        return add_new_file(
            config.main_file, _WORKER_LIMITS_TEMPLATE, _DEFAULT_WORKER_LIMITS, file_end
        )
    worker_count = config.find_last_number("MaxRequestWorkers", 0)
    thread_count = directive_result.values.get("ThreadsPerChild")
    if reason := _explain_workers(config, worker_count, thread_count):
        return AdoptionResult(skipped={"ServerLimit": reason})
    assert isinstance(thread_count, int)
    process_count = worker_count // thread_count
    if not accepts_value("ServerLimit", process_count):
        return AdoptionResult(
            skipped={"ServerLimit": f"{process_count} processes are outside the catalogue's range"}
        )
    edit = Edit.replace_value(config.find_all("MaxRequestWorkers")[-1], "{{ MaxRequestWorkers }}")
    sized_result = AdoptionResult((edit,), {"ServerLimit": process_count})
    return merge_results(
        sized_result,
        raise_limit(config, "ServerLimit", "ServerLimit", sized_result),
        raise_limit(config, "ThreadLimit", "ThreadsPerChild", directive_result),
    )


def _explain_workers(config: Config, worker_count: int, thread_count: Value | None) -> str:
    """Return why the number of processes is unknown, or an empty string."""
    if not isinstance(thread_count, int) or thread_count < 1:
        return "`ThreadsPerChild` is missing or not tuned"
    if not worker_count:
        return "`MaxRequestWorkers` is missing"
    if worker_count % thread_count:
        return f"`MaxRequestWorkers {worker_count}` is not a multiple of ThreadsPerChild"
    server_limit = config.find_last_number("ServerLimit", DEFAULT_SERVER_LIMITS["event"])
    if worker_count // thread_count > server_limit:
        lowered_text = f"ServerLimit {server_limit} × {thread_count} threads"
        return f"Apache lowers `MaxRequestWorkers {worker_count}` to {lowered_text}"
    return ""


def raise_limit(
    config: Config, limit_name: str, parameter_name: str, adoption_result: AdoptionResult
) -> AdoptionResult:
    """Return edits that raise a limit directive if the parameter ``parameter_name`` exceeds the limit.

    The limit is never lowered, and does not change while the parameter has its current value, even if
    Apache truncates that value.
    """
    limit_lines, worker_lines = (
        [line for line in config.find_all(directive_name) if line.words]
        for directive_name in (limit_name, "MaxRequestWorkers")
    )
    default_limit = (
        DEFAULT_THREAD_LIMIT
        if limit_name == "ThreadLimit"
        else DEFAULT_SERVER_LIMITS[find_mpm(config)]
    )
    current_limit = config.find_last_word(limit_name, str(default_limit)).strip("\"'")
    current_value = adoption_result.values.get(parameter_name)
    if current_value is None or not is_uint(current_limit):
        return AdoptionResult()
    condition = f"{parameter_name} > {int(current_limit)} and {parameter_name} != {current_value}"
    if limit_lines:
        template_text = f'{{{{ {parameter_name} if {condition} else "{current_limit}" }}}}'
        return AdoptionResult((Edit.replace_value(limit_lines[-1], template_text),))
    template_text = rf'{{{{ "\n{limit_name} " ~ {parameter_name} if {condition} else "" }}}}'
    return AdoptionResult((Edit.insert_text(worker_lines[-1].end_position, template_text),))


PREFORK_DIRECTIVES = ("MinSpareServers", "MaxSpareServers", "MaxRequestWorkers")
# Sections that are not listed, such as `<Perl>`, contain code.
_SECTION_NAMES = """virtualhost directory directorymatch files filesmatch location locationmatch limit
limitexcept proxy proxymatch macro if elseif else ifmodule ifdefine ifversion iffile ifdirective
ifsection requireall
requireany requirenone authnprovideralias authzprovideralias"""
VISIBLE_DIRECTIVES = VisibleDirectives(
    parse_directives,
    frozenset(
        name.lower()
        for name in (
            *COMMON_DIRECTIVES,
            *EVENT_DIRECTIVES,
            *WORKER_LIMIT_DIRECTIVES,
            *PREFORK_DIRECTIVES,
            "KeepAlive",
            "KeepAliveTimeout",
            "Listen",
            "ListenBacklog",
            "IfModule",
            "IfDefine",
            "IfVersion",
        )
    ),
    blocks=frozenset(_SECTION_NAMES.split()),
    ignores_case=True,
    reads=frozenset(("listen", "ifmodule", "ifdefine", "ifversion")),
    writes=frozenset(("<IfModule mpm_event_module>", "</IfModule>")),
)

ADOPTION = Adoption(
    title="Apache (mpm_event, or mpm_prefork with mod_php)",
    units=("apache2.service",),
    other_units=LAYOUTS.other_units,
    paths=(
        "etc/apache2",
        "etc/httpd/conf",
        "etc/httpd/conf.d",
        "etc/httpd/conf.modules.d",
        "etc/sysconfig/apache2",
        "etc/sysconfig/httpd",
        "etc/httpd/envvars",
        *unit_files.list_unit_paths("apache2.service"),
        *unit_files.list_unit_paths("httpd.service"),
    ),
    version_script=f"{LAYOUTS.running_condition} &&"
    " { apache2 -v || httpd -v; } 2>/dev/null | sed -n 's,^Server version: Apache/,Apache ,p'",
    find_services=find_services,
    visible=VISIBLE_DIRECTIVES,
    tune_parameters=tune_parameters,
)
