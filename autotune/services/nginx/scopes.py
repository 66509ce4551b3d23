"""Scopes of nginx's directives: which servers use a port, and at which level a value applies to these
servers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from autotune.services.config_files import Config, PlacedDirective
from autotune.services.directives import Tunable
from autotune.strict_parsing import is_uint


@dataclass(frozen=True)
class Server:
    """A ``server`` block in ``http`` with all directives inside it, at any depth."""

    depth: int
    directives: tuple[PlacedDirective, ...]

    @property
    def listens(self) -> tuple[PlacedDirective, ...]:
        """Return the server's `listen` lines for TCP. `listen` lines for HTTP/3, which uses UDP,
        are omitted.
        """
        return tuple(
            placed_directive
            for placed_directive in self.directives
            if placed_directive.name == "listen"
            and placed_directive.words
            and "quic" not in placed_directive.words
            and not placed_directive.words[0].strip("\"'").startswith("unix:")
        )

    @property
    def only_reports_status(self) -> bool:
        """True if the server serves only nginx's own status."""
        directive_names = {placed_directive.name for placed_directive in self.directives}
        serves_files = directive_names & {"root", "alias", "try_files"}
        is_proxy = any("_pass" in name for name in directive_names)
        return "stub_status" in directive_names and not serves_files and not is_proxy

    @property
    def only_redirects(self) -> bool:
        """True if the server sends every visitor to HTTPS.

        In `server`, an unconditional `return` ends each request, so the server has no site. A redirect
        under a condition, such as a header of a proxy, does not count without it.
        """
        if any("_pass" in placed.name for placed in self.directives):
            return False
        redirects = [placed for placed in self.directives if _leads_to_https(placed)]
        ends_requests = any(p.name == "return" and p.block == "server" for p in self.directives)
        return any(ends_requests or _covers_requests(placed) for placed in redirects)

    @property
    def site_listens(self) -> tuple[PlacedDirective, ...]:
        """Return the `listen` lines on which visitors get the site. Lines for the PROXY protocol and
        lines that only redirect to TLS are omitted if other lines remain.
        """
        listens = [p for p in self.listens if "proxy_protocol" not in p.words]
        encrypted = [placed for placed in listens if "ssl" in placed.words]
        redirects_plain = any(
            _leads_to_https(p) and _PLAIN_CONDITION_PATTERN.search(" ".join(p.directive.blocks[-1]))
            for p in self.directives
            if p.block == "if"
        )
        return tuple((encrypted if redirects_plain else []) or listens or self.listens)

    def has_port(self, port: int) -> bool:
        """True if the server listens on a TCP port. A server without `listen` uses port 80."""
        addresses = [normalize_address(placed.words[0]) for placed in self.listens]
        has_listen = any(placed.name == "listen" for placed in self.directives)
        ports = [address.rpartition(":")[2] for address in addresses]
        return any(_includes_port(text, port) for text in (ports if has_listen else ["80"]))


_PLAIN_CONDITION_PATTERN = re.compile(r"\$scheme\b|\$https\b")
_EVERY_PATH_PATTERN = re.compile(r"\^?/?\(?(\.\*)?\)?\$?")
_PORT_PATTERN = re.compile(r"[0-9]+(-[0-9]+)?")


def _leads_to_https(placed_directive: PlacedDirective) -> bool:
    """True if a directive redirects to HTTPS."""
    target_words = [word.strip("\"'") for word in placed_directive.words[-2:]]
    is_redirect = placed_directive.name in ("return", "rewrite")
    return is_redirect and any(word.startswith("https://") for word in target_words)


def _covers_requests(redirect: PlacedDirective) -> bool:
    """True if a redirect applies to every request, except for requests in other locations."""
    if redirect.name == "rewrite" and not _EVERY_PATH_PATTERN.fullmatch(redirect.words[0]):
        return False
    return redirect.block == "server" or redirect.directive.blocks[-1] == ("location", "/")


def _includes_port(text: str, port: int) -> bool:
    first, _, last = text.partition("-")
    return is_uint(first) and is_uint(last or first) and int(first) <= port <= int(last or first)


def select_http_directives(config: Config) -> Config:
    """Return the configuration without protocols other than HTTP, such as ``stream`` and
    ``mail``.
    """
    http_directives = (
        placed
        for placed in config.directives
        if not placed.directive.blocks or placed.directive.blocks[0][0] in ("http", "events")
    )
    return replace(config, directives=tuple(http_directives))


def list_servers(config: Config) -> tuple[Server, ...]:
    """Return the ``server`` blocks in the order of the files."""
    servers: list[tuple[int, list[PlacedDirective]]] = []
    for placed_directive in config.directives:
        depth = placed_directive.directive.depth
        if placed_directive.name == "server" and placed_directive.block == "http":
            servers.append((depth, []))
        elif servers and depth > servers[-1][0] and _is_in_server(placed_directive, servers[-1][0]):
            servers[-1][1].append(placed_directive)
    return tuple(Server(depth, tuple(inner_directives)) for depth, inner_directives in servers)


def _is_in_server(placed_directive: PlacedDirective, depth: int) -> bool:
    return placed_directive.directive.blocks[depth][0] == "server"


def list_addresses(config: Config) -> Iterator[tuple[str, bool]]:
    """Yield the address of each site, and whether the address uses TLS. Default servers come first."""
    server_blocks = list_servers(config)
    own_servers = [server for server in server_blocks if not server.only_reports_status]
    main_servers = [server for server in own_servers if not server.only_redirects]
    sites = main_servers or own_servers or [*server_blocks]
    if any(not any(p.name == "listen" for p in server.directives) for server in sites):
        yield "*:80", False  # nginx's default if root starts nginx
    listen_word_lists = [placed.words for server in sites for placed in server.site_listens]
    for listen_words in sorted(
        listen_word_lists, key=lambda listen_words: "default_server" not in listen_words
    ):
        # The first port of a range represents the range.
        yield re.sub(r"-[0-9]+$", "", normalize_address(listen_words[0])), "ssl" in listen_words


def normalize_address(written_address: str) -> str:
    """Return an address in canonical form: `80`, `*:80` and `0.0.0.0:80` are equal."""
    written_address = written_address.strip("\"'")
    host, colon, port = written_address.rpartition(":")
    is_port = bool(colon) or _PORT_PATTERN.fullmatch(written_address)
    if written_address.endswith("]") or not is_port:
        return f"{written_address}:80"
    return f"{'*' if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104  # only compared, never bound


def is_bound_alone(address: str, addresses: Collection[str]) -> bool:
    """True if nginx binds ``address`` itself. If a wildcard address has the same port, nginx binds only
    the wildcard address.
    """
    host, _, port = address.rpartition(":")
    wildcard, wildcard_v6 = f"*:{port}", f"[::]:{port}"
    if address in (wildcard, wildcard_v6):
        return True
    if host.startswith("["):
        return wildcard_v6 not in addresses
    is_host_name = not is_uint(host.replace(".", ""))
    return wildcard not in addresses and not (is_host_name and wildcard_v6 in addresses)


def limit_to_port(tunable: Tunable, config: Config, port: int) -> Tunable:
    """Return the tunable with only those lines that apply to the servers on a port.

    A value in a ``server`` block overrides the value in ``http``, and a value in a ``location``
    overrides both.
    """
    server_blocks = [server for server in list_servers(config) if server.has_port(port)]
    directive_name = tunable.directive
    http_lines = [line for line in config.find_all(directive_name) if line.block == "http"]
    lines_by_server = [
        [line for line in server.directives if line.name == directive_name]
        for server in server_blocks
    ]
    server_lines = [[line for line in lines if line.block == "server"] for lines in lines_by_server]
    deeper_lines = [line for lines in lines_by_server for line in lines if line.block != "server"]
    is_in_all_servers = all(server_lines) and bool(server_lines)
    reason = ""
    if http_lines and any(server_lines):
        reason = f"a `server` on port {port} overrides `{directive_name}`"
    elif deeper_lines and (http_lines or any(server_lines)):
        reason = f"a `{deeper_lines[0].block}` overrides `{directive_name}`"
    elif any(server_lines) and not is_in_all_servers:
        reason = f"only some servers on port {port} set `{directive_name}`"
    elif deeper_lines and not all(map(_covers_site, deeper_lines)):
        reason = f"only a `{deeper_lines[0].block}` sets `{directive_name}`"
    lines_in_servers: list[PlacedDirective] = [line for lines in server_lines for line in lines]
    effective_lines = lines_in_servers or http_lines or deeper_lines
    effective_line_ids = {id(line) for line in effective_lines}
    earlier_filter = tunable.is_considered
    if effective_lines and not reason and not any(map(earlier_filter, effective_lines)):
        reason = (
            f"`{directive_name} {' '.join(effective_lines[0].words)}` is not a valid baseline value"
        )
    return replace(
        tunable,
        skip_reason=tunable.skip_reason or reason,
        is_considered=lambda placed: id(placed) in effective_line_ids and earlier_filter(placed),
    )


def _covers_site(placed_directive: PlacedDirective) -> bool:
    """True if a location serves the whole site, or the whole application of the site."""
    if placed_directive.name.startswith("fastcgi_"):
        return placed_directive.block == "location"
    return placed_directive.directive.blocks[-1] == ("location", "/")
