"""Hints for invalid values, by the error and by how other programs write such values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from pydantic_core import ErrorDetails

from autotune.secret_detection import find_secrets
from autotune.target.corrections import (
    correct_boolean,
    correct_number,
    correct_port,
    correct_range,
)
from autotune.target.field_types import (
    ADDRESS_PATTERN,
    COMPOSE_FILE_PATTERN,
    COMPOSE_NAME_PATTERN,
    FILE_PATTERN,
    HEADER_PATTERN,
    METHOD_PATTERN,
    MODE_PATTERN,
    NAME_PATTERN,
    PARAMETER_PATTERN,
    PATH_PATTERN,
    TEXT_PATTERN,
    TIER_PATTERN,
    UNIT_PATTERN,
    URL_PATTERN,
    USER_PATTERN,
)
from autotune.target.key_hints import list_keys_at
from autotune.target.messages import find_nearest_name, format_value
from autotune.target.model import Target
from autotune.target.yaml_document import Location, parse_scalar

LOGIN_HINT = "logins come from the ssh agent and ~/.ssh/config (User, IdentityFile, ProxyJump)"
NO_VALUE_HINT = "give a value, or remove the key"
NO_MAPPING_HINT = "remove the key to use its defaults"
NAME_EXAMPLE = "name: shop"
# Examples of values for mappings in which the user chooses the keys
NAMED_ENTRY_EXAMPLES = {
    "hosts": "{address: web1.example.org}",
    "tiers": "{hosts: web1, service: nginx}",
    "beds": "{}",
    "parameters": "{range: [4, 64]}",
    "headers": "VALUE",
    "header": "TEXT",
    "files": "{}",
}
SSH_PORT, TIER_PORT = 22, 8080
NUMBER_EXAMPLES = {
    "port": TIER_PORT,
    "status": 200,
    "cpus": 4,
    "pairs": 100_000,
    "trials": 40,
    "skew": 0.9,
}
# Hints for mappings where a list is required
MAPPING_HINTS = {
    "try": "write '- ' before each configuration",
    "command": "write `command: [PROGRAM, ARGUMENT]`",
    "constraints": "write comparisons as a list, such as `- web.nginx.backlog <= 4096`",
}
# Hints for values that are not text
STRING_HINTS = {
    "requests": "name a file, such as `requests: shop.requests.yaml`",
    "body": """quote the text, such as `body: '{"item": 7}'`""",
    "constraints": "write a comparison, such as `web.nginx.backlog <= 4096`",
    "app": "remove `app:` to tune your own site",
    "address": "write a whole address, such as `address: 10.0.0.11`",
    "name": "start it with a letter, such as `name: shop-1`",
    "maximize": "name the value that the command prints, or remove the key",
    "minimize": "name the value that the command prints, or remove the key",
}
NAMED_SECTIONS = ("hosts", "tiers", "parameters", "beds", "services")
SCALAR_ERROR_TYPES = ("string_type", "int_type", "float_type", "bool_type", "literal_error")
ERROR_TYPE_HINTS = {
    "dict_type": "write `name: …` for each entry",
    "tuple_type": "put it in brackets, or write each value after '- ' on a new line",
    "string_too_short": NO_VALUE_HINT,
}
# Violated pattern, pattern in the invalid value, hint. The first match is used.
PATTERN_HINTS = (
    (ADDRESS_PATTERN, "@", f"give the login as `user:`; {LOGIN_HINT}"),
    (ADDRESS_PATTERN, "://", "give only the name or address; `load: {url: …}` takes a URL"),
    (ADDRESS_PATTERN, r"^\[", "remove the brackets, and quote the address"),
    (ADDRESS_PATTERN, "/", "give the address of one host, without a netmask or path"),
    (ADDRESS_PATTERN, r"[\s,]", "give one address; each host is an entry under `hosts:`"),
    (ADDRESS_PATTERN, "", "such as `web1.example.org` or `10.0.0.11`"),
    (METHOD_PATTERN, "", "write it in capitals, such as GET or POST"),
    (PATH_PATTERN, "://", "`load: {url: …}` takes a whole URL"),
    (PATH_PATTERN, r"[^\x00-\x7f]", "encode other letters, such as %C3%BC for ü"),
    (PATH_PATTERN, " ", "encode a space as %20"),
    (PATH_PATTERN, "^[^/]", "add a '/' at the start"),
    (PATH_PATTERN, "^$", "write `/` for the start page"),
    (URL_PATTERN, "@", "send a password as `headers: {Authorization: 'Basic ${TOKEN}'}`"),
    (URL_PATTERN, "^/", "`load: {path: …}` takes a path without a host"),
    (URL_PATTERN, "^[^:]+$", "add https:// or http:// at the start"),
    (
        URL_PATTERN,
        r"^https?://[0-9A-Fa-f]*:[0-9A-Fa-f]*:",
        "put the IPv6 address in brackets, as in https://[2001:db8::1]/",
    ),
    (URL_PATTERN, "", "write https://NAME/PATH, or https://NAME:PORT/PATH"),
    (TEXT_PATTERN, "^$", "write text, or remove it"),
    (TEXT_PATTERN, "", "write it on one line"),
    (NAME_PATTERN, r"[\[*]", "declare each host by its own name: ranges are not expanded"),
    (NAME_PATTERN, "[ .]", "replace spaces and dots with '-'"),
    (NAME_PATTERN, "^[0-9]", "start with a letter"),
    (TIER_PATTERN, "-", "replace '-' with '_'"),
    (TIER_PATTERN, "[A-Z]", "write it in lower case"),
    (UNIT_PATTERN, r"^[\w.@-]+$", "add `.service` at the end"),
    (FILE_PATTERN, "^[^/]", "start with '/': the path is on the hosts"),
    (FILE_PATTERN, r"[*?]|\.\.", "name one file, without '*' and '..'"),
    (COMPOSE_FILE_PATTERN, "^[^/]", "start with '/', such as /srv/shop/compose.yaml"),
    (COMPOSE_FILE_PATTERN, "", "name each file, such as /srv/shop/compose.yaml"),
    (COMPOSE_NAME_PATTERN, "", "`docker compose ls` and `docker compose ps` print the names"),
    (USER_PATTERN, "", "give only the login name, such as `user: deploy`"),
    (HEADER_PATTERN, "", "write `NAME: VALUE`, with no spaces in NAME"),
    (PARAMETER_PATTERN, "[-. ]", "replace it with '_'"),
    (MODE_PATTERN, "^[0-7]{3}$", "add a '0' at the start"),
)
# Pattern in the text of any invalid value, and the hint
_TEXT_HINTS = (
    (
        r"\$\{\w+\}|\$\w+",
        "write the value: only `load: {headers: …}` reads variables, as `${NAME}`",
    ),
    (r"\{\{|\{%", "write the value: autotune does not expand templates"),
    ("[“”„‟‘’‚‛«»]", "use plain quotes, \" or '"),
    ("[–—−]", "use a plain hyphen, '-'"),
    ("\xa0", "replace the no-break space with a plain space"),
)
# Names in other programs, by the name to write
_LITERAL_SYNONYMS = {
    "containers": (
        "docker",
        "podman",
        "compose",
        "docker-compose",
        "container",
        "kubernetes",
        "k8s",
    ),
    "systemd": ("native", "host", "service", "bare-metal", "vm"),
    "embedded": ("private", "local", "process", "test"),
    "local": ("localhost", "none", "shell"),
    "ssh": ("paramiko", "openssh", "remote", "smart"),
    "reload": ("hup", "graceful"),
    "restart": ("hard", "stop"),
    "proxy": ("lb", "loadbalancer", "load-balancer", "balancer"),
    "web": ("webserver", "http", "server", "frontend"),
    "store": ("db", "kv"),
    "database": ("sql", "rdbms"),
    "2": ("h2", "http2", "http/2", "2.0"),
    "1.1": ("1", "1.0", "http/1.1", "http1", "h1"),
}


def select_hint(problem: ErrorDetails, location: Location, model: type[Any]) -> str | None:
    """Return the hint for an invalid value at ``location``; ``None`` if its message is sufficient."""
    error_type, value = problem["type"], problem["input"]
    if own_hint := _get_own_hint(problem):
        return own_hint
    if isinstance(value, str) and (hint := _find_mark_hint(value)):
        return hint
    if error_type == "model_type":
        return _build_mapping_hint(location, value, model)
    if value is None and error_type in SCALAR_ERROR_TYPES:
        return f"such as `{NAME_EXAMPLE}`" if list(location) == ["name"] else NO_VALUE_HINT
    find_hint = _HINT_FINDERS.get(error_type)
    hint = find_hint(problem, find_last_key(location)) if find_hint else None
    return hint or ERROR_TYPE_HINTS.get(error_type)


def _get_own_hint(problem: ErrorDetails) -> str | None:
    """Return the hint that the validator of a value gave."""
    context = problem.get("ctx", {})
    hint: str | None = context.get("hint") or getattr(context.get("error"), "hint", None)
    return hint


def find_last_key(location: Location) -> str:
    """Return the last key in a location that is not the index of a list."""
    return next((step for step in reversed(location) if isinstance(step, str)), "")


def _find_mark_hint(text: str) -> str | None:
    """Return the hint for text with a variable, a template or typographic characters."""
    return next((hint for pattern, hint in _TEXT_HINTS if re.search(pattern, text)), None)


def _find_list_hint(problem: ErrorDetails, key: str) -> str | None:
    """Return the hint for a value that must be a list."""
    value = problem["input"]
    if key in ("range", "safe"):
        return f"write `{key}: {correct_range(value) or '[LOWEST, HIGHEST]'}`"
    if isinstance(value, Mapping):
        return MAPPING_HINTS.get(key)
    if not isinstance(value, str) or find_secrets(value):
        return None
    return _suggest_list(value, key)


def _suggest_list(value: str, key: str) -> str | None:
    """Return the hint for a text whose words or values are the items of a list."""
    if key in ("command", "check"):
        return f"write `{key}: [{', '.join(split_words(value))}]`"
    if key == "constraints":
        return f"write `- {value}` on the next line"
    if "," in value:
        return f"write `{key}: [{', '.join(item.strip() for item in value.split(','))}]`"
    return None


def split_words(command: str) -> list[str]:
    """Return the words of a command line as items of a list in YAML."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return [f'"{word}"' if _needs_quotes(word) else word for word in words]


def _needs_quotes(word: str) -> bool:
    """True if YAML does not read the word as text."""
    has_mark = re.search(r"[\s,:{}\[\]#*&!|>'%@`]", word) is not None
    return has_mark or not isinstance(parse_scalar(word), str)


def _find_entries_hint(problem: ErrorDetails, key: str) -> str | None:
    """Return the hint for a list instead of a mapping in which the user chooses the keys."""
    value, example = problem["input"], NAMED_ENTRY_EXAMPLES.get(key, "{…}")
    if key == "when" and isinstance(value, str):
        words = re.findall(r"[\w.]+", value)
        return f"write `when: {{{words[0]}: {words[1]}}}`" if len(words) == 2 else None
    if not isinstance(value, list) or not value:
        return f"such as `{key}: {{NAME: {example}}}`" if key in NAMED_ENTRY_EXAMPLES else None
    entry = value[0]
    if not isinstance(entry, dict):
        name = re.split("[:=]", entry)[0] if isinstance(entry, str) else "NAME"
        return f"make each entry a key, as `{name}: {example}`"
    if name_key := next((k for k in ("name", "host", "hostname", "key", "id") if k in entry), None):
        example = "VALUE" if example in ("VALUE", "TEXT") else "{…}"
        return (
            f"make each name a key: `{entry[name_key]}: {example}` instead of "
            f"`- {name_key}: {entry[name_key]}`"
        )
    return "remove the '- ' before each entry"


def _find_number_hint(problem: ErrorDetails, key: str) -> str | None:
    """Return the hint for text, a fraction or a collection where a number is required."""
    value = problem["input"]
    if isinstance(value, list | dict):
        return "write a single number"
    if isinstance(value, float):
        return f"write it as {value:.0f}" if isfinite(value) else None
    if (
        key == "status"
        and isinstance(value, str)
        and re.fullmatch("[2-4]xx|[0-9]{3}-[0-9]{3}", value.lower())
    ):
        return "list the statuses, such as `status: [200, 204]`; the default is any 2xx"
    if key == "port" and (port := correct_port(value)):
        return f"write the port that receives the requests: `port: {port}`"
    number = correct_number(value, key) or _expand_exponent(value)
    if number is None:
        is_login = key == "port" and "hosts" in problem["loc"]
        example = SSH_PORT if is_login else NUMBER_EXAMPLES.get(key, 10)
        return f"give one number, such as `{key}: {example}`"
    return f"write it as {number}" + (", without quotes" if number == value else "")


def _expand_exponent(value: object) -> str | None:
    try:
        number = float(value) if isinstance(value, str) else float("nan")
    except ValueError:
        return None
    return f"{number:.0f}" if number.is_integer() else None


def _find_boolean_hint(problem: ErrorDetails, key: str) -> str:
    boolean = correct_boolean(problem["input"])
    return f"write `{key}: {boolean}`" if boolean else f"write `{key}: true` or `{key}: false`"


def _find_maximum_hint(problem: ErrorDetails, key: str) -> str | None:
    """Return the hint for a status above the maximum; ``None`` for other numbers."""
    value = problem["input"]
    if key == "status" and value < 600:
        return f"a server error is never a correct response: remove {value}, or write `status: 200`"
    return None


def _find_bounds_hint(_problem: ErrorDetails, key: str) -> str:
    return f"`{key}:` lists the lowest and the highest value; `choices:` lists values"


def _find_entry_count_hint(problem: ErrorDetails, key: str) -> str:
    if problem["ctx"]["min_length"] > 1:
        return "add another entry"
    if problem["loc"][:1] == ("tiers",):
        return f"add a name, such as `{key}: [{'web1' if key == 'hosts' else 'nginx'}]`"
    example = NAMED_ENTRY_EXAMPLES.get(key)
    return f"add an entry, such as `{key}: {{NAME: {example}}}`" if example else "add an entry"


def _find_literal_hint(problem: ErrorDetails, _key: str) -> str | None:
    """Return the hint for a value that must be one of several names."""
    allowed_names = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
    word = str(problem["input"]).lower()
    synonym = next((n for n in allowed_names if word in _LITERAL_SYNONYMS.get(n, ())), None)
    name = synonym or find_nearest_name(word, allowed_names)
    return f"did you mean {name!r}?" if name else None


def _find_string_hint(problem: ErrorDetails, key: str) -> str | None:
    value = problem["input"]
    is_expected_text = "expect" in problem["loc"]
    if key in STRING_HINTS and value is not None and not is_expected_text:
        return STRING_HINTS[key]
    if key == "mode" and isinstance(value, int):
        return f"quote it: `mode: '{value:04d}'`"
    if isinstance(value, bool | int | float):
        return f'quote it if it is text: "{format_value(value)}"'
    if isinstance(value, dict) and key in ("hosts", "uses", "service") and value:
        return f"write names: `{key}: [{', '.join(value)}]`"
    if isinstance(value, list):
        return f"write one value, without brackets: `{key}: VALUE`"
    return f"write one value on the same line, as `{key}: VALUE`" if value else None


def _find_pattern_hint(problem: ErrorDetails, _key: str) -> str | None:
    pattern, value = problem["ctx"]["pattern"], str(problem["input"])
    return next(
        (
            hint
            for violated_pattern, value_pattern, hint in PATTERN_HINTS
            if violated_pattern == pattern and re.search(value_pattern, value)
        ),
        None,
    )


_HINT_FINDERS: Mapping[str, Callable[[ErrorDetails, str], str | None]] = {
    "dict_type": _find_entries_hint,
    "tuple_type": _find_list_hint,
    "int_type": _find_number_hint,
    "int_from_float": _find_number_hint,
    "float_type": _find_number_hint,
    "bool_type": _find_boolean_hint,
    "less_than_equal": _find_maximum_hint,
    "too_long": _find_bounds_hint,
    "too_short": _find_entry_count_hint,
    "string_type": _find_string_hint,
    "literal_error": _find_literal_hint,
    "string_pattern_mismatch": _find_pattern_hint,
}


def _build_mapping_hint(location: Location, value: object, model: type[Any]) -> str:
    """Return the hint for a value that must be a mapping with known keys."""
    section = str(location[0]) if location else ""
    if value is None:
        is_entry = len(location) == 2 and section in NAMED_ENTRY_EXAMPLES
        example = NAMED_ENTRY_EXAMPLES.get(section, "")
        return f"such as `{location[1]}: {example}`" if is_entry else NO_MAPPING_HINT
    if len(location) == 2 and section in NAMED_SECTIONS:
        key = str(location[1])
        if key in list_keys_at(location, model):
            return f"indent `{key}:` below a name: `{section}: {{NAME: {{{key}: …}}}}`"
    if section == "parameters" and model is Target:
        return _build_rule_hint(value)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "remove the '- ' before each key"
    if section == "requests" and isinstance(value, str):
        request = re.fullmatch(r"(?:([A-Z]{3,7}) +)?(/[!-~]*)", value)
        if request:
            method = f"method: {request[1]}, " if request[1] else ""
            return f"write `{{{method}path: {request[2]}}}`"
    return _find_scalar_mapping_hint(location, value) or (
        f"valid keys: {', '.join(list_keys_at(location, model))}"
    )


def _find_scalar_mapping_hint(location: Location, value: object) -> str | None:
    """Return the hint for a single value whose key in the missing mapping is clear."""
    key = find_last_key(location)
    if key == "simulated" and (boolean := correct_boolean(value)):
        return "write `simulated: {}`" if boolean == "true" else "remove it to use real hosts"
    if key == "load" and isinstance(value, str) and re.fullmatch(r"/\S*|https?://\S+", value):
        return f"write `load: {{{'path' if value.startswith('/') else 'url'}: {value}}}`"
    if key == "expect" and isinstance(value, int) and not isinstance(value, bool):
        return f"write `expect: {{status: {value}}}`"
    if isinstance(value, str) and len(location) == 2 and location[0] == "hosts":
        # Other text may contain a password.
        address = value if re.fullmatch(r"[A-Za-z0-9.-]+", value) else "…"
        return f"write `{key}: {{address: {address}}}`"
    return None


def _build_rule_hint(value: object) -> str:
    """Return the hint for a parameter's value that is not a mapping."""
    if value is True or value in ("off", "no"):
        return "`false` excludes the parameter; remove the line to search it"
    if isinstance(value, list):
        if all(isinstance(item, dict) for item in value):
            return "remove the '- ' before each key"
        key = "range" if len(value) == 2 and _are_numbers(value) else "choices"
        return f"write `{{{key}: [{', '.join(map(str, value))}]}}`"
    if bounds := correct_range(value):
        return f"write `{{range: {bounds}}}`"
    return f"to set it to this fixed value: `{{fixed: {value}}}`"


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
