"""Lines of each format, and what they mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.loads.access_logs import line_formats
from autotune.loads.access_logs.line_formats import find_client, parse_line

TIME = "[22/Nov/2026:08:00:01 +0000]"
# line, then method, path, status, user agent, client
CASES = {
    "combined": (
        f'10.0.0.1 - - {TIME} "GET /a?b=1 HTTP/1.1" 200 5 "-" "Mozilla (X11)"',
        ("GET", "/a?b=1", "200", "Mozilla (X11)", "10.0.0.1"),
    ),
    "combined, with a field after it": (
        f'10.0.0.1 - - {TIME} "GET / HTTP/2.0" 200 5 "http://x/" "A" "10.9.9.9" 0.01',
        ("GET", "/", "200", "A", "10.0.0.1"),
    ),
    "combined, with escapes": (
        rf'10.0.0.1 - bob jones {TIME} "GET /caf\xC3\xA9?q=\"a\" HTTP/1.1" 200 5 "-" "x \"y\" z"',
        ("GET", "/caf%C3%A9?q=%22a%22", "200", r"x \"y\" z", "10.0.0.1"),
    ),
    "combined, without user agent": (
        f'10.0.0.1 - - {TIME} "GET / HTTP/1.0" 200 5 "-" "-"',
        ("GET", "/", "200", "", "10.0.0.1"),
    ),
    "common": (
        f'10.0.0.1 - - {TIME} "HEAD /a HTTP/1.0" 304 -',
        ("HEAD", "/a", "304", None, "10.0.0.1"),
    ),
    "virtual host first": (
        f'shop.example:443 2001:db8::7 - - {TIME} "GET / HTTP/1.1" 200 5 "-" "A"',
        ("GET", "/", "200", "A", "2001:db8::7"),
    ),
    "a resolved name": (
        f'client.example - - {TIME} "GET / HTTP/1.1" 200 5',
        ("GET", "/", "200", None, "client.example"),
    ),
    "syslog": (
        f'<190>Nov 22 08:00:01 web1 nginx[77]: 10.0.0.1 - - {TIME} "GET / HTTP/1.1" 200 5 "-" "A"',
        ("GET", "/", "200", "A", "10.0.0.1"),
    ),
    "nginx's own syslog": (
        f'<190>Nov 22 08:00:01 web1 nginx: 10.0.0.1 - - {TIME} "GET / HTTP/1.1" 200 5 "-" "A"',
        ("GET", "/", "200", "A", "10.0.0.1"),
    ),
    "a collector's time first": (
        f'2026-11-22 08:00:01.123 web1 2001:db8::7 - - {TIME} "GET / HTTP/1.1" 200 5',
        ("GET", "/", "200", None, "2001:db8::7"),
    ),
    "a container's log": (
        f'web-1  | 10.0.0.1 - - {TIME} "GET / HTTP/1.1" 200 5 "-" "A"',
        ("GET", "/", "200", "A", "10.0.0.1"),
    ),
    "HAProxy": (
        ("Nov 22 08:00:01 lb1 haproxy[1234]: 10.0.0.1:51234 [22/Nov/2026:08:00:01.123] fe~ be/web1 "
        '0/0/1/20/21 200 5123 - - ---- 3/2/1/1/0 0/0 "GET /a?b=1 HTTP/1.1"'),
        ("GET", "/a?b=1", "200", None, "10.0.0.1"),
    ),
    "HAProxy, with captures and escapes": (
        ("2026-11-22T08:00:01+00:00 lb1 haproxy[1]: ::ffff:10.0.0.1:5 [22/Nov/2026:08:00:01.123] fe "
        'be/<NOSRV> -1/-1/-1/-1/0 503 217 - - SC-- 3/2/1/1/+3 0/0 {shop|curl/8} {} "GET /#C3 HTTP/1.1"'),
        ("GET", "/%C3", "503", "shop|curl/8", "::ffff:10.0.0.1"),
    ),
    "Caddy": (
        ('{"level":"info","ts":1764000000.5,"logger":"http.log.access","msg":"handled request",'
        '"request":{"remote_ip":"10.0.0.1","proto":"HTTP/2.0","method":"GET","host":"x","uri":"/ü",'
        '"headers":{"User-Agent":["A/1"]}},"status":200,"size":5}'),
        ("GET", "/%C3%BC", "200", "A/1", "10.0.0.1"),
    ),
    "Caddy, without user agent": (
        '{"ts":1,"request":{"remote_ip":"10.0.0.1","method":"GET","uri":"/","headers":{}},"status":200}',
        ("GET", "/", "200", "", "10.0.0.1"),
    ),
    "nginx in JSON": (
        ('{"time_iso8601":"2026-11-22T08:00:01+00:00","remote_addr":"10.0.0.1","request":'
        '"GET /a HTTP/1.1","status":"200","http_user_agent":"-"}'),
        ("GET", "/a", "200", "", "10.0.0.1"),
    ),
    "nginx in JSON, by variable": (
        '{"remote_addr":"10.0.0.1","request_method":"GET","uri":"/a","args":"b=1","status":200}',
        ("GET", "/a?b=1", "200", None, "10.0.0.1"),
    ),
    "an application's JSON, with an absolute URL": (
        '{"method":"get","url":"https://shop.example/a?b","statusCode":200,"ip":"10.0.0.1"}',
        ("GET", "/a?b", "200", None, "10.0.0.1"),
    ),
    "Elastic Common Schema": (
        ('{"http":{"request":{"method":"GET"},"response":{"status_code":200}},"client":{"ip":"::1"},'
        '"url":{"original":"/a"},"user_agent":{"original":"A"}}'),
        ("GET", "/a", "200", "A", "::1"),
    ),
    "Docker's JSON around a line": (
        r'{"log":"10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] \"GET / HTTP/1.1\" 200 5\n"}',
        ("GET", "/", "200", None, "10.0.0.1"),
    ),
    "TLS at a plain port": (
        rf'10.0.0.1 - - {TIME} "\x16\x03\x01" 400 5 "-" "-"',
        ("", "", "400", "", "10.0.0.1"),
    ),
    "a request for another site": (
        f'10.0.0.1 - - {TIME} "GET http://elsewhere/ HTTP/1.1" 200 5 "-" "A"',
        ("GET", "", "200", "A", "10.0.0.1"),
    ),
}  # fmt: skip
UNKNOWN = [
    "",
    "nonsense",
    "{}",
    "[1]",
    '{"method": 1}',
    '{"log": "x"}',
    '{"log": {"log": "x"}}',
    "{",
]


@pytest.mark.parametrize("case", CASES)
def test_a_line_of_each_format(case: str) -> None:
    line, expected = CASES[case]
    request = parse_line(line.encode())
    assert request is not None
    agent = None if request.agent is None else request.agent.decode()
    assert (
        request.method.decode(),
        request.path.decode(),
        request.status.decode(),
        agent,
        find_client(request.head).decode(),
    ) == expected


@pytest.mark.parametrize("line", UNKNOWN)
def test_other_lines_are_unknown(line: str) -> None:
    assert parse_line(line.encode()) is None


@pytest.mark.parametrize("case", CASES)
def test_the_fast_path_agrees_with_the_pattern(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = CASES[case][0].encode()
    fast = parse_line(line)
    monkeypatch.setattr(line_formats, "_parse_plain_line", lambda _: None)
    assert parse_line(line) == fast


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["request", "method", "uri", "status", "headers", "log", "time", "args"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_json_of_any_shape_raises_nothing(record: Any) -> None:
    import json

    _check(json.dumps({"status": 200, "log": record, "request": record}).encode())


@given(st.binary(max_size=300), st.sampled_from([line.encode() for line, _ in CASES.values()]))
def test_damaged_lines_raise_nothing(noise: bytes, line: bytes) -> None:
    middle = len(noise) % len(line)
    _check(line[:middle] + noise + line[middle + len(noise) % 7 :])


def _check(line: bytes) -> None:
    request = parse_line(line)
    if request is not None and request.path:
        assert request.path.startswith(b"/")
        assert all(0x21 <= byte <= 0x7E for byte in request.path)
