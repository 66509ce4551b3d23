"""Map HAProxy's directives to parameters, and find the servers in its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from posixpath import join

from autotune.services import unit_environment, unit_files
from autotune.services.adoption import Adoption, RunningHost, RunningService, with_http_port
from autotune.services.base import Value
from autotune.services.config_files import (
    Config,
    FileTree,
    PlacedDirective,
    merge_configs,
    read_config,
)
from autotune.services.directives import (
    FLAG,
    MILLISECONDS,
    NUMBER,
    SIGNED_NUMBER,
    WORD,
    DirectiveInsertion,
    Notation,
    Tunable,
    find_line_end,
)
from autotune.services.haproxy import syntax
from autotune.services.unit_environment import read_environment
from autotune.services.visible_directives import VisibleDirectives

UNIT_NAME, CONFIG_DIRECTORY = "haproxy.service", "/etc/haproxy"
MAIN_FILE = f"{CONFIG_DIRECTORY}/haproxy.cfg"
# A reference to a variable, with an optional default value: `$PORT`, `${PORT}` and `${PORT-8080}`.
_VARIABLE_PATTERN = re.compile(r"\$(?:\{(?P<braced>\w+)(?:-(?P<default>[^}]*))?\}|(?P<plain>\w+))")
# A redirect to HTTPS under a condition that tests one of these applies to all plain requests.
_REDIRECT_TESTS = ("ssl_fc", "acme-challenge")
_DATAGRAM_PATTERN = re.compile(r"(?:quic|udp)[46]?@")  # addresses without TCP
_PORT_RANGE_PATTERN = re.compile(r"(:[0-9]+)-[0-9]+$")
_SERVER_NAMES = ("server", "server-template")
_SERVER_OPTIONS = ("maxconn", "pool-max-conn", "pool-purge-delay")
# Values of `http-reuse` with which clients may lose their first request. autotune never sets them.
_RISKY_REUSE = ("aggressive", "always")
# Starts of lines that make a parameter ineffective, each with its effect on the parameter. Only old
# versions have `forceclose` and `http-tunnel`.
_OVERRIDES = {
    "maxconn": {"ulimit-n": "limits", "fd-hard-limit": "limits"},
    "http_server_close": {
        "no option http-server-close": "disables",
        "option httpclose": "replaces",
        "option http-keep-alive": "replaces",
        "option forceclose": "replaces",
        "option http-tunnel": "replaces",
    },
    "dontlog_normal": {"no option dontlog-normal": "disables"},
    "busy_polling": {"no busy-polling": "disables"},
}
# Maps each timeout to its fallback, which applies if no file sets the timeout, in the order of the
# manual.
_TIMEOUT_FALLBACKS = {
    "client": "",
    "server": "",
    "connect": "",
    "queue": "connect",
    "http-request": "client",
    "http-keep-alive": "http-request",
}
_FRONT_SECTIONS = ("frontend", "listen")  # sections to which clients connect
# Directives that take effect in these sections. Other directives apply to connections to servers.
_CLIENT_DIRECTIVES = (
    "backlog",
    "bind backlog",
    "bind shards",
    "timeout client",
    "timeout http-request",
    "timeout http-keep-alive",
)
# Maps each parameter to the parameters that its default depends on.
_COMPUTED_FROM = {
    "backlog": ("maxconn",),
    "timeout_queue": ("timeout_connect",),
    "timeout_http_request": ("timeout_client",),
    "timeout_http_keep_alive": ("timeout_http_request",),
}


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.is_active(UNIT_NAME):
        return
    config = _read_host_config(host.tree)
    if config.unread_files:
        yield "; ".join(
            f"HAProxy is not tuned: {p} ({reason})" for p, reason in config.unread_files.items()
        )
        return
    stats_sockets = [
        line.words[0].removeprefix("unix@")
        for line in config.find_all("stats socket")
        if line.words
    ]
    backends = (
        line.words[position]
        for name, position in (("server", 1), ("server-template", 2))
        for line in config.find_all(name)
        if line.words[position:]
    )
    running_service = RunningService(
        host=host,
        key="haproxy",
        config=config,
        tier_kind="lb",
        backends=tuple(dict.fromkeys(backends)),
        listen_address=next((path for path in stats_sockets if path.startswith("/")), ""),
        unit="" if config.main_file == MAIN_FILE else UNIT_NAME,
    )
    all_addresses = [*_list_http_addresses(config, _read_variables(host.tree, config))]
    known_addresses = [(address, tls) for address, tls in all_addresses if "$" not in address]
    if all_addresses and not known_addresses:
        yield f"HAProxy is not tuned: no file sets the variable in `bind {all_addresses[0][0]}`"
        return
    yield with_http_port(running_service, "HAProxy", known_addresses, ("haproxy",))


def _read_variables(file_tree: FileTree, config: Config) -> dict[str, str]:
    """Return HAProxy's environment variables: its unit's variables, and variables that its own
    files set.
    """
    variables = dict(read_environment(file_tree, UNIT_NAME).values)
    for line in config.directives:
        if line.name in ("setenv", "presetenv") and len(line.words) > 1:
            variable_name, value = (word.strip("\"'") for word in line.words[:2])
            if line.name == "setenv" or variable_name not in variables:
                variables[variable_name] = value
    return variables


def _read_host_config(file_tree: FileTree) -> Config:
    """Return the configuration in all files that are given in the unit's command. In directories,
    only ``.cfg`` files are read.
    """
    command_words = unit_environment.expand_command(file_tree, UNIT_NAME)
    listed_files = command_words[command_words.index("--") + 1 :] if "--" in command_words else ()
    named_files = [*unit_environment.find_option_values(command_words, "-f"), *listed_files]
    directory = ["", *unit_environment.find_option_values(command_words, "-C")][-1]
    named_files = [join(directory, path) for path in named_files] or [MAIN_FILE]
    config_paths = (
        path
        for config_location in named_files
        for path in file_tree.glob(f"{config_location}/*.cfg") or [config_location]
        # All files in CONFIG_DIRECTORY were read. A path that is not among these files is therefore a
        # directory without ``.cfg`` files.
        if path == MAIN_FILE
        or file_tree.resolve(path) in file_tree.files
        or not path.startswith(CONFIG_DIRECTORY)
    )
    return merge_configs(
        " ".join(named_files),
        [read_config(file_tree, p, syntax.parse_directives) for p in config_paths],
    )


def _list_http_addresses(
    config: Config, variables: Mapping[str, str]
) -> Iterator[tuple[str, bool]]:
    """Yield each listening address whose requests HAProxy forwards, and whether the address uses TLS.
    Addresses of TCP proxies are included only if there is no HTTP address.
    """
    sections = _find_forwarding_sections(config, _FRONT_SECTIONS)
    bind_lines = [
        line for line in config.find_all("bind") if line.directive.blocks in sections and line.words
    ]
    for line in _select_site_lines(config, bind_lines):
        for address in line.words[0].strip("\"'").split(","):
            if not _DATAGRAM_PATTERN.match(address):
                # The first port of a range represents the range.
                yield (
                    _PORT_RANGE_PATTERN.sub(r"\1", _expand_variables(address, variables)),
                    "ssl" in line.words,
                )


def _expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with its variables replaced. An unknown variable without a default value is not
    changed.
    """

    def look_up(match: re.Match[str]) -> str:
        default = match[0] if match["default"] is None else match["default"]
        return variables.get(match["braced"] or match["plain"]) or default

    return _VARIABLE_PATTERN.sub(look_up, text)


def _select_site_lines(config: Config, bind_lines: list[PlacedDirective]) -> list[PlacedDirective]:
    """Return the `bind` lines on which visitors get the site. Lines for the PROXY protocol and lines that
    only redirect to HTTPS are omitted if other lines remain.
    """
    acl_tests = {
        acl.words[0]: any(test in word for test in _REDIRECT_TESTS for word in acl.words[1:])
        for acl in config.find_all("acl")
        if acl.words
    }
    redirecting_blocks = {
        line.directive.blocks for line in config.directives if _redirects_to_tls(acl_tests, line)
    }
    direct_lines = [line for line in bind_lines if "accept-proxy" not in line.words] or bind_lines
    return [
        line
        for line in direct_lines
        if "ssl" in line.words or line.directive.blocks not in redirecting_blocks
    ] or direct_lines


def _redirects_to_tls(acl_tests: Mapping[str, bool], line: PlacedDirective) -> bool:
    """True if a line redirects all plain requests to HTTPS. A condition may test TLS itself or the paths
    of certificate requests. ``acl_tests`` maps the names of ACLs to whether an ACL tests one of them.
    """
    words = [line.name, *line.words]
    if words[:2] == ["http-request", "redirect"]:
        words = words[1:]
    if words[:3] != ["redirect", "scheme", "https"]:
        return False
    condition_start = next((i for i, word in enumerate(words) if word in ("if", "unless")), None)
    if condition_start is None:
        return True
    condition = " ".join(words[condition_start:])
    return any(test in condition for test in _REDIRECT_TESTS) or any(
        acl_tests.get(name, False) for name in re.findall(r"[\w.-]+", condition)
    )


def _map_values(
    config: Config, directive: str, default: str = ""
) -> dict[tuple[tuple[str, ...], ...], str]:
    """Return the value of a directive in each section. Sections inherit values from the `defaults`
    section above them, or from the `defaults` section that they name with `from`.
    """
    values: dict[tuple[tuple[str, ...], ...], str] = {}
    latest_defaults: tuple[tuple[str, ...], ...] = ()
    for line in config.directives:
        section, words = line.directive.blocks, line.words
        if line.name in syntax.PROXY_SECTIONS and not section:
            parent = latest_defaults if line.name != "defaults" else ()
            if "from" in words[:-1]:
                named = ("defaults", words[words.index("from") + 1])
                parent = next((name for name in values if name[0][:2] == named), ())
            values[((line.name, *words),)] = values.get(parent, default)
            if line.name == "defaults":
                latest_defaults = ((line.name, *words),)
        elif line.name == directive and words and section:
            values[section] = words[0]
    return values


def _find_forwarding_sections(
    config: Config, kinds: tuple[str, ...]
) -> set[tuple[tuple[str, ...], ...]]:
    """Return the sections of these kinds that forward requests. Sections for TCP are included only if
    there is none for HTTP.
    """
    modes = _map_values(config, "mode", "tcp")
    sections = {
        line.directive.blocks
        for name in (*_SERVER_NAMES, "default_backend", "use_backend")
        for line in config.find_all(name)
        if line.block in kinds
    }
    return {section for section in sections if modes.get(section) == "http"} or sections


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield the parameters that are in the file, or that can be added as one line in `global` or
    `defaults`.
    """
    config, host = service.config, service.host
    backlog = "bind backlog" if config.find_all("bind backlog") else "backlog"
    for section_name, parameter_name, directive, notation, default in (
        ("global", "nbthread", "nbthread", NUMBER, host.processors),
        ("global", "maxconn", "maxconn", NUMBER, None),
        ("global", "tune_bufsize", "tune.bufsize", NUMBER, 16384),
        ("defaults", "backlog", backlog, NUMBER, host.backlogs.get(str(service.port))),
        ("defaults", "shards", "bind shards", NUMBER, None),
        ("defaults", "retries", "retries", NUMBER, 3),
        ("defaults", "balance", "balance", WORD, "roundrobin"),
        ("defaults", "http_reuse", "http-reuse", WORD, "safe"),
        ("defaults", "server_maxconn", "server maxconn", NUMBER, 0),
        ("defaults", "pool_max_conn", "server pool-max-conn", SIGNED_NUMBER, -1),
        ("defaults", "pool_purge_delay", "server pool-purge-delay", MILLISECONDS, 5000),
        ("global", "busy_polling", "busy-polling", FLAG, False),
        ("defaults", "dontlog_normal", "option dontlog-normal", FLAG, False),
        ("defaults", "http_server_close", "option http-server-close", FLAG, False),
        *_list_timeouts(config),
    ):
        insertion = DirectiveInsertion(
            0 if default is None else default,
            find_line_end(config, section_name, must_be_only=True) if default is not None else (),
            f"\n    {directive.replace('server ', 'default-server ')}{'' if notation is FLAG else ' '}",
            computed_from=_COMPUTED_FROM.get(parameter_name, ()),
        )
        # A flag that a file already sets is not tuned for that reason.
        is_set = notation is FLAG and config.find_all(directive)
        yield Tunable(
            parameter_name,
            directive,
            notation,
            syntax.PROXY_SECTIONS if section_name == "defaults" else (section_name,),
            insertion=insertion,
            skip_reason="" if is_set else _explain_override(service, parameter_name, directive),
        )


def _explain_override(service: RunningService, parameter_name: str, directive: str) -> str:
    """Return why changes of a parameter may have no effect, or an empty string."""
    reasons = [
        f"`{start}` {effect} it: remove that line to tune it"
        for start, effect in _OVERRIDES.get(parameter_name, {}).items()
        if any(
            " ".join((line.name, *line.words, "")).startswith(f"{start} ")
            for line in service.config.directives
        )
    ]
    return next(iter(reasons), "") or (
        _explain_lower_limit(service)
        if parameter_name == "maxconn"
        else _explain_other_servers(service.config, directive)
        or _explain_other_sections(service.config, directive)
        or (_explain_reuse(service.config) if parameter_name == "http_reuse" else "")
    )


def _explain_other_servers(config: Config, directive: str) -> str:
    """Return why an option of servers has several values, or an empty string: some `server` lines set
    the option, and other servers have its default.
    """
    option = directive.removeprefix("server ")
    has_option = {option in line.words for name in _SERVER_NAMES for line in config.find_all(name)}
    is_default_set = any(option in line.words for line in config.find_all("default-server"))
    is_mixed = option in _SERVER_OPTIONS and len(has_option) > 1
    return f"only some servers set `{option}`" if is_mixed and not is_default_set else ""


def _explain_other_sections(config: Config, directive: str) -> str:
    """Return why a directive has several values, or an empty string.

    Some sections that forward requests may set or inherit the directive, and others have its default.
    """
    kinds = _FRONT_SECTIONS if directive in _CLIENT_DIRECTIVES else ("backend", "listen")
    sections, values = _find_forwarding_sections(config, kinds), _map_values(config, directive)
    is_set = any(line.block in syntax.PROXY_SECTIONS for line in config.find_all(directive))
    return (
        f"only some sections that forward requests set `{directive}`: set it in all of them to tune it"
        if is_set and not all(values.get(section) for section in sections)
        else ""
    )


def _explain_reuse(config: Config) -> str:
    """Return why `http-reuse` keeps its value, or an empty string."""
    values = {line.words[0] for line in config.find_all("http-reuse") if line.words}
    kept_value = next((value for value in _RISKY_REUSE if value in values), "")
    return (
        f"autotune keeps `http-reuse {kept_value}`, and itself sets only `never` and `safe`"
        if kept_value
        else ""
    )


def _explain_lower_limit(service: RunningService) -> str:
    """Return why `maxconn` in `global` may have no effect, or an empty string.

    A section may set a lower limit, and `-n` in HAProxy's command replaces `maxconn`.
    """
    limits = [
        (line.block, int(limit_match[0]))
        for line in service.config.find_all("maxconn")
        if (limit_match := re.match(r"[0-9]{1,9}\b", " ".join(line.words).lstrip("\"'")))
    ]
    return next(
        (
            f"`maxconn {limit}` in `{block}` limits it: remove that line to tune it"
            for block, limit in limits
            if block in syntax.PROXY_SECTIONS
            and any(name == "global" and limit < global_limit for name, global_limit in limits)
        ),
        f"the command of {UNIT_NAME} sets `-n`"
        if "-n" in unit_environment.expand_command(service.host.tree, UNIT_NAME)
        else "",
    )


def _list_timeouts(config: Config) -> Iterator[tuple[str, str, str, Notation, Value | None]]:
    fallback_values: dict[str, Value | None] = {}
    for timeout_name, fallback_name in _TIMEOUT_FALLBACKS.items():
        value_words = {
            word for line in config.find_all(f"timeout {timeout_name}") for word in line.words[:1]
        }
        milliseconds = {MILLISECONDS.parse(word) for word in value_words} or {
            fallback_values.get(fallback_name)
        }
        fallback_values[timeout_name] = milliseconds.pop() if len(milliseconds) == 1 else None
        yield (
            "defaults",
            f"timeout_{timeout_name.replace('-', '_')}",
            f"timeout {timeout_name}",
            MILLISECONDS,
            fallback_values[timeout_name],
        )


VISIBLE_DIRECTIVES = VisibleDirectives(
    syntax.parse_directives,
    frozenset(
        (
            "nbthread",
            "maxconn",
            "tune.bufsize",
            "backlog",
            "bind backlog",
            "bind shards",
            "retries",
            "balance",
            "http-reuse",
            "busy-polling",
            "option dontlog-normal",
            "option http-server-close",
            *(f"server {option}" for option in _SERVER_OPTIONS),
            *(f"timeout {name}" for name in _TIMEOUT_FALLBACKS),
        )
    ),
    writes=frozenset(("default-server",)),
)

ADOPTION = Adoption(
    title="HAProxy",
    units=(UNIT_NAME,),
    paths=(
        CONFIG_DIRECTORY[1:],
        "etc/default/haproxy",
        "etc/sysconfig/haproxy",
        *unit_files.list_unit_paths(UNIT_NAME),
    ),
    version_script="runs haproxy.service && haproxy -v | sed -n 's,^HAProxy version ,HAProxy ,p'",
    find_services=find_services,
    visible=VISIBLE_DIRECTIVES,
    list_tunables=_list_tunables,
)
