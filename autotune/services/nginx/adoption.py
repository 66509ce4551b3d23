"""Map nginx's directives to parameters, and find the servers in its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain

from autotune.services import unit_environment, unit_files
from autotune.services.adoption import (
    Adoption,
    RunningHost,
    RunningService,
    explain_unread,
    select_hostname,
    with_http_port,
)
from autotune.services.base import Role, Value
from autotune.services.config_files import (
    Config,
    FileTree,
    PlacedDirective,
    parse_include,
    read_config,
)
from autotune.services.directives import (
    FLAG,
    KILOBYTES,
    NUMBER,
    ON_OFF,
    DirectiveInsertion,
    Edit,
    FilePosition,
    Notation,
    Tunable,
    build_auto_notation,
    find_block_start,
    find_directive_start,
    insert_expression,
)
from autotune.services.nginx import scopes, syntax
from autotune.services.nginx.service import (
    CACHE_DIRECTIVES,
    DIRECTIVE_NOTATIONS,
    EVENT_DIRECTIVES,
    FILE_DIRECTIVES,
    KEEPALIVE_DIRECTIVES,
    LOCK_DIRECTIVES,
    PARAMETERS,
    TLS_DIRECTIVES,
)
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

UNIT_NAME, MAIN_FILE = "nginx.service", "/etc/nginx/nginx.conf"
_BACKEND_DIRECTIVES_PATTERN = r"(?:proxy|grpc|scgi|\w?wsgi)_pass"
# Directives that a `server` or `location` may override.
_SCOPED_DIRECTIVES = frozenset(
    (*KEEPALIVE_DIRECTIVES, *FILE_DIRECTIVES, *TLS_DIRECTIVES, *LOCK_DIRECTIVES,
     "fastcgi_buffer_size", "fastcgi_buffers", "fastcgi_keep_conn")
)  # fmt: skip
# Parameters outside of `http`, which a file that is included inside `http` cannot set.
_CORE_PARAMETERS = ("worker_processes", "worker_connections", *EVENT_DIRECTIVES)
DEFAULT_BACKLOG, DEFAULT_LOG_BUFFER = 511, 0  # nginx's defaults on Linux
# Options of `listen` for the socket. nginx accepts them on only one line of each address.
_SOCKET_OPTION = re.compile("(accept_f|bind|defer|fasto|ipv6o|multipath|rcvb|setfib|sndb|so_)")


def read_host_config(file_tree: FileTree, main_file: str = MAIN_FILE) -> Config:
    """Return the HTTP directives in ``main_file`` and its includes."""
    return scopes.select_http_directives(
        read_config(file_tree, main_file, syntax.parse_directives, parse_include)
    )


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.is_active(UNIT_NAME):
        return
    command = unit_environment.expand_command(host.tree, UNIT_NAME)
    main_file = [MAIN_FILE, *unit_environment.find_option_values(command, "-c")][-1]
    if unit_environment.find_option_values(command, "-p") or not main_file.startswith("/"):
        yield f"nginx is not tuned: the command of {UNIT_NAME} sets -p, or a relative path with -c"
        return
    config = read_host_config(host.tree, main_file)
    backends = _list_backends(config)
    running_service = RunningService(
        host=host,
        key="nginx",
        config=config,
        tier_kind="lb" if backends else "web",
        backends=backends,
        gateway_protocol="fastcgi" if config.find_all("fastcgi_pass") else "",
        gateway_addresses=_list_backends(config, "fastcgi_pass"),
        unit="" if main_file == MAIN_FILE else UNIT_NAME,
        hostname=select_hostname(
            word for placed in config.find_all("server_name") for word in placed.words
        ),
    )
    yield with_http_port(running_service, "nginx", scopes.list_addresses(config), ("nginx",))


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield a tunable for every parameter of nginx. `auto` means the number of processors on the
    host.
    """
    config = service.config
    keepalive_tunables = (
        _list_proxy_keepalive(config)
        if service.role is Role.PROXY
        else _list_fastcgi_keepalive(config)
    )
    # The command's option `-g` contains directives.
    command = " ".join(unit_environment.expand_command(service.host.tree, UNIT_NAME))
    command_words = re.split(r"[\s;{}\"']+", command)
    for tunable in chain(
        _list_plain_tunables(service),
        keepalive_tunables,
        _list_listen_tunables(config),
        [_build_log_tunable(config)],
    ):
        scoped_tunable = tunable
        if tunable.directive in _SCOPED_DIRECTIVES and tunable.blocks != ("upstream",):
            scoped_tunable = scopes.limit_to_port(tunable, config, service.port)
        yield (
            replace(scoped_tunable, skip_reason=f"the command of {UNIT_NAME} sets it")
            if tunable.directive in command_words
            else scoped_tunable
        )


def _list_plain_tunables(service: RunningService) -> Iterator[Tunable]:
    config, processors = service.config, service.host.processors
    yield Tunable(
        "worker_processes",
        "worker_processes",
        build_auto_notation(processors),
        ("",),
        insertion=DirectiveInsertion(
            1, find_directive_start(config, "events"), "worker_processes ", ";\n"
        ),
    )
    # 512 is nginx's default. Debian's file contains another number.
    insertion = DirectiveInsertion(
        512, find_block_start(config, "events"), "\n    worker_connections ", ";"
    )
    yield Tunable(
        "worker_connections",
        "worker_connections",
        NUMBER,
        ("events",),
        insertion,
        extra_edits=_raise_descriptor_limit,
    )
    yield from _list_block_tunables(config, EVENT_DIRECTIVES, "events")
    yield from _list_block_tunables(config, KEEPALIVE_DIRECTIVES, "http", "server", "location")
    if service.role is not Role.PROXY:
        yield from _list_fastcgi_buffers(config)
    uses_tls = any("ssl" in placed.words for placed in config.find_all("listen"))
    cache_directive = CACHE_DIRECTIVES[service.role]
    has_cache = config.find_all(cache_directive) and config.find_all(f"{cache_directive}_path")
    directive_names = (
        *FILE_DIRECTIVES,
        *(TLS_DIRECTIVES if uses_tls else ()),
        *((f"{cache_directive}_lock",) if has_cache else ()),
    )
    yield from _list_block_tunables(config, directive_names, "http", "server", "location")


def _list_fastcgi_buffers(config: Config) -> Iterator[Tunable]:
    # Add directives for buffers only if no file sets any of these directives. nginx rejects a
    # `fastcgi_busy_buffers_size` that is smaller than the first buffer, or almost as large as all
    # buffers.
    lacks_buffers = not any(placed.name.startswith("fastcgi_b") for placed in config.directives)
    http_start = find_block_start(config, "http") if lacks_buffers else []
    text_before = "\n    fastcgi_busy_buffers_size 16k;\n    fastcgi_buffer_size "
    yield Tunable(
        "fastcgi_buffer_size",
        "fastcgi_buffer_size",
        KILOBYTES,
        insertion=DirectiveInsertion(4, http_start, text_before, ";"),
    )
    yield Tunable(
        "fastcgi_buffers",
        "fastcgi_buffers",
        NUMBER,
        is_considered=lambda placed: placed.words[1:] == ("4k",),
        insertion=DirectiveInsertion(8, http_start, "\n    fastcgi_buffers ", " 4k;"),
    )


def _list_block_tunables(
    config: Config, directive_names: Iterable[str], *blocks: str
) -> Iterator[Tunable]:
    """Yield a tunable for each of ``directive_names``. A missing directive is added to the first of
    ``blocks``.
    """
    for name in directive_names:
        stock_value, notation = DIRECTIVE_NOTATIONS[name]
        insertion = DirectiveInsertion(
            stock_value, find_block_start(config, blocks[0]), f"\n    {name} ", ";"
        )
        yield Tunable(name, name, notation, blocks, insertion)


def _raise_descriptor_limit(config: Config, baseline_connections: Value) -> Iterable[Edit]:
    """Return edits that raise the file descriptor limit if `worker_connections` exceeds
    ``baseline_connections``. The new limit is two descriptors per connection, and 64 for files.
    """
    descriptors = "2 * worker_connections + 64"
    condition = f"worker_connections > {baseline_connections}"
    limit_lines = config.find_all("worker_rlimit_nofile")
    if (
        len(limit_lines) == 1
        and limit_lines[0].words
        and is_uint(limit_text := limit_lines[0].words[0])
    ):
        template_text = (
            f'{{{{ [{int(limit_text)}, {descriptors}] | max if {condition} else "{limit_text}" }}}}'
        )
        return [Edit.replace_value(limit_lines[0], template_text)]
    new_line = rf'"worker_rlimit_nofile " ~ ({descriptors}) ~ ";\n"'
    return insert_expression(
        find_directive_start(config, "events") if not limit_lines else (), new_line, condition
    )


def _list_listen_tunables(config: Config) -> Iterator[Tunable]:
    """Yield tunables for `listen` options that nginx accepts only once per address. An option is
    added to the address's `listen` line with other socket options, or else to its first line.
    """
    listen_lines = [placed for server in scopes.list_servers(config) for placed in server.listens]
    listen_options = {word.partition("=")[0] for placed in listen_lines for word in placed.words}
    listen_options |= {placed.name for placed in config.find_all("http2")}
    addresses = {scopes.normalize_address(placed.words[0]) for placed in listen_lines}
    tcp_listen_lines = [
        p
        for p in sorted(listen_lines, key=lambda p: not any(map(_SOCKET_OPTION.match, p.words)))
        if scopes.is_bound_alone(scopes.normalize_address(p.words[0]), addresses)
    ]
    tls_listen_lines = [placed for placed in tcp_listen_lines if "ssl" in placed.words]
    for name, notation, default_value, text_before, eligible_listens in (
        ("backlog", NUMBER, DEFAULT_BACKLOG, " backlog=", tcp_listen_lines),
        ("reuseport", FLAG, False, " reuseport", tcp_listen_lines),
        ("http2", FLAG, False, " http2", tls_listen_lines),
    ):
        directive_end_by_address = {
            scopes.normalize_address(p.words[0]): p.end_position for p in reversed(eligible_listens)
        }
        skip_reason = f"`listen` already sets `{name}`" if name in listen_options else ""
        yield Tunable(
            name,
            "listen",
            notation,
            (),
            skip_reason=skip_reason if eligible_listens else "",
            insertion=DirectiveInsertion(
                default_value, [*directive_end_by_address.values()], text_before
            ),
        )


def _build_log_tunable(config: Config) -> Tunable:
    """Return the parameter that adds ``buffer=`` to every access log that is a plain file in a
    known format.
    """
    name = "access_log_buffer"

    def is_plain(path: str = "off", *options: str) -> bool:
        is_file = not path.startswith(("off", "syslog:", "memory:")) and "$" not in path
        return is_file and len(options) <= 1 and "=" not in "".join(options)

    def add_format(*_: object) -> Iterable[Edit]:
        return insert_expression(
            (p.end_position for p in plain_log_lines if len(p.words) == 1), '" combined"', name
        )

    log_lines = [placed for placed in config.find_all("access_log") if placed.words]
    # nginx rejects a log file that is buffered in one place but not in another.
    paths = [placed.words[0].strip("\"'") for placed in log_lines]
    excluded_paths = {
        path for path, p in zip(paths, log_lines, strict=True) if not is_plain(path, *p.words[1:])
    }
    plain_log_lines = [
        p for path, p in zip(paths, log_lines, strict=True) if path not in excluded_paths
    ]
    insertion = DirectiveInsertion(
        DEFAULT_LOG_BUFFER,
        [placed.end_position for placed in plain_log_lines],
        " buffer=",
        " flush=5s",
    )
    reason = "" if plain_log_lines else "no `access_log` without a buffer exists"
    return Tunable(
        name, "access_log", KILOBYTES, (), insertion, skip_reason=reason, extra_edits=add_format
    )


# -- persistent connections to upstream servers ---------------------------------------------------
# In an upstream, `keepalive` must follow the balancing method. `keepalive` needs HTTP/1.1 without
# `Connection: close` or, for PHP-FPM, `fastcgi_keep_conn` (nginx.org, ngx_http_upstream_module).
# Since nginx 1.29.7, HTTP/1.1 without `Connection: close` is the default. The files do not show the
# version, so autotune assumes an older one.

_KEEPALIVE_PARAMETER = "upstream_keepalive"
_HTTP_VERSION_TEXT = r"""'\n    proxy_http_version 1.1;\n    proxy_set_header Connection "";'"""
_CONNECTION_HEADER_TEXT = r"""'proxy_set_header Connection "";{}'"""
_HTTP_DIRECTIVES = "(?:proxy|grpc)_pass"
_OWN_REASON = "the site sets its own `proxy_http_version` or `Connection` header for its upstreams"
_PARTIAL_REASON = "only some upstreams set `keepalive`: set it in all of them to tune it"
_VERSION_REASON = "`keepalive` has no effect without `proxy_http_version 1.1`"
_HEADER_REASON = '`keepalive` has no effect without `proxy_set_header Connection ""`'
# The notation of a `keepalive` without effect. The number in the file counts as 0.
_INEFFECTIVE_NUMBER = Notation(lambda text: None if NUMBER.parse(text) is None else 0)
_Upstreams = Mapping[str, list[PlacedDirective]]  # the directives in each upstream, by name
_LinesByScope = Mapping[tuple[int, ...], list[PlacedDirective]]


def _list_proxy_keepalive(config: Config) -> Iterator[Tunable]:
    upstreams = _find_upstreams(config, _HTTP_DIRECTIVES)
    has_keepalive, is_own = bool(_list_keepalive_lines(upstreams)), _sets_connection(config)
    # gRPC uses HTTP/2, so its connections are always kept.
    is_effective = is_own or not _find_upstreams(config, "proxy_pass")
    upstream_ends = (
        _find_upstream_ends(config, "proxy_pass")
        if not has_keepalive and find_block_start(config, "http")
        else []
    )
    if has_keepalive:
        reason = _explain_keepalive(config, upstreams, is_effective=is_effective)
    elif is_own:
        reason = _OWN_REASON
    else:
        reason = "" if upstream_ends else "no `upstream` for `keepalive` exists"
    yield Tunable(
        _KEEPALIVE_PARAMETER,
        "keepalive",
        _INEFFECTIVE_NUMBER if has_keepalive and not is_effective else NUMBER,
        ("upstream",),
        DirectiveInsertion(0, upstream_ends, "\n        keepalive ", ";"),
        partial(_is_inside, upstreams),
        skip_reason=reason,
        extra_edits=_omit_zero_keepalive
        if has_keepalive and is_effective
        else _clear_connection_header,
    )
    insertion = DirectiveInsertion(
        1000, upstream_ends, "\n        keepalive_requests ", ";", _KEEPALIVE_PARAMETER
    )
    yield Tunable(
        f"{_KEEPALIVE_PARAMETER}_requests",
        "keepalive_requests",
        NUMBER,
        ("upstream",),
        insertion,
        partial(_is_inside, upstreams),
        skip_reason=reason,
    )


def _sets_connection(config: Config) -> bool:
    """True if the site sets the HTTP version or the `Connection` header of requests to upstreams."""
    header_lines = config.find_all("proxy_set_header")
    return bool(config.find_all("proxy_http_version")) or any(map(_is_connection, header_lines))


def _is_connection(header_line: PlacedDirective) -> bool:
    """True if a `proxy_set_header` line sets the `Connection` header."""
    return [word.strip("\"'").lower() for word in header_line.words[:1]] == ["connection"]


def _explain_keepalive(config: Config, upstreams: _Upstreams, *, is_effective: bool) -> str:
    """Return why the `keepalive` of ``upstreams`` is not tuned, or an empty string.

    ``is_effective`` is false if the site sets neither the HTTP version nor the `Connection` header.
    """
    if _is_partial(upstreams):
        return _PARTIAL_REASON
    if is_effective:
        return _explain_closing(config, upstreams)
    return "" if find_block_start(config, "http") else _VERSION_REASON


def _explain_closing(config: Config, upstreams: _Upstreams) -> str:
    """Return why nginx closes connections to ``upstreams`` after each request, or an empty string. If
    there is a `location /`, which carries most of the load, other locations do not count.
    """
    kept_words = {
        word
        for word, targets in _map_pass_targets(config, "proxy_pass").items()
        if any("$" in target or target in upstreams for target in targets)
    }
    version_lines = _map_scopes(config, "proxy_http_version")
    header_lines = _map_scopes(config, "proxy_set_header")
    values_by_variable = _map_variables(config)
    reasons: dict[bool, list[str]] = {True: [], False: []}  # of `location /`, and of other places
    for scope, pass_lines in _map_scopes(config, "proxy_pass").items():
        if not kept_words.isdisjoint((line.words or ("",))[0] for line in pass_lines):
            block = config.directives[scope[-1]] if scope else None
            is_root = block is not None and (block.name, *block.words) == ("location", "/")
            reasons[is_root].append(
                _explain_scope(
                    _inherit(version_lines, scope),
                    _inherit(header_lines, scope),
                    values_by_variable,
                )
            )
    return next(filter(None, reasons[True] or reasons[False]), "")


def _explain_scope(
    version_lines: Iterable[PlacedDirective],
    header_lines: Iterable[PlacedDirective],
    values_by_variable: Mapping[str, list[str]],
) -> str:
    """Return why the directives that apply in a block close connections, or an empty string."""
    versions = {word.strip("\"'") for line in version_lines for word in line.words}
    if versions.isdisjoint(("1.1", "2")):
        return _VERSION_REASON
    # By default, nginx sends `close`. A block that sets other headers does not inherit this one.
    connections = [
        line.words[1].strip("\"'")
        for line in header_lines
        if _is_connection(line) and len(line.words) > 1
    ] or ["close"]
    sent_values = (v for word in connections for v in values_by_variable.get(word, [word]))
    return _HEADER_REASON if any(value.lower() == "close" for value in sent_values) else ""


def _map_scopes(config: Config, directive: str) -> _LinesByScope:
    """Return the lines of a directive by scope. A scope contains the positions of the enclosing blocks,
    outermost first.
    """
    lines_by_scope: dict[tuple[int, ...], list[PlacedDirective]] = {}
    open_blocks: list[int] = []
    for position, placed in enumerate(config.directives):
        del open_blocks[placed.directive.depth :]
        if placed.name == directive:
            lines_by_scope.setdefault(tuple(open_blocks), []).append(placed)
        open_blocks.append(position)  # a block precedes the directives inside it
    return lines_by_scope


def _inherit(lines_by_scope: _LinesByScope, scope: tuple[int, ...]) -> list[PlacedDirective]:
    """Return the lines that apply in ``scope``, which are in the innermost block with such lines."""
    outer_scopes = (scope[:depth] for depth in range(len(scope), -1, -1))
    return next((lines_by_scope[outer] for outer in outer_scopes if outer in lines_by_scope), [])


def _list_fastcgi_keepalive(config: Config) -> Iterator[Tunable]:
    upstreams, name = _find_upstreams(config, "fastcgi_pass"), "fastcgi_keep_conn"
    upstream_ends = _find_upstream_ends(config, "fastcgi_pass")
    has_keepalive, is_partial = bool(_list_keepalive_lines(upstreams)), _is_partial(upstreams)
    can_keep = bool(upstream_ends) or (has_keepalive and not is_partial)
    insertion = DirectiveInsertion(
        default=False,
        positions=find_block_start(config, "http") if can_keep else [],
        text_before=f"\n    {name} ",
        text_after=";",
    )
    yield Tunable(name, name, ON_OFF, insertion=insertion)
    # nginx closes connections to upstreams without `keepalive`, even if FPM keeps them open.
    is_one_sided = not has_keepalive and any("on" in p.words for p in config.find_all(name))
    reason = f"`{name} on` has no effect without `keepalive` in an upstream" if is_one_sided else ""
    yield Tunable(
        "fastcgi_keepalive",
        "keepalive",
        NUMBER,
        ("upstream",),
        DirectiveInsertion(8, upstream_ends, "\n        keepalive ", ";", name),
        partial(_is_inside, upstreams),
        skip_reason=_PARTIAL_REASON if is_partial else reason,
    )


def _find_upstreams(config: Config, directive: str) -> _Upstreams:
    """Return the upstreams to which ``directive`` refers. A variable without known values may refer to
    any upstream.
    """
    targets, upstreams = {*_list_pass_targets(config, directive)}, _map_upstreams(config)
    if any("$" in target for target in targets):
        return upstreams
    return {name: lines for name, lines in upstreams.items() if name in targets}


def _list_keepalive_lines(upstreams: _Upstreams) -> list[PlacedDirective]:
    return [line for lines in upstreams.values() for line in lines if line.name == "keepalive"]


def _is_partial(upstreams: _Upstreams) -> bool:
    """True if some of ``upstreams`` set `keepalive`, and others do not."""
    return (
        len({any(line.name == "keepalive" for line in lines) for lines in upstreams.values()}) > 1
    )


def _is_inside(upstreams: _Upstreams, placed_directive: PlacedDirective) -> bool:
    """True if a directive is inside one of ``upstreams``."""
    return not upstreams.keys().isdisjoint(placed_directive.directive.blocks[-1][1:])


def _find_upstream_ends(config: Config, directive: str) -> list[FilePosition]:
    """Return the end positions of the upstreams to which ``directive`` refers. The result is empty
    if one of these upstreams sets `keepalive…`, or contains Lua code, whose end is unknown.
    """
    upstream_names = set(_list_pass_targets(config, directive))
    upstream_lines = [
        lines for name, lines in _map_upstreams(config).items() if name in upstream_names
    ]
    if any(p.name.startswith(("keepalive", "balancer_by_lua")) for u in upstream_lines for p in u):
        return []
    return [_find_statement_end(config, lines[-1]) for lines in upstream_lines]


def _find_statement_end(config: Config, placed_directive: PlacedDirective) -> FilePosition:
    """Return the position after the `;` that ends a directive."""
    path, directive_end = placed_directive.end_position
    return path, config.texts[path].index(";", directive_end) + 1


def _omit_zero_keepalive(config: Config, baseline_connections: Value) -> Iterator[Edit]:
    """Yield edits that omit `keepalive 0`, which some versions reject. A file that itself contains
    `keepalive 0` is not changed.
    """
    if not baseline_connections:
        return
    for placed_directive in _list_keepalive_lines(_find_upstreams(config, _HTTP_DIRECTIVES)):
        start_position = placed_directive.path, placed_directive.directive.name.start
        yield Edit.insert_text(start_position, f"{{%+ if {_KEEPALIVE_PARAMETER} %}}")
        yield Edit.insert_text(_find_statement_end(config, placed_directive), "{% endif +%}")


def _clear_connection_header(config: Config, _: Value) -> Iterator[Edit]:
    """Yield edits that use HTTP/1.1 without `Connection: close`, even in blocks that set their own
    headers.
    """
    yield from insert_expression(
        find_block_start(config, "http"), _HTTP_VERSION_TEXT, _KEEPALIVE_PARAMETER
    )
    previous_key = None
    for placed_directive in config.directives:
        block_key = (
            placed_directive.name,
            placed_directive.path,
            placed_directive.directive.blocks,
        )
        if placed_directive.name == "proxy_set_header" and block_key != previous_key:
            position = placed_directive.path, placed_directive.directive.name.start
            header_text = _CONNECTION_HEADER_TEXT.format(_write_separator(config, *position))
            yield from insert_expression([position], header_text, _KEEPALIVE_PARAMETER)
        previous_key = block_key


def _write_separator(config: Config, path: str, position: int) -> str:
    """Return the text between an inserted directive and the next one, as part of a Jinja string."""
    indent = config.texts[path][:position].rpartition("\n")[2]
    return " " if indent.strip() else "\\n" + indent.replace("\t", "\\t")


# -- connected servers --------------------------------------------------------------------------


def _list_backends(
    config: Config, directives_pattern: str = _BACKEND_DIRECTIVES_PATTERN
) -> tuple[str, ...]:
    """Return the addresses to which requests are forwarded. An upstream is replaced by the addresses of
    its servers.
    """
    servers_by_upstream = {
        name: dict.fromkeys(p.words[0] for p in inner if p.name == "server" and p.words)
        for name, inner in _map_upstreams(config).items()
    }
    pass_targets = dict.fromkeys(_list_pass_targets(config, directives_pattern))
    return tuple(
        dict.fromkeys(p for name in pass_targets for p in servers_by_upstream.get(name) or [name])
    )


def _list_pass_targets(config: Config, directives: str) -> list[str]:
    """Return the upstreams or addresses in the URLs of all directives whose names match the pattern
    ``directives``.
    """
    targets_by_word = _map_pass_targets(config, directives)
    return [*dict.fromkeys(chain.from_iterable(targets_by_word.values()))]


def _map_pass_targets(config: Config, directives: str) -> Mapping[str, list[str]]:
    """Return the upstreams or addresses in each URL of the directives whose names match the pattern
    ``directives``. A variable has several targets if a file sets it several times.
    """
    pass_lines = [placed for placed in config.directives if re.fullmatch(directives, placed.name)]
    values_by_variable = _map_variables(config)
    return {
        word: [*map(_strip_url, dict.fromkeys(values_by_variable.get(word) or (word,)))]
        for word in dict.fromkeys((placed.words or ("",))[0] for placed in pass_lines)
    }


def _strip_url(url: str) -> str:
    """Return the address in a URL, without the scheme and the path. A socket keeps its path."""
    address = (url.partition("://")[2] or url).strip("\"'")
    return address if address.startswith("unix:") else re.split(r"/|(?<=.)\$", address)[0]


def _map_variables(config: Config) -> Mapping[str, list[str]]:
    """Return the values that `set` and `map` give to each variable."""
    values_by_variable: dict[str, list[str]] = {}
    for placed in config.directives:
        if placed.name == "set" and placed.words[1:]:
            values_by_variable.setdefault(placed.words[0], []).append(placed.words[1])
        elif placed.block == "map" and placed.words and placed.directive.blocks[-1][2:3]:
            variable = placed.directive.blocks[-1][2]
            values_by_variable.setdefault(variable, []).append(placed.words[0])
    return {
        variable: [value.strip("\"'") for value in values]
        for variable, values in values_by_variable.items()
        if variable.startswith("$")
    }


def _map_upstreams(config: Config) -> Mapping[str, list[PlacedDirective]]:
    """Return the directives in each upstream, by name. nginx rejects an upstream without a name."""
    lines_by_upstream: dict[str, list[PlacedDirective]] = {}
    for placed_directive in config.directives:
        for name in (
            placed_directive.directive.blocks[-1][1:]
            if placed_directive.block == "upstream"
            else ()
        ):
            lines_by_upstream.setdefault(name, []).append(placed_directive)
    return lines_by_upstream


def _may_set_parameter(parameter_name: str, blocks: tuple[tuple[str, ...], ...]) -> bool:
    """True if a file that is included inside ``blocks`` can set a parameter."""
    return not blocks or (blocks[0][0] == "http") == (parameter_name not in _CORE_PARAMETERS)


# Blocks that are not listed, such as `map`, contain keys and values.
_BLOCK_NAMES = frozenset(
    (
        "events",
        "http",
        "server",
        "location",
        "upstream",
        "if",
        "limit_except",
        "stream",
        "mail",
        "types",
    )
)
VISIBLE_DIRECTIVES = VisibleDirectives(
    syntax.parse_directives,
    frozenset((*(p.name for p in PARAMETERS), "listen", "keepalive", "worker_rlimit_nofile")),
    blocks=_BLOCK_NAMES,
    reads=frozenset(("listen",)),
    writes=frozenset(("auto", "max", "shared", "autotune", "access_log", "combined", "buffer", "flush",
        "fastcgi_busy_buffers_size", "proxy_http_version 1.1;", 'proxy_set_header Connection "";')),
)  # fmt: skip

ADOPTION = Adoption(
    title="nginx",
    units=(UNIT_NAME,),
    paths=("etc/nginx", *unit_files.list_unit_paths(UNIT_NAME)),
    version_script="runs nginx.service && nginx -v 2>&1 | sed -n 's,^nginx version: nginx/,nginx ,p'",
    find_services=find_services,
    visible=VISIBLE_DIRECTIVES,
    list_tunables=_list_tunables,
    explain_hidden=partial(explain_unread, may_set=_may_set_parameter),
)
