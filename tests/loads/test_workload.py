from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.registry import find_generator
from autotune.loads.workload import UnusableWorkload, parse_session_kinds, parse_uris
from autotune.target.read_target import read_target

LOCAL = (Path(__file__).parents[2] / "targets" / "local.yaml").read_text()
WRITTEN = "load: {generator: httperf, path: /kv.php, max_rate: 8000/s}"


@pytest.mark.parametrize("text", ["/a\n/b?x=1\n", "/a\0/b?x=1\0", "\n/a  \n\n/b?x=1"])
def test_uris(text: str) -> None:
    assert parse_uris(text) == ("/a", "/b?x=1")


def test_sessions_alike_are_one_kind() -> None:
    text = """# a comment
/one think=0.5
    /image
/two method=POST contents='x' think=9

/three think=0.5
/four
/five

/six
/seven think=0.25
/eight think=0.25
"""
    found = parse_session_kinds(text)
    # The pause after the last burst is nobody's.
    assert [(kind.request_count, kind.think_seconds, kind.session_count) for kind in found] == [
        (3, 0.5, 2),
        (3, 0.25, 1),
    ]
    assert found[0].session_log.count("\n\n") == 1
    assert parse_session_kinds(found[0].session_log) == (found[0],)


@pytest.mark.parametrize(
    ("reader", "text", "said"),
    [
        (parse_uris, " \n", "contains no path"),
        (parse_uris, "http://elsewhere.example/\n", "not a path"),
        (parse_session_kinds, "# nothing\n", "no session"),
        (parse_session_kinds, "http://elsewhere.example/\n", "not a path"),
        (parse_session_kinds, "  /image\n", "starts with"),
        (parse_session_kinds, "/a think=soon\n/b\n", "not a number"),
        (parse_session_kinds, "/a think=60\n/b\n", "60 s"),
        (parse_session_kinds, "\n\n".join("/a\n" * n for n in range(1, 10)), "9 different"),
    ],
)
def test_unusable(reader: type, text: str, said: str) -> None:
    with pytest.raises(UnusableWorkload, match=said):
        reader(text)


def target(tmp_path: Path, load: str) -> Path:
    assert WRITTEN in LOCAL
    path = tmp_path / "mine.yaml"
    path.write_text(LOCAL.replace(WRITTEN, f"load: {load}"))
    return path


def test_a_target_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("/a\n/b\n")
    load = find_generator(read_target(target(tmp_path, "{uris: list}")))
    assert load == HttperfGenerator(uris=("/a", "/b"))
    load = find_generator(read_target(target(tmp_path, "{sessions: list}")))
    assert isinstance(load, SessionGenerator)
    assert [kind.request_count for kind in load.kinds] == [2]


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("{uris: nowhere}", "cannot read nowhere"),
        ("{sessions: mine.yaml}", "not a path"),
        ("{uris: list, sessions: list}", "cannot be combined"),
        ("{generator: oha, uris: list}", "needs `generator: httperf`"),
        ("{command: [./mine], sessions: list}", "needs `generator: httperf`"),
        ('{url: "https://lb.example/", sessions: list}', "long responses over TLS"),
        ('{url: "https://lb.example/", requests: pauses.yaml}', "long responses over TLS"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_stands(load: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("/a\n/b\n")
    (tmp_path / "pauses.yaml").write_text(
        "requests: [{session: [{path: /a, think: 100ms}, {path: /b}]}]\n"
    )
    with pytest.raises(TargetError, match=said) as caught:
        find_generator(read_target(target(tmp_path, load)))
    assert "mine.yaml:21" in str(caught.value)
