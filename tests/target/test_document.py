from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.target.document import Document, nearest
from autotune.target.yaml_tree import load

TEXT = """\
name: shop
slo: {p99: 50ms}
tiers:
  web:
    hosts:
      - web1
      - web2
    service: nginx
"""


@pytest.fixture
def document(tmp_path: Path) -> Document:
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT)
    return load(path)


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ((), (1, 1)),
        (("name",), (1, 1)),
        (("slo",), (2, 1)),
        (("slo", "p99"), (2, 7)),
        (["tiers", "web", "hosts", 1], (7, 9)),
        # What is not there is where it would be: at its nearest parent.
        (("slo", "errors"), (2, 1)),
        (("tiers", "web", "hosts", 2), (5, 5)),
        (("tiers", "web", "service", 0), (8, 5)),
        (("budget", "time"), (1, 1)),
    ],
)
def test_position(document: Document, location: list[str | int], place: tuple[int, int]) -> None:
    assert document.position(location) == place


def test_error_names_file_line_and_column(document: Document) -> None:
    error = document.error(("slo", "p99"), "too strict", hint="be kind")
    assert isinstance(error, TargetError)
    assert error.message == f"{document.path}:2:7: too strict"
    assert error.hint == "be kind"


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["parameters", "tiers", "hosts"], "did you mean 'tiers'?"),
        (["b", "a"], "there is: a, b"),
        ([], "there is: none"),
    ],
)
def test_unknown_name_has_an_alternative(document: Document, known: list[str], hint: str) -> None:
    error = document.unknown(("tires",), "key", known)
    assert error.message.endswith(": unknown key 'tires'")
    assert error.hint == hint


@pytest.mark.parametrize(
    ("name", "meant"),
    [("forward_to", "forwards_to"), ("adress", "address"), ("colour", None), ("", None)],
)
def test_nearest(name: str, meant: str | None) -> None:
    assert nearest(name, ["address", "forwards_to", "hosts"]) == meant
