"""Parse lines of access logs: Common Log Format and its extensions, HAProxy's HTTP log, and JSON.

Lines are untrusted bytes. The length of each pattern's match is bounded, and parsed paths are
printable ASCII.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

MAX_PATH_LENGTH = 2_000  # maximum length of a path in a `requests:` file
_MAX_AGENT_LENGTH = 400
_MAX_REQUEST_LENGTH = 2 * MAX_PATH_LENGTH

_QUOTED = rb'[^"\\]*(?:\\.[^"\\]*)*'
# A syslog or container prefix, or a virtual host, may precede the client.
_COMMON_PATTERN = re.compile(
    rb'(?:[^\["]{0,200}\[\d{1,10}\]: )?(?P<head>[^\["]{1,300})\[(?P<time>[^\]"]{5,60})\] '
    rb'"(?P<request>' + _QUOTED + rb')" (?P<status>\d{3})(?: |$)'
    rb'(?:\S+ "' + _QUOTED + rb'" "(?P<agent>' + _QUOTED + rb')")?'
)
_PROXY_PATTERN = re.compile(
    rb"[^\"]{0,300}? ?(?P<head>[0-9A-Fa-f.:]{2,45}|unix):\d{1,5} \[(?P<time>[^\]\"]{5,60})\] "
    rb'[^" ]+ [^" ]+/[^" ]+ [-+\d/]+ (?P<status>\d{3}|-1) [+\d]+ [^" ]+ [^" ]+ \S{2,8} '
    rb'[+\d/]+ [\d/]+ (?:\{(?P<agent>[^}"]*)\} )?(?:\{[^}"]*\} )?"(?P<request>[^"]*)'
)
_REQUEST_PATTERN = re.compile(rb"([A-Z]{1,30}) (\S+) HTTP/([0-9.]{1,5})")
# The time in the prefix of a syslog line is not an IPv6 address.
_ADDRESS_PATTERN = re.compile(
    rb"(?<![\w.:])(?!\d\d:\d\d:\d\d(?:\.\d{1,9})?(?![\w.:]))"
    rb"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f.]{0,15}){2,8})(?![\w.:])"
)
_ORIGIN_PATTERN = re.compile(rb"(?i)https?://[^/?#]*")
_PLAIN_PATH_PATTERN = re.compile(rb"/[!#-\[\]-~]*")
_ESCAPED_BYTE_PATTERN = re.compile(rb"\\x([0-9A-Fa-f]{2})")
_PROXY_ESCAPE_PATTERN = re.compile(rb"#([0-9A-F]{2})")
_UNSAFE_BYTE_PATTERN = re.compile(rb"[^!-~]|[\"\\]")


class LoggedRequest(NamedTuple):
    """One request of a log. ``path`` is empty if the line contains no usable path.

    ``agent`` is `None` if the log does not record user agents, and empty if the client sent none.
    ``head`` contains the client's address, see ``find_client``.
    """

    method: bytes
    path: bytes
    protocol: bytes
    status: bytes
    agent: bytes | None
    head: bytes
    time: bytes


def parse_line(line: bytes) -> LoggedRequest | None:
    """Return the request in a log line, or ``None`` if the line's format is unknown."""
    if line[:1] == b"{":
        return _parse_json_line(line)
    if plain_request := _parse_plain_line(line):
        return plain_request
    if match := _COMMON_PATTERN.match(line):
        request, status, agent, head, time = match.group(
            "request", "status", "agent", "head", "time"
        )
        return _build_request(request, status, agent, head, time)
    if match := _PROXY_PATTERN.match(line):
        request, status, agent, head, time = match.group(
            "request", "status", "agent", "head", "time"
        )
        request = _PROXY_ESCAPE_PATTERN.sub(rb"%\1", request)
        return _build_request(request, status, agent or None, head, time)
    return None


def _parse_plain_line(line: bytes) -> LoggedRequest | None:
    """Return the request in a log line in the most common format: combined, without escapes.

    Splitting at quotes gives the same result as the regular expression, but is several times
    faster.
    """
    quoted_parts = line.split(b'"', 6)
    if len(quoted_parts) != 7 or quoted_parts[4] != b" " or b"\\" in line:
        return None
    text_before_request, request, status_part, _, _, agent, _ = quoted_parts
    head, bracket, time = text_before_request.rpartition(b"[")
    status, is_plain = (
        status_part[1:4],
        b"[" not in head and head[-1:] == b" " and time[-2:] == b"] ",
    )
    if not (bracket and is_plain and status.isdigit() and status_part[4:5] == b" "):
        return None
    return _build_request(request, status, agent, head, time[:-2])


def find_client(head: bytes) -> bytes:
    """Return the client's address: the first IP address in ``head``, or the third word from the
    end.

    Apache can log a host name instead of an address.
    """
    if match := _ADDRESS_PATTERN.search(head):
        return match[0]
    return (head.split()[-3:] or [b""])[0]


def _build_request(
    request: bytes, status: bytes, agent: bytes | None, head: bytes, time: bytes
) -> LoggedRequest:
    method, path, protocol = _split_request(request)
    if agent is not None:
        agent = b"" if agent == b"-" else agent[:_MAX_AGENT_LENGTH]
    return LoggedRequest(method, path, protocol, status, agent, head, time)


@lru_cache(maxsize=1 << 14)
def _split_request(request: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the method, path and HTTP version of a request line, or empty values if the line is
    not HTTP.
    """
    match = _REQUEST_PATTERN.fullmatch(request)
    if match is None or len(request) > _MAX_REQUEST_LENGTH:
        return b"", b"", b""
    method, path, protocol = match.groups()
    return method, escape_path(path), protocol


def escape_path(path: bytes) -> bytes:
    """Return a logged path as the client sent it, in printable ASCII.

    The result is empty if ``path`` is not a path.
    """
    if _PLAIN_PATH_PATTERN.fullmatch(path):
        return path
    if not path.startswith(b"/"):
        return b""
    escaped_path = _ESCAPED_BYTE_PATTERN.sub(rb"%\1", path)
    escaped_path = escaped_path.replace(b'\\"', b"%22").replace(b"\\\\", b"%5C")
    return _UNSAFE_BYTE_PATTERN.sub(lambda byte: b"%%%02X" % ord(byte[0]), escaped_path)


# Possible keys of each field in the JSON of servers, proxies and log collectors. nginx and
# applications use no fixed keys.
_JSON_FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "method": (
        ("request", "method"), ("request_method",), ("method",), ("verb",), ("RequestMethod",),
        ("http", "request", "method"), ("http.request.method",), ("httpRequest", "requestMethod"),
        ("req", "method"), ("http_method",),
    ),
    "path": (
        ("request", "uri"), ("request_uri",), ("uri",), ("path",), ("url",), ("RequestPath",),
        ("url", "original"), ("url.original",), ("httpRequest", "requestUrl"), ("request", "url"),
        ("req", "url"), ("request_path",), ("x-envoy-origin-path",),
    ),
    "status": (
        ("status",), ("status_code",), ("DownstreamStatus",), ("response_code",), ("code",),
        ("http", "response", "status_code"), ("http.response.status_code",), ("response", "status"),
        ("httpRequest", "status"), ("res", "statusCode"), ("http_status",), ("statusCode",),
    ),
    "agent": (
        ("request", "headers", "User-Agent"), ("http_user_agent",), ("user_agent",), ("agent",),
        ("request_User-Agent",), ("user_agent", "original"), ("user_agent.original",),
        ("httpRequest", "userAgent"), ("userAgent",), ("user-agent",),
        ("req", "headers", "user-agent"),
    ),
    "client": (
        ("request", "client_ip"), ("request", "remote_ip"), ("remote_addr",), ("client_ip",),
        ("ClientHost",), ("client", "ip"), ("client.ip",), ("remote_ip",), ("clientip",),
        ("httpRequest", "remoteIp"), ("ip",), ("client",), ("downstream_remote_address",),
    ),
    "time": (
        ("ts",), ("time",), ("timestamp",), ("@timestamp",), ("time_iso8601",), ("time_local",),
        ("StartUTC",), ("start_time",), ("msec",), ("date",),
    ),
    "query": (("args",), ("query_string",), ("query",)),
    "request": (("request",), ("request_line",)),
    "line": (("log",), ("message",), ("MESSAGE",), ("msg",)),
}  # fmt: skip


def _parse_json_line(line: bytes, *, is_wrapped: bool = False) -> LoggedRequest | None:
    try:
        record = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    status, time = _find_field(record, "status"), _find_field(record, "time")
    method, path = _find_field(record, "method"), _find_field(record, "path")
    request = b"" if method and path else _find_field(record, "request")
    if status and request:
        agent = _find_agent(record)
        return _build_request(request, status, agent, _find_field(record, "client"), time)
    if not (status and method and path):
        inner_line = _find_field(record, "line").rstrip()
        if not inner_line or is_wrapped:
            return None
        is_json = inner_line[:1] == b"{"
        return _parse_json_line(inner_line, is_wrapped=True) if is_json else parse_line(inner_line)
    query = _find_field(record, "query")
    request_target = _ORIGIN_PATTERN.sub(b"", path, count=1)
    request_target = (
        request_target
        if request_target[:1] == b"/"
        else b"/" + request_target
        if request_target[:1] in (b"", b"?")
        else b""
    )
    if query and query != b"-" and b"?" not in request_target:
        request_target += b"?" + query.lstrip(b"?")
    return LoggedRequest(
        method.upper(),
        escape_path(request_target),
        b"",
        status,
        _find_agent(record),
        _find_field(record, "client"),
        time,
    )


def _find_agent(record: Mapping[str, Any]) -> bytes | None:
    """Return the user agent: empty if the client sent none, ``None`` if the log records none."""
    for key_path in _JSON_FIELDS["agent"]:
        parent = _find_nested_value(record, key_path[:-1])
        # If a record contains all headers but no user agent, the client sent none.
        if isinstance(parent, dict) and (key_path[-1] in parent or "headers" in key_path):
            agent_value = parent.get(key_path[-1])
            if isinstance(agent_value, dict):
                continue
            agent = _encode_scalar(agent_value)[:_MAX_AGENT_LENGTH]
            return b"" if agent == b"-" else agent
    return None


def _find_field(record: Mapping[str, Any], field_name: str) -> bytes:
    """Return the first scalar value under the known JSON keys of a field, or empty bytes."""
    for key_path in _JSON_FIELDS[field_name]:
        if scalar := _encode_scalar(_find_nested_value(record, key_path)):
            return scalar
    return b""


def _find_nested_value(record: Any, key_path: tuple[str, ...]) -> Any:
    for record_key in key_path:
        record = record.get(record_key) if isinstance(record, dict) else None
    return record


def _encode_scalar(value: Any) -> bytes:
    """Encode a string, a number, or a list with one of them. Other values give empty bytes."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return b""
    try:
        return str(value).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return str(value).encode("utf-8", "replace")
