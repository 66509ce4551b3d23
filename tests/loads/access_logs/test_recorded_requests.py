"""Workloads from logs: used requests, and the others by reason."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import AutotuneError, UsageError
from autotune.loads.access_logs import log_files, recorded_requests
from autotune.loads.access_logs.automated_requests import HEALTH_CHECK
from autotune.loads.access_logs.recorded_requests import RecordedRequests, RequestFilter
from autotune.target import requests_file
from tests.full_disk import limit_file_size

LINES = rb"""10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /?p=12 HTTP/1.1" 200 5123 "-" "Mozilla (X11)"
10.0.0.1 - bob jones [22/Nov/2026:08:00:01 +0000] "GET /?p=12 HTTP/1.1" 304 0 "-" "Mozilla \"x\""
shop.example:443 10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /s?q=a HTTP/2.0" 200 12 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "HEAD /s?q=a HTTP/1.0" 200 5123
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "POST /login HTTP/1.1" 200 5123 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /missing HTTP/1.1" 404 5123 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET http://elsewhere/ HTTP/1.1" 200 5123 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "\x16\x03\x01" 400 5123 "-" "-"
nonsense
""".splitlines()


def record(lines: list[bytes], *request_filter: RequestFilter) -> RecordedRequests:
    return recorded_requests.record_requests({Path("access.log"): lines}, *request_filter)


def test_requests_are_counted_and_the_rest_by_its_reason() -> None:
    recorded = record(LINES)
    assert recorded.requests == {("GET", "/?p=12"): 2, ("GET", "/s?q=a"): 1, ("HEAD", "/s?q=a"): 1}
    assert recorded.skipped == {
        "line in an unknown format": 1,
        "not a valid request": 2,
        "POST may change data (--unsafe keeps such requests)": 1,
        "status 404": 1,
    }
    assert recorded.used_count + recorded.skipped.total() == len(LINES)


def test_unsafe_methods_where_they_are_asked_for() -> None:
    assert record(LINES, RequestFilter(keep_unsafe=True)).requests["POST", "/login"] == 1


@pytest.mark.parametrize(
    ("path", "masked"),
    [
        ("/s?q=red+shoes&page=2", "/s?q=red+shoes&page=2"),
        ("/reset?token=h9sKd02Lss8f&lang=de", "/reset?token=masked&lang=de"),
        ("/a?api_key=hunter2", "/a?api_key=masked"),
        ("/a?password=hunter2#x", "/a?password=masked"),
        ("/a?user%5Bpassword%5D=hunter2&p=2", "/a?user%5Bpassword%5D=masked&p=2"),
        ("/login?next=%2Freset%3Ftoken%3Dh9sKd02Lss8f", "/login?next=masked"),
        ("/in?next=%2Fs%3Fpage%3D2&f%5Bsize%5D=12", "/in?next=%2Fs%3Fpage%3D2&f%5Bsize%5D=12"),
        ("/wp/3f9adeadbeef3f9adeadbeef3f9adead/x", "/wp/masked/x"),
        ("/a?x=eyJhbGciOiJIUzI1.eyJzdWIiOiIx", "/a?x=masked"),
    ],
)
def test_what_looks_like_a_secret_is_masked(path: str, masked: str) -> None:
    assert recorded_requests.mask_secrets(path) == masked


def test_the_command_writes_what_a_target_reads(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(b"\n".join(LINES).decode() + "\n")
    out = tmp_path / "requests.yaml"
    words = ["workload", "from-log", str(tmp_path / "access.log"), "-o", str(out)]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    assert "4 requests for 3 pages" in ended.output
    assert "left out: 1 × status 404" in ended.output
    visits = requests_file.read_visits(out)
    assert [(v.session_steps[0].method, v.path, v.weight) for v in visits] == [
        ("GET", "/?p=12", 2), ("GET", "/s?q=a", 1), ("HEAD", "/s?q=a", 1),
    ]  # fmt: skip
    again = CliRunner().invoke(app, words)
    assert "already exists" in str(again.exception)


def test_a_list_that_a_full_disk_stopped_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(b"\n".join(LINES).decode() + "\n")
    out = tmp_path / "requests.yaml"
    words = ["workload", "from-log", str(tmp_path / "access.log"), "-o", str(out)]
    with limit_file_size(100):
        ended = CliRunner().invoke(app, words)
    assert isinstance(ended.exception, OSError)
    assert not out.exists()


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-20], lambda packed: packed[:12] + b"x" * 40]
)
def test_a_log_that_is_cut_or_damaged_cannot_be_read(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    log = tmp_path / "access.log.gz"
    log.write_bytes(damage(gzip.compress(b"\n".join(LINES))))
    ended = CliRunner().invoke(app, ["workload", "from-log", str(log)])
    assert isinstance(ended.exception, AutotuneError)
    assert str(ended.exception).startswith(f"cannot read {log}: ")


def test_the_name_of_a_log_stays_in_its_comment(tmp_path: Path) -> None:
    written = record(LINES).format_request_file(["a\nrequests: [{path: /elsewhere}]\n#.log"])
    (tmp_path / "requests.yaml").write_text(written)
    assert "/elsewhere" not in {
        visit.path for visit in requests_file.read_visits(tmp_path / "requests.yaml")
    }


@pytest.mark.parametrize(
    "path", ["/" + "${" * 200, "/?a[]=1&b[x]=2", "/{" + "}]" * 90, "/[[" + "{}" * 50]
)
def test_brackets_in_a_path_are_read_again(path: str, tmp_path: Path) -> None:
    lines = [f'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET {path}{n} HTTP/1.1" 200 1'.encode()
             for n in range(99)]  # fmt: skip
    (tmp_path / "requests.yaml").write_text(record(lines).format_request_file(["a.log"]))
    visits = requests_file.read_visits(tmp_path / "requests.yaml")
    assert {visit.path for visit in visits} == {f"{path}{n}" for n in range(99)}


def test_a_log_of_nothing_that_could_be_sent(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("nonsense\n")
    ended = CliRunner().invoke(app, ["workload", "from-log", str(tmp_path / "access.log")])
    assert "no usable request in" in str(ended.exception)


def test_patterns_exclude_paths_clients_and_agents() -> None:
    exclude = ("/admin/*", "10.7.*", "*Monitor*", "/none")
    lines = [
        b'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /admin/x HTTP/1.1" 200 1 "-" "A"',
        b'10.7.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET / HTTP/1.1" 200 1 "-" "A"',
        b'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET / HTTP/1.1" 200 1 "-" "My Monitor/1"',
        b'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET / HTTP/1.1" 200 1 "-" "A"',
    ]
    recorded = record(lines, RequestFilter(exclude=exclude))
    assert recorded.requests == {("GET", "/"): 1}
    assert recorded.skipped == {
        "excluded by /admin/*": 1, "excluded by 10.7.*": 1, "excluded by *Monitor*": 1,
        "excluded by /none": 0,
    }  # fmt: skip


def test_clients_behind_a_syslog_prefix_are_recognised() -> None:
    """nginx sends no process ID to a syslog, so the first address in a line follows a time."""

    def line(second: int, client: str, path: str) -> bytes:
        clock = f"08:{second // 60:02}:{second % 60:02}"
        return (
            f"<190>Nov 22 {clock} web1 nginx: {client} - - [22/Nov/2026:{clock} +0000] "
            f'"GET {path} HTTP/1.1" 200 1 "-" "-"'
        ).encode()

    lines = [line(5 * turn, "10.0.0.9", "/") for turn in range(40)]
    lines += [line(7, "10.7.0.1", "/b"), line(8, "10.0.0.1", "/c")]
    recorded = record(lines, RequestFilter(exclude=("10.7.*",)))
    assert recorded.requests == {("GET", "/c"): 1}
    assert recorded.skipped == {HEALTH_CHECK: 40, "excluded by 10.7.*": 1}


def test_health_checks_and_crawlers_are_left_out_with_a_count() -> None:
    def line(second: int, client: str, request: str, agent: str) -> bytes:
        time = f"22/Nov/2026:08:{second // 60:02}:{second % 60:02} +0000"
        return f'{client} - - [{time}] "{request}" 200 9 "-" "{agent}"'.encode()

    lines = [
        *(line(10 * n, "10.0.0.2", "GET / HTTP/1.0", "-") for n in range(40)),  # a load balancer
        *(line(n * n % 977, "10.0.0.3", "GET / HTTP/1.1", "-") for n in range(40)),  # a script
        *(line(10 * n, "10.0.0.4", "GET / HTTP/1.1", "Mozilla") for n in range(40)),  # a user
        line(1, "10.0.0.5", "GET / HTTP/1.1", "kube-probe/1.27"),
        line(1, "10.0.0.5", "GET /healthz HTTP/1.1", "Mozilla"),
        line(1, "10.0.0.6", "GET / HTTP/1.1", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://x)"),
        line(1, "10.0.0.2", "OPTIONS / HTTP/1.0", "-"),
    ]
    recorded = record(lines)
    assert recorded.requests == {("GET", "/"): 80}
    assert recorded.skipped == {
        "health check or monitoring": 42, "crawler": 1, "the OPTIONS method does not request a page": 1,
    }  # fmt: skip


def test_a_list_of_many_pages_is_a_sample_with_its_coverage(tmp_path: Path) -> None:
    def line(path: str) -> bytes:
        return f'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET {path} HTTP/1.1" 200 1'.encode()

    lines = [line("/") for _ in range(5000)] + [line(f"/item/{n}") for n in range(5000)]
    recorded = record(lines)
    assert len(recorded.requests) == requests_file.MAX_REQUESTS
    assert recorded.requests["GET", "/"] == 5000
    assert recorded.coverage == pytest.approx((5000 + 999) / 10_000)
    rest = sum(weight for page, weight in recorded.requests.items() if page != ("GET", "/"))
    assert rest == pytest.approx(5000, rel=0.1)
    (tmp_path / "many.log").write_bytes(b"\n".join(lines))
    ended = CliRunner().invoke(app, ["workload", "from-log", str(tmp_path / "many.log")])
    assert "covers 60% of the requests" in ended.stderr
    assert "# warning: the list is a sample of the pages, and covers 60%" in ended.stdout


def test_a_list_of_long_paths_is_as_large_as_a_target_may_be(tmp_path: Path) -> None:
    lines = [
        f'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /{n}/{"shoe/" * 180} HTTP/1.1" 200 1'.encode()
        for n in range(900)
    ]
    recorded = record(lines)
    (tmp_path / "requests.yaml").write_text(recorded.format_request_file(["a.log"]))
    visits = requests_file.read_visits(tmp_path / "requests.yaml")
    assert 100 < len(visits) < 900
    assert sum(visit.weight for visit in visits) == pytest.approx(900, rel=0.1)


def test_several_logs_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LINES[0] + b"\n" + LINES[1])
    (tmp_path / "b.log.1").write_bytes(gzip.compress(LINES[0] + b"\n"))
    words = ["workload", "from-log", str(tmp_path / "a.log"), "-", str(tmp_path / "b.log.1")]
    ended = CliRunner().invoke(app, words, input=LINES[0] + b"\r\n")
    assert ended.exit_code == 0, ended.output
    assert 'requests for 1 pages, "a.log", "standard input", "b.log.1"' in ended.stdout
    assert "weight: 4}" in ended.stdout


def test_a_log_without_a_request_is_named_after_it_was_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = {
        "access.log": LINES[0],
        "late.log": b"nonsense\n" * 2000 + LINES[0],
        "404.log": LINES[5],
        "empty.log": b"\n",
        "compose.yaml": b"services: {}\n",
    }
    for name, text in logs.items():
        (tmp_path / name).write_bytes(text)
    opened: list[str] = []
    open_raw = log_files._open_raw
    monkeypatch.setattr(
        log_files, "_open_raw", lambda path: opened.append(path.name) or open_raw(path)
    )
    words = ["workload", "from-log", *(str(tmp_path / name) for name in logs), "-"]
    ended = CliRunner().invoke(app, words, input=b"nonsense\n")
    assert ended.exit_code == 0, ended.output
    assert opened == [*logs, "-"]
    warnings = [line for line in ended.stderr.splitlines() if "contains no request" in line]
    assert warnings == [
        f"autotune: warning: {name} contains no request"
        for name in (tmp_path / "compose.yaml", "standard input")
    ]


def test_a_log_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["workload", "from-log", "-", "-"], input=b"")
    assert str(ended.exception).endswith(" is given twice")


def test_hostile_lines_reach_no_terminal_and_no_list(tmp_path: Path) -> None:
    lines = [
        b'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /\x1b]52;c;aGk=\x07 HTTP/1.1" 200 1',
        b'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /\xff\xfe HTTP/1.1" 200 1',
        b'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "EVIL\x1b[2J / HTTP/1.1" 200 1',
        b"x" * 3_000_000,
        b"{" + b'"a":[' * 10_000,
        b'{"method": "GET", "uri": "/\\ud800", "status": NaN}',
        b'{"method": ["GET"], "uri": {"a": 1}, "status": 200}',
    ]
    (tmp_path / "hostile.log").write_bytes(b"\n".join(lines))
    ended = CliRunner().invoke(app, ["workload", "from-log", str(tmp_path / "hostile.log")])
    assert ended.exit_code == 0, ended.output
    assert "\x1b" not in ended.output
    assert '"/%1B\\u005d52;c;aGk=%07"' in ended.stdout
    assert '"/%FF%FE"' in ended.stdout
    assert "1 × line longer than 64 KB" in ended.stderr


@pytest.mark.parametrize("pattern", ["/a\nrequests: []", "/\udcff", "\x1b[2J"])
def test_a_pattern_that_no_list_can_contain_is_refused(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "access.log").write_bytes(b"\n".join(LINES))
    words = ["workload", "from-log", str(tmp_path / "access.log"), "--exclude", pattern]
    ended = CliRunner().invoke(app, words)
    assert isinstance(ended.exception, UsageError)
    assert "--exclude" in str(ended.exception)
