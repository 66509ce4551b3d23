"""A file of requests: what it may say, and where a mistake in it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.target.requests_file import SessionStep, read_visits

YAML = """requests:
  - {path: /, weight: 10}
  - {path: /cart, method: POST, body: "id=1"}
  - session:
      - {path: /a, think: 500ms}
      - {path: /b}
    weight: 0.5
"""


def test_what_it_says(tmp_path: Path) -> None:
    (file := tmp_path / "r.yaml").write_text(YAML)
    first, second, third = read_visits(file)
    assert (first.weight, first.session_steps) == (10, (SessionStep(path="/"),))
    assert second.session_steps == (SessionStep(path="/cart", method="POST", body="id=1"),)
    assert (third.weight, third.session_steps) == (
        0.5,
        (SessionStep(path="/a", think="500ms"), SessionStep(path="/b")),
    )


def test_a_request_a_line(tmp_path: Path) -> None:
    (file := tmp_path / "r.jsonl").write_text('{"path": "/"}\n\n{"path": "/b", "weight": 3}\n')
    assert [(visit.path, visit.weight) for visit in read_visits(file)] == [("/", 1), ("/b", 3)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.yaml", "requests:\n- {paht: /}", "2:4: unknown key 'paht'"),
        ("r.yaml", "requests:\n- path: shop", "2:3: path: 'shop' is not a path on the site"),
        ("r.yaml", "requests: []", "1:1: requests: needs 1 to 1000 entries, not 0"),
        ("r.yaml", "requests:\n- {weight: 2}", "2:3: requests: needs either `path` or `session`"),
        ("r.yaml", "requests:\n- {path: /, weight: 0}", "2:13: weight: must be above 0"),
        ("r.yaml", "requests:\n- {path: /, body: a}", "2:3: requests: a GET request has no body"),
        ("r.yaml", "requests:\n- session:\n  - {path: /, think: 2}",
         "3:15: think: 2 has no unit"),
        ("r.jsonl", '{"path": "/"}\n{"path": ', "2:1: not JSON"),
        ("r.jsonl", '{"path": "/"}\n' + "[" * 99_999, "2:1: not JSON: JSON is nested too deeply"),
        ("r.jsonl", '{"path": "/", "weight": 1e999}', "1:1: not JSON"),
        ("r.jsonl", '{"path": "/"}\n{"path": "x"}', "2:1: path: 'x' is not a path"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place(tmp_path: Path, name: str, text: str, message: str) -> None:
    (file := tmp_path / name).write_text(text)
    with pytest.raises(TargetError) as raised:
        read_visits(file)
    assert raised.value.message.startswith(f"{file}:{message}")
