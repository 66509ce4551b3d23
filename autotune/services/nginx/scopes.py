"""Scopes of nginx's directives: which servers use a port, and at which level a value applies to these
servers.
"""

from __future__ import annotations

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
            and not placed_directive.words[0].startswith("unix:")
        )

    @property
    def only_reports_status(self) -> bool:
        """True if the server serves only nginx's own status."""
        directive_names = {placed_directive.name for placed_directive in self.directives}
        serves_files = directive_names & {"root", "alias", "try_files"}
        is_proxy = any("_pass" in name for name in directive_names)
        return "stub_status" in directive_names and not serves_files and not is_proxy

    def has_port(self, port: int) -> bool:
        """True if the server listens on a TCP port. A server without `listen` uses port 80."""
        addresses = [normalize_address(placed.words[0]) for placed in self.listens]
        has_listen = any(placed.name == "listen" for placed in self.directives)
        ports = [address.rpartition(":")[2] for address in addresses]
        return str(port) in (ports if has_listen else ["80"])


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
    sites = [server for server in server_blocks if not server.only_reports_status] or server_blocks
    if any(not any(p.name == "listen" for p in server.directives) for server in sites):
        yield "*:80", False  # nginx's default if root starts nginx
    listen_word_lists = [placed.words for server in sites for placed in server.listens]
    for listen_words in sorted(
        listen_word_lists, key=lambda listen_words: "default_server" not in listen_words
    ):
        yield normalize_address(listen_words[0]), "ssl" in listen_words


def normalize_address(written_address: str) -> str:
    """Return an address in canonical form: `80`, `*:80` and `0.0.0.0:80` are equal."""
    host, colon, port = written_address.rpartition(":")
    if written_address.endswith("]") or (not colon and not written_address.isdigit()):
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
