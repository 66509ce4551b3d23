"""How values are written in files of configuration."""

from __future__ import annotations

import pytest

from autotune.services.base import Value
from autotune.services.config_files import Config
from autotune.services.directives import (
    KILOBYTES,
    MILLISECONDS,
    NUMBER,
    SECONDS,
    SIGNED,
    Absent,
    Notation,
    Tunable,
    at_end,
    inserted,
    last_line,
    map_directives,
    size,
)


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
        (SECONDS, "2m", 120),
        (SECONDS, "2ms", None),
        (KILOBYTES, "4096", 4),
        (KILOBYTES, "4K", 4),
        (KILOBYTES, "1m", 1024),
        (KILOBYTES, "1g", None),
        (KILOBYTES, "4095", None),
        (size("MB"), "1g", 1024),
        (size("MB"), "512k", None),
        (SIGNED, "-1", -1),
        (SIGNED, "17", 17),
        (SIGNED, "--1", None),
        (SIGNED, "", None),
    ],
)
def test_what_is_written_means(notation: Notation, text: str, value: Value | None) -> None:
    assert notation.read(text) == value


def test_what_is_left_stays_for_the_reason_given() -> None:
    config = Config("/etc/a.conf", {"/etc/a.conf": "b = 1\n"})
    absent = last_line(config, 8, "a = ")
    adopted, left = (
        map_directives(
            config, [Tunable("a", "a", NUMBER, absent=absent, left=why)], lambda *_: True
        )
        for why in ("", "the command says it")
    )
    assert [(edit.path, edit.start) for edit in adopted.edits] == at_end(config)
    assert (adopted.values, adopted.left) == ({"a": 8}, {})
    assert (left.edits, left.values, left.left) == ((), {}, {"a": "the command says it"})


@pytest.mark.parametrize("left", ["", "the command says it"])
def test_what_goes_with_another_is_there_with_it_alone(left: str) -> None:
    config, end = Config("/etc/a.conf", {"/etc/a.conf": "x"}), ("/etc/a.conf", 1)
    a = Tunable("a", "a", NUMBER, absent=Absent(8, [("/etc/a.conf", 0), end], "a ", ";"), left=left,
                also=lambda _, now: inserted([end], '"c"', f"a > {now}"))  # fmt: skip
    b = Tunable("b", "b", NUMBER, absent=Absent(9, [end], "\n", condition="a > 5"))
    adopted = map_directives(config, [a, b], lambda *_: True)
    assert adopted.values == ({} if left else {"a": 8, "b": 9})
    assert [(edit.start, edit.text) for edit in adopted.edits] == ([] if left else [
        (1, '{{ "c" if a > 8 else "" }}'),
        (0, '{{ "a " ~ a ~ ";" if a != 8 else "" }}'),
        (1, '{{ "a " ~ a ~ ";" if a != 8 else "" }}'),
        (1, '{{ "\\n" ~ b if a > 5 else "" }}'),
    ])  # fmt: skip
