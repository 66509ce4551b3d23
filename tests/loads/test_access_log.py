"""What a log becomes, and what of it is left out, counted by its reason."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import AutotuneError
from autotune.loads import access_log
from autotune.target import requests_file

LINES = r"""10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /?p=12 HTTP/1.1" 200 5123 "-" "Mozilla (X11)"
10.0.0.1 - bob jones [22/Nov/2026:08:00:01 +0000] "GET /?p=12 HTTP/1.1" 304 0 "-" "Mozilla \"x\""
shop.example:443 10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /s?q=a HTTP/2.0" 200 12 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "HEAD /s?q=a HTTP/1.0" 200 5123
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "POST /login HTTP/1.1" 200 5123 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET /missing HTTP/1.1" 404 5123 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET http://elsewhere/ HTTP/1.1" 200 5123 "-" "-"
10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "\x16\x03\x01" 400 5123 "-" "-"
nonsense
""".splitlines()


def test_requests_are_counted_and_the_rest_by_its_reason() -> None:
    recorded = access_log.parse_access_log(LINES)
    assert recorded.requests == {("GET", "/?p=12"): 2, ("GET", "/s?q=a"): 1, ("HEAD", "/s?q=a"): 1}
    assert recorded.skipped == {
        "not a request in combined format": 3,
        "POST may change data (--unsafe keeps it)": 1,
        "status 404": 1,
    }
    assert recorded.used_count + recorded.skipped.total() == len(LINES)


def test_unsafe_methods_where_they_are_asked_for() -> None:
    assert access_log.parse_access_log(LINES, keep_unsafe=True).requests["POST", "/login"] == 1


def test_rare_pages_are_left_out_beyond_so_many() -> None:
    recorded = access_log.parse_access_log(LINES, max_requests=1)
    assert recorded.requests == {("GET", "/?p=12"): 2}
    assert recorded.skipped["page is not among the 1 most frequent"] == 2


@pytest.mark.parametrize(
    ("path", "masked"),
    [
        ("/s?q=red+shoes&page=2", "/s?q=red+shoes&page=2"),
        ("/reset?token=h9sKd02Lss8f&lang=de", "/reset?token=masked&lang=de"),
        ("/a?api_key=hunter2", "/a?api_key=masked"),
        ("/a?password=hunter2#x", "/a?password=masked"),
        ("/wp/3f9adeadbeef3f9adeadbeef3f9adead/x", "/wp/masked/x"),
        ("/a?x=eyJhbGciOiJIUzI1.eyJzdWIiOiIx", "/a?x=masked"),
    ],
)
def test_what_looks_like_a_secret_is_masked(path: str, masked: str) -> None:
    assert access_log.mask_secrets(path) == masked


def test_the_command_writes_what_a_target_reads(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("\n".join(LINES) + "\n")
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


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-20], lambda packed: packed[:12] + b"x" * 40]
)
def test_a_log_that_is_cut_or_damaged_cannot_be_read(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    log = tmp_path / "access.log.gz"
    log.write_bytes(damage(gzip.compress("\n".join(LINES).encode())))
    ended = CliRunner().invoke(app, ["workload", "from-log", str(log)])
    assert isinstance(ended.exception, AutotuneError)
    assert str(ended.exception).startswith(f"cannot read {log}: ")


def test_the_name_of_a_log_stays_in_its_comment(tmp_path: Path) -> None:
    written = access_log.parse_access_log(LINES).format_request_file(
        "a\nrequests: [{path: /elsewhere}]\n#.log"
    )
    (tmp_path / "requests.yaml").write_text(written)
    assert "/elsewhere" not in {
        visit.path for visit in requests_file.read_visits(tmp_path / "requests.yaml")
    }


@pytest.mark.parametrize(
    "path", ["/" + "${" * 200, "/?a[]=1&b[x]=2", "/{" + "}]" * 90, "/[[" + "{}" * 50]
)
def test_brackets_in_a_path_are_read_again(path: str, tmp_path: Path) -> None:
    lines = [f'10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET {path}{n} HTTP/1.1" 200 1'
             for n in range(99)]  # fmt: skip
    (tmp_path / "requests.yaml").write_text(
        access_log.parse_access_log(lines).format_request_file("a.log")
    )
    visits = requests_file.read_visits(tmp_path / "requests.yaml")
    assert [visit.path for visit in visits] == [f"{path}{n}" for n in range(99)]


def test_a_log_of_nothing_that_could_be_sent(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("nonsense\n")
    ended = CliRunner().invoke(app, ["workload", "from-log", str(tmp_path / "access.log")])
    assert "contains no usable request" in str(ended.exception)
