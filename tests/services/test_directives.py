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
    SIGNED_NUMBER,
    DirectiveInsertion,
    Notation,
    Tunable,
    append_line,
    build_size_notation,
    find_file_end,
    insert_expression,
    map_directives,
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
        (build_size_notation("MB"), "1g", 1024),
        (build_size_notation("MB"), "512k", None),
        (SIGNED_NUMBER, "-1", -1),
        (SIGNED_NUMBER, "17", 17),
        (SIGNED_NUMBER, "--1", None),
        (SIGNED_NUMBER, "", None),
    ],
)
def test_what_is_written_means(notation: Notation, text: str, value: Value | None) -> None:
    assert notation.parse(text) == value


def test_what_is_left_stays_for_the_reason_given() -> None:
    config = Config("/etc/a.conf", {"/etc/a.conf": "b = 1\n"})
    absent = append_line(config, 8, "a = ")
    adopted, left = (
        map_directives(
            config, [Tunable("a", "a", NUMBER, insertion=absent, skip_reason=why)], lambda *_: True
        )
        for why in ("", "the command says it")
    )
    assert [(edit.path, edit.start) for edit in adopted.edits] == find_file_end(config)
    assert (adopted.values, adopted.skipped) == ({"a": 8}, {})
    assert (left.edits, left.values, left.skipped) == ((), {}, {"a": "the command says it"})


@pytest.mark.parametrize("left", ["", "the command says it"])
def test_what_goes_with_another_is_there_with_it_alone(left: str) -> None:
    config, end = Config("/etc/a.conf", {"/etc/a.conf": "x"}), ("/etc/a.conf", 1)
    a = Tunable(
        "a",
        "a",
        NUMBER,
        insertion=DirectiveInsertion(8, [("/etc/a.conf", 0), end], "a ", ";"),
        skip_reason=left,
        extra_edits=lambda _, now: insert_expression([end], '"c"', f"a > {now}"),
    )
    b = Tunable("b", "b", NUMBER, insertion=DirectiveInsertion(9, [end], "\n", condition="a > 5"))
    adopted = map_directives(config, [a, b], lambda *_: True)
    assert adopted.values == ({} if left else {"a": 8, "b": 9})
    assert [(edit.start, edit.text) for edit in adopted.edits] == ([] if left else [
        (1, '{{ "c" if a > 8 else "" }}'),
        (0, '{{ "a " ~ a ~ ";" if a != 8 else "" }}'),
        (1, '{{ "a " ~ a ~ ";" if a != 8 else "" }}'),
        (1, '{{ "\\n" ~ b if a > 5 else "" }}'),
    ])  # fmt: skip
