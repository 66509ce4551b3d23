from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.registry import find_generator
from autotune.loads.workload import (
    UnusableWorkload,
    expand_visits,
    format_session_line,
    group_sessions,
    parse_sessions,
    parse_uris,
)
from autotune.target.read_target import read_target
from autotune.target.requests_file import SessionStep, WeightedVisit

LOCAL = (Path(__file__).parents[2] / "targets" / "local.yaml").read_text()
WRITTEN = "load: {generator: httperf, path: /kv.php, max_rate: 8000/s}"


@pytest.mark.parametrize("text", ["/a\n/b?x=1\n", "/a\0/b?x=1\0", "\n/a  \n\n/b?x=1"])
def test_uris(text: str) -> None:
    assert [visit.path for visit in parse_uris(text)] == ["/a", "/b?x=1"]


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
    found = group_sessions(parse_sessions(text))
    # The pause after the last burst is nobody's.
    assert [(kind.request_count, kind.think_seconds, kind.session_count) for kind in found] == [
        (3, 0.5, 2),
        (3, 0.25, 1),
    ]
    assert found[0].session_log.count("\n\n") == 1
    assert group_sessions(parse_sessions(found[0].session_log)) == (found[0],)


# A line, its step, and the line that httperf gets.
@pytest.mark.parametrize(
    ("line", "step", "written"),
    [
        ("/a", SessionStep(path="/a"), "/a"),
        ("/a   think=2.5", SessionStep.model_construct(path="/a", think=2.5), "/a think=2.5"),
        (
            r"""/a method=POST contents='say "a b" \\ more' think=1""",
            SessionStep.model_construct(
                path="/a", method="POST", body='say "a b" \\ more', think=1.0
            ),
            r"""/a method=POST contents="say \"a b\" \\ more" think=1""",
        ),
        (
            r'''/a method=PUT contents="one\ntwo"''',
            SessionStep(path="/a", method="PUT", body="one\ntwo"),
            r'''/a method=PUT contents="one\ntwo"''',
        ),
        (
            r"""/a method=POST contents=one\ttwo""",
            SessionStep(path="/a", method="POST", body="one\ttwo"),
            '/a method=POST contents="one\ttwo"',
        ),
        ("/a method=POST contents=''", SessionStep(path="/a", method="POST"), "/a method=POST"),
    ],
)
def test_lines_of_a_session(line: str, step: SessionStep, written: str) -> None:
    (visit,) = parse_sessions(line)
    assert visit.session_steps == (step,)
    assert format_session_line(step) == written


def test_a_pause_follows_the_last_request_of_its_burst() -> None:
    (visit,) = parse_sessions("/page think=0.5\n  /image\n  /icon think=9\n/next think=1\n")
    assert [(step.path, step.think) for step in visit.session_steps] == [
        ("/page", 0.0), ("/image", 0.0), ("/icon", 0.5), ("/next", 1.0),
    ]  # fmt: skip


def sessions(text: str) -> object:
    return group_sessions(parse_sessions(text))


@pytest.mark.parametrize(
    ("reader", "text", "said"),
    [
        (parse_uris, " \n", "contains no path"),
        (parse_uris, "http://elsewhere.example/\n", "not a path"),
        (parse_uris, "/a b\n", "contains a space"),
        (parse_uris, "/ü\n", "not ASCII"),
        (sessions, "# nothing\n", "no session"),
        (sessions, "http://elsewhere.example/\n", "not a path"),
        (sessions, "  /image\n", "starts with"),
        (sessions, "/a think=soon\n/b\n", "not a number"),
        (sessions, "/a think=60\n/b\n", "60 s"),
        (sessions, "/a think=-1\n/b\n", "negative"),
        (sessions, "/a\n/b POST\n", "'POST' is not an option"),
        (sessions, "/a\n/b method = POST\n", "'method' is not an option"),
        (sessions, "/a method=POST contents='x y\n", "is not an option"),
        (sessions, "/a method=POST contents='x'y\n", "is not an option"),
        (sessions, "/a method=post contents='x'\n", "'post' is not a method"),
        (sessions, "/a contents='x'\n", "a GET request has no body"),
        (sessions, "\n\n".join("/a\n" * n for n in range(1, 10)), "9 different"),
    ],
)
def test_unusable(reader: Callable[[str], object], text: str, said: str) -> None:
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
        ("{requests: patch.yaml}", "patch.yaml:2: httperf cannot send PATCH"),
        ("{method: PATCH}", "httperf cannot send PATCH"),
        (f"{{method: POST, body: {'x' * 9990}}}", "httperf reads at most 9998 bytes per request"),
        (f"{{generator: oha, method: POST, body: {'x' * 100_001}}}", "oha sends bodies of at most"),
    ],
    ids=lambda value: value[:60],
)
def test_what_does_not_fit_is_refused_where_it_stands(load: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("/a\n/b\n")
    (tmp_path / "pauses.yaml").write_text(
        "requests: [{session: [{path: /a, think: 100ms}, {path: /b}]}]\n"
    )
    (tmp_path / "patch.yaml").write_text(
        "requests:\n  - session: [{path: /a}, {path: /b, method: PATCH, body: x}]\n"
    )
    with pytest.raises(TargetError, match=said) as caught:
        find_generator(read_target(target(tmp_path, load)))
    assert "mine.yaml:21" in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "mixed"),
    [
        ([1, 1, 1], "abc"),
        ([3, 1], "aaba"),
        ([2, 2], "ab"),
        ([4, 1, 1], "abaaca"),
    ],
)
def test_weights_are_evenly_mixed(weights: list[float], mixed: str) -> None:
    visits = [
        WeightedVisit(path=f"/{name}", weight=w) for name, w in zip("abc", weights, strict=False)
    ]
    assert "".join(visit.path[1:] for visit in expand_visits(visits, 100)) == mixed
