"""Parse Apache's configuration files: syntax, effective directives and the connected stack.

A directive is one line, and sections are in angle brackets. The content of a section depends on
loaded modules and defined variables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from posixpath import dirname, join

from autotune.services.adoption import (
    Layout,
    Layouts,
    RunningHost,
    RunningService,
    at_http_port,
    site_name,
)
from autotune.services.config_files import (
    Config,
    Directive,
    PlacedDirective,
    Tree,
    Word,
    gather,
    tokens,
    unreadable,
)

LAYOUTS = Layouts((
    Layout("Debian, Ubuntu", "apache2.service", "/etc/apache2/apache2.conf"),
    Layout("Fedora, RHEL", "httpd.service", "/etc/httpd/conf/httpd.conf"),
    Layout("SUSE", "apache2.service", "/etc/apache2/httpd.conf"),
))  # fmt: skip
SERVERS = {"event": 16, "worker": 16, "prefork": 256}  # default of ServerLimit
# A backslash at the end continues a line, even in a comment.
_LINE = re.compile(r"(?:\\\r?\n|[^\n])*(?:\n|$)")
_WORD = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:(?!\\\r?\n)\S)+""", re.DOTALL)
_ROOT = re.compile(r"""(?mi)^[ \t]*ServerRoot[ \t]+["']?([^"'\s]+)""")
_MODULE = re.compile(r"(?:mod_)?(?:mpm_)?(\w+?)(?:_module|\.c)?")
_EXPORTED = re.compile(r"""(?m)^\s*export\s+(\w+)=["']?([^"'\s$]*)""")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SWITCHES = re.compile(r"-D\s*(\w+)")
CONDITIONS = ("ifmodule", "ifdefine", "ifversion", "iffile")
PASSING = ("ProxyPass", "BalancerMember", "ProxyPassMatch")
BUILT_IN = ("core", "so", "http", "log_config", "logio", "unixd", "version", "watchdog")


def directives(text: str) -> tuple[Directive, ...]:
    """Return every directive, sections before their content. Raises Unreadable."""
    parsed: list[Directive] = []
    sections: list[tuple[str, ...]] = []
    for line in tokens(text, _LINE, "invalid line"):
        words = [Word(word[0], word.start()) for word in _WORD.finditer(text, *line.span())]
        if not words or words[0].text.startswith("#"):
            continue
        is_section = words[0].text.startswith("<")
        if is_section:
            words = _without_brackets(text, words)
        if not (is_section and words[0].text.startswith("/")):
            parsed.append(Directive(words[0], tuple(words[1:]), tuple(sections)))
            sections += [tuple(word.text for word in words)] if is_section else []
        elif not sections or sections.pop()[0].lower() != words[0].text[1:].lower():
            raise unreadable(text, words[0].start, f"<{words[0].text}> closes no section")
    if sections:
        raise unreadable(text, len(text), f"<{sections[-1][0]}> is not closed")
    return tuple(parsed)


def _without_brackets(text: str, words: list[Word]) -> list[Word]:
    """Return the words between ``<`` and the ``>`` at the end of the line."""
    first, last = words[0], words[-1]
    if not last.text.endswith(">"):
        raise unreadable(text, first.start, f"{first.text} lacks its `>`")
    words[-1] = Word(last.text[:-1], last.start)
    words[0] = Word(words[0].text[1:], first.start + 1)
    inner = [word for word in words if word.text]
    if not inner:
        raise unreadable(text, first.start, "a section without a name")
    return inner


def read(tree: Tree, main: str = LAYOUTS[0].main) -> Config:
    """Return the directives that take effect with the loaded modules and defined variables."""
    match = _ROOT.search(tree.content(main))
    root = match[1] if match else ""
    variables = dict(_EXPORTED.findall(tree.content(f"{dirname(main)}/envvars")))
    config = gather(tree, main, directives, lambda directive: _included(directive, root, variables))
    config = replace(config, any_case=True)
    defined = {*variables, *_SWITCHES.findall(variables.get("APACHE_ARGUMENTS", ""))}
    modules = _loaded(config)
    return replace(config, directives=tuple(
        placed for placed in config.directives
        if all(_holds(section, defined, modules) for section in placed.directive.within)))  # fmt: skip


def _holds(section: tuple[str, ...], defined: Collection[str], modules: Collection[str]) -> bool:
    """True if a section takes effect, because its module is loaded or its variable defined."""
    kind, name = section[0].lower(), "".join(section[1:2])
    word = name.removeprefix("!")
    if kind == "ifdefine":
        return (word in defined) != name.startswith("!")
    if kind == "ifmodule" and modules:
        return (_module(word) in {*modules, *BUILT_IN}) != name.startswith("!")
    return True


def _bare(config: Config) -> Config:
    """Return the configuration with directives moved out of conditional sections.

    The last occurrence takes effect in both cases.
    """

    def outside(placed: PlacedDirective) -> PlacedDirective:
        blocks = placed.directive.within
        within = tuple(block for block in blocks if block[0].lower() not in CONDITIONS)
        return replace(placed, directive=replace(placed.directive, within=within))

    return replace(config, directives=tuple(map(outside, config.directives)))


def _included(directive: Directive, root: str, variables: dict[str, str]) -> str | None:
    """Return the path that a directive includes. Adds variables that it defines to ``variables``."""
    name = directive.name.text.lower()
    words = [word.text.strip("\"'") for word in directive.arguments]
    if name == "define" and words:
        variables[words[0]] = " ".join(words[1:])
    if name not in ("include", "includeoptional") or len(words) != 1:
        return None
    return join(root, _VARIABLE.sub(lambda it: variables.get(it[1], it[0]), words[0]))


def _loaded(config: Config) -> set[str]:
    """Return the short names of the loaded modules."""
    return {_module(placed.words[0]) for placed in config.called("LoadModule") if placed.words}


def _module(name: str) -> str:
    """Return `event` for `mpm_event_module` and `event.c`, `proxy` for `mod_proxy.c`."""
    match = _MODULE.fullmatch(name)
    return match[1] if match else name


def mpm(config: Config) -> str:
    """Return `event`, `worker` or `prefork` according to the loaded module."""
    return next((name for name in SERVERS if name in _loaded(config)), "")


def _runs_php(config: Config) -> bool:
    """True if Apache runs PHP itself, which occupies a process per request."""
    return mpm(config) == "prefork" and "php" in _loaded(config)


# -- connected servers --------------------------------------------------------------------------


def find(host: RunningHost) -> Iterator[RunningService | str]:
    """Yield the Apache services of a host, depending on the loaded modules."""
    if not (layout := LAYOUTS.of(host)):
        return
    config = read(host.tree, layout.main)
    to_proxy, php = _passes(config), _runs_php(config)
    if not php and (module := mpm(config)) != "event":
        yield f"Apache with mpm_{module or 'unknown'} is not tuned in this role"
        return
    names = (word.partition(":")[0] for p in config.called("ServerName") for word in p.words)
    running = RunningService(
        host=host,
        key="apache-mod-php" if php else "apache",
        config=_bare(config),
        kind="lb" if to_proxy and not php else "web",
        behind=to_proxy,
        gateway="fastcgi" if not php and _asks_fastcgi(config) else "",
        unit=layout.own_unit,
        site=site_name(names),
    )
    yield at_http_port(running, "Apache", _listens(config))


def _listens(config: Config) -> Iterator[tuple[str, bool]]:
    """Yield each HTTP address, and true if it uses TLS."""
    for placed in config.called("Listen"):
        sections = (" ".join(block).lower() for block in placed.directive.within if block[1:])
        encrypted = "https" in placed.words or any("ssl" in section for section in sections)
        yield (placed.words or ("",))[0], encrypted


def _passes(config: Config) -> tuple[str, ...]:
    """Return ``host:port`` of every web server behind the proxy."""
    words = _words(config, *PASSING)
    urls = (word.strip("\"'").partition("://") for word in words)
    schemes = ("http", "https")
    return tuple(dict.fromkeys(p.partition("/")[0] for s, mark, p in urls if mark and s in schemes))


def _asks_fastcgi(config: Config) -> bool:
    """True if some requests go to an application server through FastCGI.

    This covers distributions' handlers for PHP-FPM and proxy directives (mod_proxy_fcgi).
    """
    return any("fcgi://" in word for word in _words(config, "SetHandler", *PASSING))


def _words(config: Config, *directives: str) -> Iterator[str]:
    return (word for name in directives for placed in config.called(name) for word in placed.words)
