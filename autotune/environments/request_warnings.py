"""Warnings of requests and expected responses that are valid, but probably mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from urllib.parse import urlsplit

from autotune.deploy.stack import find_entry_tiers
from autotune.environments.command_warnings import find_shell_marks
from autotune.environments.host_warnings import describe_unusable_address, is_loopback
from autotune.errors import AutotuneError
from autotune.loads.registry import REQUEST_READERS
from autotune.target.consistency_checks import TargetMistake
from autotune.target.expected_answer import Expect
from autotune.target.model import Load, Target
from autotune.target.read_target import TargetFile
from autotune.target.requests_file import SessionStep
from autotune.target.yaml_document import Location

REFERENCE_APP = "reference"
MAX_PAGE_BYTES = 100 * 2**20
BODILESS_STATUSES = frozenset({204, 304})
# Pattern in the path of a request, message, hint. The first match is used.
_PATH_DOUBTS = (
    ("&amp;", "contains '&amp;' from HTML", "write a plain '&'"),
    (r"%(?![0-9A-Fa-f]{2})", "contains a '%' without two digits", "write `%25` for a percent sign"),
    (r"^//", "starts with two slashes", "write one '/' at the start"),
    (r"/\.\.?(?=[/?]|$)", "contains '.' or '..' as a directory", "write the path without it"),
    (
        r"/:[A-Za-z]\w*|[{<][A-Za-z_]\w{0,40}[}>]|%s",
        "contains a placeholder, which is sent without being replaced",
        "write a value, or list pages in a file: `load: {requests: FILE}`",
    ),
    (r"\*", "contains a '*', which is sent as it is", "list the pages: `load: {requests: FILE}`"),
    (
        r"(?i)/(healthz?|health-?checks?|ping|livez|readyz|\w+[_-]status|metrics)/?(?=\?|$)",
        "is a health check or a status page, not a page of your users",
        "write the path of a page that needs all tiers",
    ),
    (
        r"(?i)/(favicon\.ico|robots\.txt)(?=\?|$)",
        "is a static file, which needs no other tier",
        "write the path of a page that needs all tiers",
    ),
    (
        r"(?i)/(log-?out|sign-?out)(\.php)?/?(?=\?|$)",
        "ends the session of the login",
        "write the path of a page that your users read",
    ),
)
# Headers by lower-case name, with the reason why a target hardly sets them, and a hint
_SENT_BY_GENERATOR = ("is usually set by the generator", "remove it")
_HEADER_DOUBTS = {
    "connection": _SENT_BY_GENERATOR,
    "content-length": _SENT_BY_GENERATOR,
    "transfer-encoding": _SENT_BY_GENERATOR,
    "expect": _SENT_BY_GENERATOR,
    "upgrade": _SENT_BY_GENERATOR,
    "if-modified-since": ("asks for status 304 without a body", "remove it to load whole pages"),
    "if-none-match": ("asks for status 304 without a body", "remove it to load whole pages"),
    "range": ("asks for a part of the response", "remove it to load whole pages"),
    "host": ("repeats `host:`, which is also used for TLS", "write `load: {host: NAME}` instead"),
}
# Programs that cannot read the rate from standard input
_OTHER_GENERATORS = frozenset(
    [
        "wrk",
        "wrk2",
        "ab",
        "hey",
        "vegeta",
        "siege",
        "jmeter",
        "locust",
        "artillery",
        "k6",
        "oha",
        "httperf",
        "bombardier",
        "curl",
        "gatling",
        "h2load",
        "drill",
    ]
)
_BUILT_IN_GENERATORS = ("httperf", "k6", "oha")
_REGEX_PATTERN = re.compile(r"\.[*+]|\\[dsw.]|^\^|^/.{1,200}/$|\(\?|\[[^\]]{1,50}\][+*]")
_VARIABLE_PATTERN = re.compile(r"\$\{\w{1,60}\}|\{\{")


def find_request_doubts(file: TargetFile) -> Iterator[TargetMistake]:
    """Yield settings of the load that are valid, but probably mistakes."""
    load = file.target.load
    yield from _find_path_doubts(load)
    yield from _find_header_doubts(load)
    yield from _find_body_doubts(file)
    if load.expect is not None:
        for key, message, hint in find_expect_doubts(load.expect):
            yield TargetMistake(("load", "expect", key), message, hint)
        if load.method == "HEAD" and load.expect.min_bytes:
            message = "a response to HEAD has no body, so it never has this size"
            yield TargetMistake(("load", "expect", "min_bytes"), message, "remove `min_bytes:`")
    yield from _find_name_doubts(file.target)
    yield from _find_vip_doubts(file.target)
    yield from _find_private_server_doubts(file.target)
    yield from _find_listed_doubts(file)
    yield from _find_program_doubts(load)


def _find_path_doubts(load: Load) -> Iterator[TargetMistake]:
    url = urlsplit(load.url or "")
    for key, text in (("path", load.path), ("url", f"{url.path}?{url.query}")):
        if key in load.model_fields_set and (doubt := describe_path_doubt(text)):
            yield TargetMistake(("load", key), f"`{key}` {doubt[0]}", doubt[1])
    if (url.scheme, url.port) in (("https", 80), ("http", 443)):
        message = f"port {url.port} does not fit {url.scheme}://"
        hint = f"write `{'http' if url.scheme == 'https' else 'https'}://…`, or another port"
        yield TargetMistake(("load", "url"), message, hint)


def describe_path_doubt(path: str) -> tuple[str, str] | None:
    """Return the reason why a path is probably a mistake, and a hint; ``None`` for other paths."""
    return next(
        ((reason, hint) for pattern, reason, hint in _PATH_DOUBTS if re.search(pattern, path)), None
    )


def _find_header_doubts(load: Load) -> Iterator[TargetMistake]:
    for name in load.headers:
        if doubt := _HEADER_DOUBTS.get(name.lower()):
            message = f"header {name!r} {doubt[0]}"
            yield TargetMistake(("load", "headers", name), message, doubt[1])
        elif name.lower() == "content-type" and not load.body and not load.has_request_file:
            message = f"header {name!r} describes a body, and the request has none"
            hint = "add `method: POST` and `body:`, or remove it"
            yield TargetMistake(("load", "headers", name), message, hint)


def _find_body_doubts(file: TargetFile) -> Iterator[TargetMistake]:
    load = file.target.load
    if load.method in ("POST", "PUT", "PATCH") and load.body is None and not load.has_request_file:
        message = f"a {load.method} request usually has a body"
        yield TargetMistake(("load", "method"), message, "add `body:`, or write `method: GET`")
    if load.method == "DELETE":
        message = "the load repeats this request, but only the first one finds something to delete"
        yield TargetMistake(("load", "method"), message, "write a request that can be repeated")
    if load.body is None:
        return
    types = [text.lower() for name, text in load.headers.items() if name.lower() == "content-type"]
    is_json = _is_json(load.body)
    if is_json and not types:
        message = "`body` is JSON, but its content type is that of a form"
        hint = "add `headers: {Content-Type: application/json}`"
        yield TargetMistake(("load", "body"), message, hint)
    elif types and "json" in types[0] and not is_json and "${" not in load.body:
        message = "`body` is not JSON, but its content type is JSON"
        hint = "write JSON in single quotes, such as `body: '{\"item\": 7}'`"
        yield TargetMistake(("load", "body"), message, hint)
    name = load.body.removeprefix("@").strip()
    is_word = re.fullmatch(r"[\w./-]{1,200}", name) is not None
    if is_word and (load.body.startswith("@") or (file.directory / name).is_file()):
        message = f"`body` is sent as text, and not read from the file {name!r}"
        yield TargetMistake(("load", "body"), message, "write the content of the file")


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def find_expect_doubts(expect: Expect) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of expected responses that accept errors or no response, each with a message and a
    hint.
    """
    errors = [status for status in expect.status if status >= 400]
    if errors:
        message = f"status {errors[0]} is an error, and would count as a correct response"
        yield "status", message, "write the status of a served page, such as `status: 200`"
    elif expect.status and all(300 <= status < 400 for status in expect.status):
        message = "only redirects would count as correct responses"
        yield "status", message, "request the page to which the site redirects, with `status: 200`"
    if expect.status and BODILESS_STATUSES.issuperset(expect.status):
        for key in ("body", "min_bytes"):
            if getattr(expect, key):
                message = f"a response with status {expect.status[0]} has no body"
                yield key, message, f"remove `{key}:`, or write `status: 200`"
    for refused_text in expect.not_body:
        if any(refused_text in text for text in expect.body):
            message = f"`body` and `not_body` exclude each other: both contain {refused_text!r}"
            yield "not_body", message, "remove the text from one of them"
            break
    if expect.min_bytes and expect.min_bytes > MAX_PAGE_BYTES:
        yield "min_bytes", "no page is that large", "write a size such as 10KB"
    texts_by_key = {"body": expect.body, "not_body": expect.not_body}
    for key, texts in {**texts_by_key, "header": tuple(expect.header.values())}.items():
        yield from _find_pattern_doubts(key, texts)


def _find_pattern_doubts(key: str, texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for text in texts:
        if _VARIABLE_PATTERN.search(text):
            yield key, "variables are not replaced in expected texts", "write the text itself"
        elif _REGEX_PATTERN.search(text) or (key == "header" and "*" in text):
            message = f"`{key}:` is plain text, and is not read as a pattern"
            yield key, message, "write a part of the text, without '*' and '.*'"


def _find_name_doubts(target: Target) -> Iterator[TargetMistake]:
    """Yield names of the site that are names or addresses of single hosts."""
    load = target.load
    entries = find_entry_tiers(target)
    entry_hosts = target.tiers[entries[0]].hosts if entries else ()
    addresses = {host.address for host in target.hosts.values()}
    is_local = any(target.hosts[name].transport == "local" for name in entry_hosts)
    for key, name in (("url", urlsplit(load.url or "").hostname or ""), ("host", load.host or "")):
        is_host_name = name in target.hosts and target.hosts[name].address != name
        if is_host_name or (key == "host" and name in addresses and re.fullmatch("[0-9.]+", name)):
            message = f"{name!r} is sent as the name of the site, but it is a host of this file"
            hint = "write the name that your users request, such as shop.example"
            yield TargetMistake(("load", key), message, hint)
        elif name and is_loopback(name) and not is_local:
            message = f"{name!r} is not the name of your site, but of the load host itself"
            hint = f"write the name that your users request; load goes to {_join(entry_hosts)}"
            yield TargetMistake(("load", key), message, hint)


def _join(names: Iterable[str]) -> str:
    return " and ".join(names) or "the entry tier"


def _find_vip_doubts(target: Target) -> Iterator[TargetMistake]:
    vip, location = target.load.vip, ("load", "vip")
    entries = find_entry_tiers(target)
    if vip is None or not entries:
        return
    entry_hosts = target.tiers[entries[0]].hosts
    owners = [name for name, host in target.hosts.items() if host.address == vip]
    is_local = any(target.hosts[name].transport == "local" for name in entry_hosts)
    hint = "write the shared address of the entry tier, or remove `vip:`"
    if kind := describe_unusable_address(vip):
        yield TargetMistake(location, f"{vip} is {kind}, and cannot receive load", hint)
    elif is_loopback(vip) and not is_local:
        yield TargetMistake(location, f"{vip} is the load host itself", hint)
    elif vip in target.hosts and not owners:
        message = f"{vip!r} is the name of a host in this file, not an address"
        hint = f"write its address {target.hosts[vip].address}, or remove `vip:`"
        yield TargetMistake(location, message, hint)
    elif owners and owners[0] not in entry_hosts:
        message = f"{vip} is the address of {owners[0]!r}, which is not in the entry tier"
        yield TargetMistake(location, message, hint)
    elif owners and len(entry_hosts) > 1:
        message = f"{vip} is the address of {owners[0]!r}, so the other entry hosts get no load"
        hint = "remove `vip:` to send load to all hosts of the tier"
        yield TargetMistake(location, message, hint)


def _find_private_server_doubts(target: Target) -> Iterator[TargetMistake]:
    """Yield keys that have no effect, or fail, with private servers or with the reference application."""
    load, path = target.load, urlsplit(target.load.url or target.load.path).path
    entries = [target.tiers[name] for name in find_entry_tiers(target)]
    has_page = load.model_fields_set & {"path", "url"} and not load.has_request_file
    if (
        has_page
        and not path.endswith("/kv.php")
        and any(t.app == REFERENCE_APP for t in target.tiers.values())
    ):
        key = "url" if load.url else "path"
        message = "the reference application serves only /kv.php"
        yield TargetMistake(("load", key), message, "write `path: /kv.php`")
    if not entries or entries[0].installed or target.simulated is not None:
        return
    runtime_text = f"with `runtime: {entries[0].runtime}`"
    if load.uses_tls:
        message = f"the servers {runtime_text} use plain HTTP"
        yield TargetMistake(("load", "url"), message, "write http://, or only `path:`")
    for key, reason in (("vip", "does not belong to the servers"), ("hosts", "has no effect")):
        if getattr(load, key):
            message = f"`{key}:` {reason} {runtime_text}"
            hint = "remove it: load goes from this machine to its own servers"
            yield TargetMistake(("load", key), message, hint)


def _find_listed_doubts(file: TargetFile) -> Iterator[TargetMistake]:
    """Yield the first doubt in each file of requests. Other checks report unreadable files."""
    for key in ("requests", "uris"):
        name = getattr(file.target.load, key)
        if name is None:
            continue
        try:
            visits = REQUEST_READERS[key](file.directory / name)
        except (AutotuneError, OSError, ValueError):
            continue
        doubts = (
            (step.path, *doubt)
            for visit in visits
            for step in visit.session_steps
            if (doubt := _describe_step_doubt(step))
        )
        for path, reason, hint in islice(doubts, 1):
            yield TargetMistake(("load", key), f"{name}: {path!r} {reason}", hint)


def _describe_step_doubt(step: SessionStep) -> tuple[str, str] | None:
    """Return the reason why a listed request is probably a mistake, and a hint, or ``None``."""
    if "#" in step.path:
        return (
            "contains a fragment, which browsers do not send",
            "remove the '#' and the text after it",
        )
    if _VARIABLE_PATTERN.search(step.path):
        return "contains a variable, which is sent without being replaced", "write the value"
    if step.expect is not None:
        for _, reason, hint in find_expect_doubts(step.expect):
            return f"has a doubtful `expect:`: {reason}", hint
    return describe_path_doubt(step.path)


def _find_program_doubts(load: Load) -> Iterator[TargetMistake]:
    """Yield load generators that are started as if they read the rate from standard input."""
    if load.command is None:
        return
    yield from find_shell_marks(("load", "command"), load.command)
    program = PurePath(load.command[0]).name.lower()
    if program in _OTHER_GENERATORS:
        location: Location = ("load", "command", 0)
        message = f"{program} does not read the rate from its standard input"
        hint = "start it from a script that reads the rate (docs/adding-a-generator.md)"
        if program in _BUILT_IN_GENERATORS:
            hint = f"write `generator: {program}` instead of `command:`"
        yield TargetMistake(location, message, hint)
