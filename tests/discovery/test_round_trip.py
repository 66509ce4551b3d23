"""Files made into templates, and given back byte for byte at the values they had."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.deploy.templates import render_text
from autotune.services.apache_config import parse_directives as apache_directives
from autotune.services.config_files import ConfigSyntaxError, Directive, DirectiveParser, Word
from autotune.services.directives import render_edits
from autotune.services.nginx import syntax as nginx
from autotune.services.php_fpm import syntax as ini

STYLES = Path(__file__).parent / "styles"
NGINX = {name: name for name in (
    "worker_processes", "worker_connections", "keepalive_timeout", "keepalive_requests",
)}  # fmt: skip
APACHE = {name: name for name in (
    "ServerLimit", "ThreadsPerChild", "MaxRequestWorkers", "StartServers", "KeepAliveTimeout",
    "MinSpareServers", "MaxSpareServers", "MinSpareThreads", "MaxSpareThreads", "KeepAlive",
    "MaxConnectionsPerChild", "MaxKeepAliveRequests", "ThreadLimit",
)}  # fmt: skip
FPM = {"pm.max_children": "max_children", "pm.start_servers": "start_servers", "pm": "pm",
       "pm.min_spare_servers": "min_spare_servers", "pm.max_spare_servers": "max_spare_servers",
       "opcache.memory_consumption": "opcache"}  # fmt: skip


NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True)
class Adopted:
    """``baseline`` has the value each variable of the ``template`` stands for, as it was written."""

    template: str
    baseline: Mapping[str, str]


def adopt(text: str, directives: Iterable[Directive], variables: Mapping[str, str]) -> Adopted:
    """Put a variable where a directive of ``variables`` (its name → the variable's) has a number.

    Of a directive that is there more than once the outermost counts, wherever it has the same value
    there; with several values it stays as it is: no single one is the baseline.
    """
    places: dict[str, list[Word]] = {}
    depths: dict[str, int] = {}
    for directive in directives:
        variable = variables.get(directive.name.text)
        if variable is None or len(directive.arguments) != 1:
            continue
        if directive.depth < depths.get(variable, directive.depth + 1):
            depths[variable], places[variable] = directive.depth, []
        if directive.depth == depths[variable]:
            places[variable].append(directive.arguments[0])
    chosen = {
        word: variable
        for variable, words in places.items()
        if len({word.text for word in words}) == 1 and NUMBER.fullmatch(words[0].text)
        for word in words
    }
    baseline = {variable: word.text for word, variable in chosen.items()}
    pieces = [(word.start, word.end, f"{{{{ {variable} }}}}") for word, variable in chosen.items()]
    return Adopted(render_edits(text, pieces), baseline)


def text_of(path: Path) -> str:
    return path.read_bytes().decode()


def rendered(made: Adopted, **changed: str) -> str:
    # As deployments render: a template is found and read from a file, here from its text.
    return render_text(made.template, {**made.baseline, **changed})


@pytest.mark.parametrize(
    ("style", "read", "variables", "baseline"),
    [
        ("nginx-maps-and-tls.conf", nginx.parse_directives, NGINX,
         {"worker_processes": "4", "worker_connections": "4096", "keepalive_requests": "2000"}),
        ("nginx-windows-line-ends.conf", nginx.parse_directives, NGINX, {"worker_connections": "768"}),
        ("apache-vhosts.conf", apache_directives, APACHE,
         {"StartServers": "5", "MaxRequestWorkers": "150", "MaxConnectionsPerChild": "0",
          "KeepAliveTimeout": "5"}),
        ("apache-macros-and-proxy.conf", apache_directives, APACHE,
         {"ServerLimit": "16", "ThreadsPerChild": "25", "KeepAliveTimeout": "15"}),
        ("fpm-two-pools.conf", ini.parse_directives, FPM, {"max_children": "50", "start_servers": "5"}),
        ("php-ini-windows.ini", ini.parse_directives, FPM, {"opcache": "128"}),
    ],
)  # fmt: skip
def test_styles(
    style: str, read: DirectiveParser, variables: dict[str, str], baseline: dict[str, str]
) -> None:
    text = text_of(STYLES / style)
    made = adopt(text, read(text), variables)
    assert made.baseline == baseline
    assert rendered(made) == text
    for variable, value in baseline.items():
        other = rendered(made, **{variable: f"{value}7"})
        assert other != text
        assert other.replace(f"{value}7", value) == text


def installed() -> Iterable[tuple[Path, DirectiveParser, dict[str, str]]]:
    for pattern, read, variables in (
        ("nginx/nginx.conf", nginx.parse_directives, NGINX),
        ("nginx/sites-available/*", nginx.parse_directives, NGINX),
        ("nginx/snippets/*", nginx.parse_directives, NGINX),
        ("nginx/*_params", nginx.parse_directives, NGINX),
        ("nginx/mime.types", nginx.parse_directives, NGINX),
        ("apache2/*.conf", apache_directives, APACHE),
        ("apache2/*-available/*", apache_directives, APACHE),
        ("php/*/fpm/php-fpm.conf", ini.parse_directives, FPM),
        ("php/*/fpm/pool.d/*.conf", ini.parse_directives, FPM),
        ("php/*/fpm/php.ini", ini.parse_directives, FPM),
    ):
        yield from ((path, read, variables) for path in sorted(Path("/etc").glob(pattern)))


@pytest.mark.stack
def test_what_the_distribution_installs() -> None:
    files = list(installed())
    assert {path.parts[2] for path, _, _ in files} == {"nginx", "apache2", "php"}
    baselines = {}
    for path, read, variables in files:
        text = text_of(path)
        made = adopt(text, read(text), variables)
        assert rendered(made) == text, path
        baselines[path.name] = dict(made.baseline)
    assert baselines["nginx.conf"]["worker_connections"] == "768"
    assert baselines["www.conf"]["max_children"] == "5"
    assert baselines["mpm_event.conf"]["ThreadsPerChild"] == "25"
    assert baselines["apache2.conf"] == {"KeepAliveTimeout": "5", "MaxKeepAliveRequests": "100"}


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (nginx.parse_directives, "events {\n  use epoll;\n", "line 3: the file ends within"),
        (nginx.parse_directives, "a;\n}", "line 2: unexpected `}`"),
        (nginx.parse_directives, 'a "b;\n', "line 1: an unclosed quote or escape"),
        (nginx.parse_directives, ";", "line 1: `;` without a directive"),
        (apache_directives, "<IfModule x>\nA 1\n", "<IfModule> is not closed"),
        (apache_directives, "<A>\n</B>\n", "line 2: </B> closes no section"),
        (apache_directives, "<A x\n</A>\n", "line 1: <A lacks its `>`"),
        (ini.parse_directives, "[a]\n= 5\n", "line 2: not an assignment"),
    ],
)
def test_what_cannot_be_read(read: DirectiveParser, text: str, message: str) -> None:
    with pytest.raises(ConfigSyntaxError, match=message.replace("{", r"\{").replace("}", r"\}")):
        list(read(text))


def test_several_values_are_no_baseline() -> None:
    text = "server { keepalive_timeout 1; } server { keepalive_timeout 2; }"
    made = adopt(text, nginx.parse_directives(text), NGINX)
    assert made.baseline == {}
    assert made.template == text


@given(st.text(alphabet='{}%#\r\n\\" a5;', max_size=40))
def test_any_text_survives(text: str) -> None:
    assert rendered(adopt(text, (), {})) == text


@given(
    st.text(alphabet="{}%#\r\n \"';\\5k", max_size=40),
    st.sampled_from([nginx.parse_directives, apache_directives, ini.parse_directives]),
)
def test_whatever_can_be_read_is_given_back(text: str, read: DirectiveParser) -> None:
    try:
        directives = list(read(text))
    except ConfigSyntaxError:
        return
    made = adopt(text, directives, {"k": "k", "5": "five"})
    assert rendered(made) == text
