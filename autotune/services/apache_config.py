"""Read Apache's configuration files: their syntax, effective directives, and the servers behind
Apache.

Each line contains one directive, and angle brackets enclose the start and end of a section. The
loaded modules and defined variables determine which sections apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from posixpath import dirname

from autotune.services.adoption import (
    DistributionLayout,
    DistributionLayouts,
    RunningHost,
    RunningService,
    select_hostname,
    with_http_port,
)
from autotune.services.apache_conditions import (
    ANY_DIRECTIVE,
    CONDITIONAL_SECTIONS,
    ConditionReader,
    shorten_module_name,
)
from autotune.services.config_files import (
    Config,
    Directive,
    FileTree,
    PlacedDirective,
    Word,
    build_syntax_error,
    read_config,
    tokenize,
)
from autotune.services.unit_environment import (
    expand_command,
    find_option_values,
    read_environment,
)

LAYOUTS = DistributionLayouts(
    (
        DistributionLayout("Debian, Ubuntu", "apache2.service", "/etc/apache2/apache2.conf"),
        DistributionLayout("Fedora, RHEL", "httpd.service", "/etc/httpd/conf/httpd.conf"),
        DistributionLayout("SUSE", "apache2.service", "/etc/apache2/httpd.conf"),
    )
)
# The default of ServerLimit for each multi-processing module.
DEFAULT_SERVER_LIMITS = {"event": 16, "worker": 16, "prefork": 256}
# A backslash at the end of a line continues the line, even in a comment.
_LINE_PATTERN = re.compile(r"(?:\\\r?\n|[^\n])*(?:\n|$)")
_WORD_PATTERN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:(?!\\\r?\n)\S)+""", re.DOTALL)
_SERVER_ROOT_PATTERN = re.compile(r"""(?mi)^[ \t]*ServerRoot[ \t]+["']?([^"'\s]+)""")
_ASSIGNMENT_PATTERN = re.compile(
    r"""(?m)(?:^|;)[^\S\n]*(?:export[^\S\n]+)?(\w+)=("[^"\n$]*"|'[^'\n]*'|[^"'\s$;]*)"""
)
_EXPORT_PATTERN = re.compile(r"(?m)(?:^|;)[^\S\n]*export[^\S\n]+(\w+)")
_ARGUMENTS_VARIABLE = (
    "APACHE_ARGUMENTS"  # apachectl reads this variable, even if it is not exported
)
_DEFINE_PATTERN = re.compile(r"(?<!\S)-D\s*(\w+)")
_DIRECTIVE_OPTION_PATTERN = re.compile(r"(?<!\S)-[cC]")
_PHP_MODULE_PATTERN = re.compile("php7?")  # only before PHP 8, the name contains the version
# Directive names from earlier releases, which Apache still accepts.
_OLD_NAMES = {"maxclients": "MaxRequestWorkers", "maxrequestsperchild": "MaxConnectionsPerChild"}
# Directives with which a virtual host serves an application.
_APPLICATION_PATTERN = re.compile(r"proxypass|wsgiscriptalias|passenger|sethandler proxy:|balancer")
# A redirect of every path to HTTPS.
_REDIRECT_PATTERN = re.compile(
    r"(?:redirect(?:permanent|temp)?(?: (?:permanent|temp|seeother|3\d\d))? /|"
    r"redirectmatch(?: (?:permanent|temp|3\d\d))? \^?/?\(?(?:\.\*)?\)?\$?|"
    r"rewriterule \^?/?\(?(?:\.\*)?\)?\$?) https://"
)
APACHE_PROGRAMS = ("apache2", "httpd")
PROXY_DIRECTIVES = ("ProxyPass", "BalancerMember", "ProxyPassMatch")


def parse_directives(file_text: str) -> tuple[Directive, ...]:
    """Return every directive, with each section before the directives inside it. Raises
    ConfigSyntaxError.
    """
    directives: list[Directive] = []
    sections: list[tuple[str, ...]] = []
    for line in tokenize(file_text, _LINE_PATTERN, "invalid line"):
        words = [
            Word(word[0], word.start()) for word in _WORD_PATTERN.finditer(file_text, *line.span())
        ]
        if not words or words[0].text.startswith("#"):
            continue
        is_section = words[0].text.startswith("<")
        if is_section:
            words = _strip_brackets(file_text, words)
        if not (is_section and words[0].text.startswith("/")):
            name_word = Word(_OLD_NAMES.get(words[0].text.lower(), words[0].text), words[0].start)
            directives.append(Directive(name_word, tuple(words[1:]), tuple(sections)))
            sections += [tuple(word.text for word in words)] if is_section else []
        elif not sections or sections.pop()[0].lower() != words[0].text[1:].lower():
            raise build_syntax_error(
                file_text, words[0].start, f"<{words[0].text}> closes no section"
            )
    if sections:
        raise build_syntax_error(file_text, len(file_text), f"<{sections[-1][0]}> is not closed")
    return tuple(directives)


def _strip_brackets(file_text: str, section_words: list[Word]) -> list[Word]:
    """Return the words between ``<`` and the ``>`` at the end of a line."""
    first_word, last_word = section_words[0], section_words[-1]
    if not last_word.text.endswith(">"):
        raise build_syntax_error(file_text, first_word.start, f"{first_word.text} lacks its `>`")
    section_words[-1] = Word(last_word.text[:-1], last_word.start)
    section_words[0] = Word(section_words[0].text[1:], first_word.start + 1)
    inner_words = [word for word in section_words if word.text]
    if not inner_words:
        raise build_syntax_error(file_text, first_word.start, "a section without a name")
    return inner_words


def read_host_config(
    file_tree: FileTree,
    main_file: str,
    command: Sequence[str] = (),
    unit_environment: Mapping[str, str] | None = None,
) -> Config:
    """Return the directives that take effect, given the loaded modules and defined variables.

    ``command`` contains the words of the command line that starts Apache, and ``unit_environment`` the
    variables of its unit. Without `ServerRoot`, relative paths start at the main file's directory, as
    on Debian.
    """
    root_match = _SERVER_ROOT_PATTERN.search(file_tree.read_text_or_empty(main_file))
    default_root = root_match[1] if root_match else dirname(main_file)
    server_root = [default_root, *find_option_values(command, "-d")][-1]
    script = file_tree.read_text_or_empty(f"{dirname(main_file)}/envvars")
    variables = {name: value.strip("\"'") for name, value in _ASSIGNMENT_PATTERN.findall(script)}
    exported_names = _EXPORT_PATTERN.findall(script)
    exported = {name: value for name, value in variables.items() if name in exported_names}
    start_options = " ".join((*command, variables.get(_ARGUMENTS_VARIABLE, "")))
    reader = ConditionReader(
        file_tree,
        server_root,
        {**(unit_environment or {}), **exported},
        dict.fromkeys(_DEFINE_PATTERN.findall(start_options), ""),
    )
    config = read_config(
        file_tree, main_file, parse_directives, reader.parse_include, applies=reader.applies
    )
    uncertain_reasons = dict(reader.uncertain)
    if _DIRECTIVE_OPTION_PATTERN.search(start_options):
        uncertain_reasons[ANY_DIRECTIVE] = "the command that starts Apache contains directives"
    return replace(config, ignores_case=True, uncertain=uncertain_reasons)


def _flatten_conditions(config: Config) -> Config:
    """Return the configuration with directives moved out of conditional sections.

    The last occurrence of a directive takes effect, whether inside or outside of conditional
    sections.
    """

    def strip_conditions(placed_directive: PlacedDirective) -> PlacedDirective:
        blocks = placed_directive.directive.blocks
        outer_blocks = tuple(
            block for block in blocks if block[0].lower() not in CONDITIONAL_SECTIONS
        )
        return replace(
            placed_directive, directive=replace(placed_directive.directive, blocks=outer_blocks)
        )

    return replace(config, directives=tuple(map(strip_conditions, config.directives)))


def _list_modules(config: Config) -> set[str]:
    return {
        shorten_module_name(placed_directive.words[0])
        for placed_directive in config.find_all("LoadModule")
        if placed_directive.words
    }


def find_mpm(config: Config) -> str:
    """Return `event`, `worker` or `prefork`, depending on the loaded module."""
    return next((name for name in DEFAULT_SERVER_LIMITS if name in _list_modules(config)), "")


def _runs_php(config: Config) -> bool:
    """True if Apache itself runs PHP, which occupies one process per request."""
    runs_module = any(map(_PHP_MODULE_PATTERN.fullmatch, _list_modules(config)))
    return find_mpm(config) == "prefork" and runs_module


# -- connected servers --------------------------------------------------------------------------


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    """Yield Apache as a running service, or the reason why Apache is not tuned. The loaded modules
    decide whether Apache is the service `apache` or `apache-mod-php`.
    """
    if not (layout := LAYOUTS.select_for_host(host)):
        return
    command = expand_command(host.tree, layout.unit)
    main_file = [layout.main_file, *find_option_values(command, "-f")][-1]
    environment = read_environment(host.tree, layout.unit)
    config = read_host_config(host.tree, main_file, command, environment.values)
    backends, runs_php = _list_backends(config), _runs_php(config)
    if not runs_php and (mpm_name := find_mpm(config)) != "event":
        yield f"Apache with mpm_{mpm_name or 'unknown'} is not tuned in this role"
        return
    server_names = (
        word.partition(":")[0] for placed in config.find_all("ServerName") for word in placed.words
    )
    running_service = RunningService(
        host=host,
        key="apache-mod-php" if runs_php else "apache",
        config=_flatten_conditions(config),
        tier_kind="lb" if backends and not runs_php else "web",
        backends=backends,
        gateway_protocol="fastcgi" if not runs_php and _uses_fastcgi(config) else "",
        gateway_addresses=tuple(_list_fastcgi_addresses(config)),
        unit=layout.unit_unless_debian if main_file == layout.main_file else layout.unit,
        hostname=select_hostname(server_names),
    )
    yield with_http_port(running_service, "Apache", _list_http_addresses(config), APACHE_PROGRAMS)


def _list_http_addresses(config: Config) -> Iterator[tuple[str, bool]]:
    """Yield each HTTP address on which Apache listens, and whether the address uses TLS."""
    encrypted_blocks = {
        block
        for placed_directive in config.find_all("SSLEngine")
        for block in placed_directive.directive.blocks
        if block[0].lower() == "virtualhost"
        and placed_directive.words[:1]
        and placed_directive.words[0].lower() == "on"
    }
    encrypted_hosts = {word.rpartition(":")[2] for block in encrypted_blocks for word in block[1:]}
    listens = [(p, (p.words or ("",))[0].strip("\"'")) for p in config.find_all("Listen")]
    siteless_ports = _find_siteless_ports(config)
    has_site = [address.rpartition(":")[2] not in siteless_ports for _, address in listens]
    for (placed_directive, address), is_site in zip(listens, has_site, strict=True):
        if any(has_site) and not is_site:
            continue
        port = address.rpartition(":")[2]
        listen_protocol = placed_directive.words[1].lower() if placed_directive.words[1:] else ""
        section_texts = (
            " ".join(block).lower() for block in placed_directive.directive.blocks if block[1:]
        )
        is_encrypted = any("ssl" in section_text for section_text in section_texts) or port in {
            "443",
            *encrypted_hosts,
        }
        yield address, listen_protocol == "https" or (is_encrypted and listen_protocol != "http")


def _find_siteless_ports(config: Config) -> set[str]:
    """Return the ports whose virtual hosts only redirect to HTTPS, or only report Apache's status."""
    serving_ports, siteless_ports = set[str](), set[str]()
    for addresses, lines in _list_virtual_hosts(config):
        traits = _list_site_traits(lines)
        only_status = "status" in traits and "files" not in traits
        redirects = "redirect" in traits and "proxy header" not in traits
        is_siteless = "application" not in traits and (only_status or redirects)
        ports = {address.strip("\"'").rpartition(":")[2] for address in addresses}
        (siteless_ports if is_siteless else serving_ports).update(ports)
    return siteless_ports - serving_ports


def _list_virtual_hosts(config: Config) -> list[tuple[tuple[str, ...], list[PlacedDirective]]]:
    """Return the addresses and the directives of each virtual host."""
    virtual_hosts: list[tuple[tuple[str, ...], list[PlacedDirective]]] = []
    for placed_directive in config.directives:
        if placed_directive.name.lower() == "virtualhost":
            virtual_hosts.append((placed_directive.words, []))
        elif virtual_hosts and any(
            block[0].lower() == "virtualhost" for block in placed_directive.directive.blocks
        ):
            virtual_hosts[-1][1].append(placed_directive)
    return virtual_hosts


def _list_site_traits(lines: Sequence[PlacedDirective]) -> set[str]:
    """Return what the directives in a virtual host do."""
    texts = [" ".join((line.name.lower(), *line.words)).replace('"', "") for line in lines]
    traits = {
        "application": any(_APPLICATION_PATTERN.match(text) for text in texts),
        "files": any(text.startswith("documentroot") for text in texts),
        "status": "sethandler server-status" in texts,
        "redirect": any(_REDIRECT_PATTERN.match(text) for text in texts),
        "proxy header": any("x-forwarded" in text.lower() for text in texts),
    }
    return {trait for trait, is_present in traits.items() if is_present}


def _list_backends(config: Config) -> tuple[str, ...]:
    """Return ``host:port`` of every web server to which the proxy forwards requests."""
    proxy_words = _list_words(config, *PROXY_DIRECTIVES)
    urls = (word.strip("\"'").partition("://") for word in proxy_words)
    schemes = ("http", "https")
    return tuple(
        dict.fromkeys(
            url_location.partition("/")[0]
            for url_scheme, separator, url_location in urls
            if separator and url_scheme in schemes
        )
    )


def _uses_fastcgi(config: Config) -> bool:
    """True if some requests are forwarded to an application server through FastCGI.

    The function checks proxy directives (mod_proxy_fcgi) and the handlers that distributions ship for
    PHP-FPM.
    """
    return any("fcgi://" in word for word in _list_words(config, "SetHandler", *PROXY_DIRECTIVES))


def _list_fastcgi_addresses(config: Config) -> Iterator[str]:
    """Yield the sockets and addresses to which handlers and proxy directives forward requests
    through FastCGI.
    """
    for word in _list_words(config, "SetHandler", *PROXY_DIRECTIVES):
        socket, fcgi_prefix, address = word.strip("\"'").removeprefix("proxy:").partition("fcgi://")
        if fcgi_prefix:
            yield socket.rstrip("|") or address.partition("/")[0]


def _list_words(config: Config, *directives: str) -> Iterator[str]:
    return (
        word for name in directives for placed in config.find_all(name) for word in placed.words
    )
