"""Map the options in a Caddyfile to parameters, and find the sites and the servers behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
from autotune.services.base import Role
from autotune.services.caddy import syntax
from autotune.services.caddy.service import PARAMETERS, POOL, UNIT_NAME
from autotune.services.config_files import Config, Directive, PlacedDirective, read_config
from autotune.services.directives import (
    ON_OFF,
    AdoptionResult,
    DirectiveInsertion,
    FilePosition,
    Tunable,
    ValueCheck,
    format_literal,
    insert_expression,
    map_directives,
    merge_results,
    select_notation,
)
from autotune.services.unit_environment import EnvironmentSetting
from autotune.services.visible_directives import VisibleDirectives

MAIN_FILE = "/etc/caddy/Caddyfile"
# Directives that forward requests over HTTP. All of these directives accept the same options.
PROXY_NAMES = ("reverse_proxy", "forward_auth")
PROXY_OPTIONS = [
    parameter for parameter in PARAMETERS if parameter.roles == frozenset({Role.PROXY})
]
_PLACEHOLDER_PATTERN = re.compile(r"\{\$(\w+)(?::([^}\n]{0,1000}))?\}")
_ADDRESS_PATTERN = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<name>\[[^\]]*\]|[^:/]*)(?::(?P<port>[0-9]{1,5}))?/?"
)
Block = tuple[PlacedDirective, ...]  # a directive, and the directives in its block at any depth


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.is_active(UNIT_NAME):
        return
    environment = unit_environment.read_environment(host.tree, UNIT_NAME)
    command = " ".join(unit_environment.expand_command(host.tree, UNIT_NAME)).replace("=", " ")
    find_options = partial(unit_environment.find_option_values, command.split())
    main_file = "".join(find_options("--config", "-c")) or ("" if command else MAIN_FILE)
    config = _read_host_config(host, main_file)
    skip_reasons = {
        f"the command of {UNIT_NAME} resumes the last configuration": " --resume" in command,
        f"the command of {UNIT_NAME} names no Caddyfile": not (
            find_options("--adapter", "-a") == ["caddyfile"]
            or (not find_options("--adapter", "-a") and "/Caddyfile" in main_file)
        ),
        "`admin off` prevents reloads": _find_option(config, "admin") == "off",
    }
    addresses = [*_list_addresses(config, environment.values)]
    gateway_addresses = _list_upstreams(config, "php_fastcgi")
    backends = (*_list_upstreams(config, *PROXY_NAMES), *gateway_addresses)
    running_service = RunningService(
        host=host,
        key="caddy",
        config=replace(
            config, texts={environment.drop_in_path: "", **environment.texts, **config.texts}
        ),
        tier_kind="lb" if backends else "web",
        listen_address=_find_option(config, "admin").removeprefix("unix/"),
        backends=tuple(dict.fromkeys(backends)),
        gateway_protocol="fastcgi" if gateway_addresses else "",
        gateway_addresses=gateway_addresses,
        unit="" if main_file == MAIN_FILE else UNIT_NAME,
        hostname=select_hostname(name for name, _, _ in addresses),
    )
    yield next(
        (f"Caddy is not tuned: {reason}" for reason, applies in skip_reasons.items() if applies),
        with_http_port(running_service, "Caddy", [a[1:] for a in addresses], ("caddy",)),
    )


def _read_host_config(host: RunningHost, main_file: str) -> Config:
    """Return the directives of the Caddyfile and of the files that it imports."""
    config = read_config(
        host.tree, main_file, syntax.parse_directives, _parse_import, relative_to_includer=True
    )
    directive_names = {placed_directive.name for placed_directive in config.directives}
    snippet_imports = [
        line for line in config.find_all("import") if not _parse_import(line.directive)
    ]
    unknown_lines = [
        *(
            f"import {word}"
            for line in snippet_imports
            for word in line.words[:1]
            if f"({word})" not in directive_names
        ),
        *(name for name in sorted(directive_names) if name.startswith("{$")),
    ]
    return replace(
        config, uncertain={"*": f"`{unknown_lines[0]}` may set it"} if unknown_lines else {}
    )


def _parse_import(directive: Directive) -> str | None:
    """Return the pattern of imported files, or None if the directive imports a snippet."""
    argument_words = [word.text.strip('"`') for word in directive.arguments]
    is_file = (
        directive.name.text == "import"
        and argument_words
        and re.search(r"[^\w-]", argument_words[0])
    )
    return argument_words[0] if is_file else None


def _find_option(config: Config, name: str, default: str = "") -> str:
    """Return the first argument of a global option. In other blocks, the same word may be a user name."""
    lines = [line for line in config.find_all(name) if line.block == syntax.OPTIONS]
    return replace(config, directives=tuple(lines)).find_last_word(name, default)


def _list_blocks(config: Config, *names: str) -> list[Block]:
    """Return the directives whose names are in ``names``, each with the directives in its block."""
    return [
        config.directives[
            line_index : next(
                (
                    end_index
                    for end_index, later_line in enumerate(config.directives)
                    if end_index > line_index and later_line.directive.depth <= line.directive.depth
                ),
                len(config.directives),
            )
        ]
        for line_index, line in enumerate(config.directives)
        if line.name in names
    ]


def _list_upstreams(config: Config, *names: str) -> tuple[str, ...]:
    """Return the addresses to which directives called ``names`` forward requests. A matcher may precede
    the addresses.
    """
    blocks = _list_blocks(config, *names)
    lines = [line for block in blocks for line in block if line is block[0] or line.name == "to"]
    words = (word.strip('"`') for line in lines for word in line.words)
    return tuple(
        word.rpartition("://")[2].removeprefix("unix/")
        for word in words
        if not word.startswith(("@", "/", "*"))
    )


def _list_addresses(
    config: Config, variables: Mapping[str, str]
) -> Iterator[tuple[str, str, bool]]:
    """Yield the host name and the listening address of each site, and whether the site uses TLS.

    Caddy uses TLS for sites with a host name, unless the address is for HTTP.
    """
    http_port = _find_option(config, "http_port", "80")
    has_tls = _find_option(config, "auto_https") != "off"
    for site_line, *inner_lines in _list_blocks(config, syntax.SITE):
        words_by_name = {line.name: line.words[0] for line in inner_lines if line.words}
        bind_address = words_by_name.get("bind") or _find_option(config, "default_bind", "*")
        bind_address, *site_addresses = _PLACEHOLDER_PATTERN.sub(
            lambda m: variables.get(m[1]) or m[2] or "", ",".join((bind_address, *site_line.words))
        ).split(",")
        for address_match in map(_ADDRESS_PATTERN.fullmatch, site_addresses):
            if address_match and address_match[0] and not site_line.directive.depth:
                is_http = address_match["scheme"] == "http" or address_match["port"] in (
                    "80",
                    http_port,
                )
                port = address_match["port"] or (http_port if is_http else "443")
                is_https = (
                    address_match["scheme"] == "https" or port == "443" or "tls" in words_by_name
                )
                uses_tls = not is_http and (is_https or (has_tls and address_match["name"] != ""))
                yield address_match["name"], f"{bind_address}:{port}", uses_tls


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    """Return edits of the options in the Caddyfile, and of Go's environment variables in the unit."""
    settings = [
        EnvironmentSetting("gomaxprocs", "GOMAXPROCS", service.host.processors),
        EnvironmentSetting("gogc", "GOGC", 100),
    ]
    return merge_results(
        _tune_proxies(service.config, accepts_value)
        if service.role is Role.PROXY
        else AdoptionResult(),
        unit_environment.tune_variables(
            unit_environment.read_environment(service.host.tree, UNIT_NAME), settings, accepts_value
        ),
    )


def _tune_proxies(config: Config, accepts_value: ValueCheck) -> AdoptionResult:
    """Return edits of the options of all proxies, which must have the same values."""
    proxies = [
        block
        for block in _list_blocks(config, *PROXY_NAMES)
        if all(line.words[:1] == ("http",) for line in block if line.name == "transport")
    ]
    # Lines at all depths count, and lines of a file that is imported twice count once.
    lines_by_position = {
        (line.path, line.directive.name.start): replace(
            line, directive=replace(line.directive, blocks=())
        )
        for proxy in proxies
        for line in proxy[1:]
    }
    flat_config = replace(config, directives=tuple(lines_by_position.values()))
    places = [_find_option_place(config, proxy) for proxy in proxies]
    tunables = [
        Tunable(
            option.name,
            option.name,
            select_notation(option, ON_OFF),
            # The load-balancing policy is not an option of the transport.
            insertion=DirectiveInsertion(
                option.stock,
                [place[0] for place in places if option.name != "lb_policy"],
                # Without `keepalive`, Caddy 2.6 uses no timeout if the size of the pool is set.
                ("\n\t\t\tkeepalive 2m" if option.name == POOL else "") + f"\n\t\t\t{option.name} ",
            ),
            skip_reason=_explain_untuned(option.name, proxies),
        )
        for option in PROXY_OPTIONS
    ]
    result = map_directives(flat_config, tunables, accepts_value)
    added_values = {n: v for n, v in result.values.items() if not flat_config.find_all(n)}
    changed = " or ".join(f"{n} != {format_literal(v)}" for n, v in added_values.items())
    opening_edits, closing_edits = (
        [
            insert_expression([place] if changed and text else (), format_literal(text), changed)
            for place, text in place_texts
        ]
        for place_texts in ([place[:2] for place in places], [place[::2] for place in places])
    )
    return replace(result, edits=(*chain(*opening_edits), *result.edits, *chain(*closing_edits)))


def _find_option_place(config: Config, proxy: Block) -> tuple[FilePosition, str, str]:
    """Return the position for options of the transport, and the text that opens and closes missing
    blocks around these options.
    """
    line = next((line for line in proxy if line.name == "transport"), proxy[0])
    path, line_end = line.end_position
    blanks_before_brace, brace, _ = config.texts[path][line_end:].partition("{")
    has_block, has_transport = brace and not blanks_before_brace.strip(" \t"), line is not proxy[0]
    position = line_end + len(blanks_before_brace) + 1 if has_block else line_end
    opening_text = ("" if has_block else " {") + ("" if has_transport else "\n\t\ttransport http {")
    closing_text = ("" if has_transport else "\n\t\t}") + ("" if has_block else "\n\t}")
    return (path, position), opening_text, closing_text


def _explain_untuned(option_name: str, proxies: Sequence[Block]) -> str:
    """Return why an option of the proxies is not tuned, or an empty string."""
    names_by_proxy = [{line.name for line in proxy[1:]} for proxy in proxies]
    proxy_count = sum(option_name in proxy_names for proxy_names in names_by_proxy)
    all_names = set[str]().union(*names_by_proxy)
    applies_by_reason = {
        "no proxy uses HTTP": not proxies,
        "an `import` in a proxy may set it": "import" in all_names,
        f"only some proxies set `{option_name}`": 0 < proxy_count < len(proxies),
        "its default depends on other options in the file": option_name == POOL
        and not proxy_count
        and any(option.startswith("keepalive") for option in all_names),
    }
    return next((skip_reason for skip_reason, applies in applies_by_reason.items() if applies), "")


VISIBLE_DIRECTIVES = VisibleDirectives(
    syntax.parse_directives,
    frozenset((*(option.name for option in PROXY_OPTIONS), "keepalive", syntax.OPTIONS)),
    # Blocks that are not listed, such as `header` and `map`, contain names of the site, not directives.
    blocks=frozenset(
        (
            syntax.OPTIONS,
            syntax.SITE,
            syntax.SNIPPET,
            "route",
            "handle",
            "handle_path",
            "handle_errors",
            "php_fastcgi",
            "transport",
            *PROXY_NAMES,
        )
    ),
    reads=frozenset((syntax.OPTIONS,)),
    visible_variables=re.compile("GOMAXPROCS|GOGC"),
)

ADOPTION = Adoption(
    title="Caddy",
    units=(UNIT_NAME,),
    other_units=("caddy-api.service",),
    paths=("etc/caddy", "etc/default/caddy", *unit_files.list_unit_paths(UNIT_NAME)),
    version_script=(
        f"runs {UNIT_NAME} && STEPPATH=/tmp caddy version | sed -n 's,^v*\\([0-9][^ ]*\\).*,Caddy \\1,p'"
    ),
    find_services=find_services,
    visible=VISIBLE_DIRECTIVES,
    tune_parameters=tune_parameters,
    # The Caddyfile cannot set environment variables of the Go runtime, such as GOMAXPROCS.
    explain_hidden=partial(explain_unread, may_set=lambda name, _: not name.startswith("go")),
)
