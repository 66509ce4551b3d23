"""How values are written in files of configuration."""

from __future__ import annotations

import pytest

from autotune.services.base import Value
from autotune.services.directives import MILLISECONDS, SIGNED, Notation


@pytest.mark.parametrize(
    ("notation", "text", "value"),
    [
        (MILLISECONDS, "50000", 50_000),
        (MILLISECONDS, "50s", 50_000),
        (MILLISECONDS, "1m", 60_000),
        (MILLISECONDS, "2000us", 2),
        (MILLISECONDS, "500us", None),
        (MILLISECONDS, "4 s", None),
        (MILLISECONDS, "4y", None),
        (MILLISECONDS, "$LONG", None),
        (SIGNED, "-1", -1),
        (SIGNED, "17", 17),
        (SIGNED, "--1", None),
        (SIGNED, "", None),
    ],
)
def test_what_is_written_means(notation: Notation, text: str, value: Value | None) -> None:
    assert notation.read(text) == value
