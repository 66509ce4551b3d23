"""Apache's configuration files: their syntax, which directives take effect, what they say of the stack.

A directive is a line, sections are in angle brackets. What a section has depends on the modules that
are loaded and on the variables that files define.
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
SERVERS = {"event": 16, "worker": 16, "prefork": 256}  # ServerLimit unless it is set
# A line goes on where a backslash ends it, in a comment too.
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
    """Every directive, a section's own before what is in it. Raises Unreadable."""
    parsed: list[Directive] = []
    sections: list[tuple[str, ...]] = []
    for line in tokens(text, _LINE, "it is no line"):
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
            raise unreadable(text, words[0].start, f"<{words[0].text}> closes nothing")
    if sections:
        raise unreadable(text, len(text), f"<{sections[-1][0]}> is not closed")
    return tuple(parsed)


def _without_brackets(text: str, words: list[Word]) -> list[Word]:
    """The words between ``<`` and the ``>`` that ends the line."""
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
    """The directives that take effect with the modules that are loaded and the variables defined."""
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
    """Whether a section takes effect: not if its module is not loaded or its variable not defined."""
    kind, name = section[0].lower(), "".join(section[1:2])
    word = name.removeprefix("!")
    if kind == "ifdefine":
        return (word in defined) != name.startswith("!")
    if kind == "ifmodule" and modules:
        return (_module(word) in {*modules, *BUILT_IN}) != name.startswith("!")
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


def _loaded(config: Config) -> set[str]:
    """The loaded modules, by the part that all their names share."""
    return {_module(placed.words[0]) for placed in config.called("LoadModule") if placed.words}


def _module(name: str) -> str:
    """`event` for `mpm_event_module` and `event.c`, `proxy` for `proxy_module` and `mod_proxy.c`."""
    match = _MODULE.fullmatch(name)
    return match[1] if match else name


def mpm(config: Config) -> str:
    """`event`, `worker` or `prefork`, by the module that is loaded."""
    return next((name for name in SERVERS if name in _loaded(config)), "")


def _runs_php(config: Config) -> bool:
    """Whether Apache runs PHP itself, which takes a process for each request."""
    return mpm(config) == "prefork" and "php" in _loaded(config)


# -- the stack around it --------------------------------------------------------------------------


def find(host: RunningHost) -> Iterator[RunningService | str]:
    """What Apache is on a host, which depends on its modules."""
    if not (layout := LAYOUTS.of(host)):
        return
    config = read(host.tree, layout.main)
    to_proxy, php = _passes(config), _runs_php(config)
    if not php and (module := mpm(config)) != "event":
        yield f"Apache with mpm_{module or 'unknown'} as it is used here is not tuned"
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
    """Where HTTP is spoken, and whether over TLS."""
    for placed in config.called("Listen"):
        sections = (" ".join(block).lower() for block in placed.directive.within if block[1:])
        encrypted = "https" in placed.words or any("ssl" in section for section in sections)
        yield (placed.words or ("",))[0], encrypted


def _passes(config: Config) -> tuple[str, ...]:
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
