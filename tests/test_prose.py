"""What people read keeps the prose standard; what breaks it already may only become less.

`python -m scripts.prose` shows the state, `python -m scripts.prose SURFACE` the sentences. A flag is a
reason to rewrite a sentence for its reader; do not rewrite it for the pattern.
"""

from __future__ import annotations

import pytest

from scripts.prose import baseline, page_texts, rules, surfaces

BAD = [
    ("subject-first", "Known are nginx, Apache and HAProxy."),
    ("subject-first", "Of a name that its files have several times the last line is edited."),
    ("no-what-subject", "What needs one is left as it is there."),
    ("relative-clause", "The line is edited that the software takes."),
    ("no-speech", "The study records the values, and the hosts say the rest."),
    ("contains", "SECURITY.md is a page; that page has the line of sudoers."),
    ("not-a", "'0,5' is no list."),
    ("not-a", "there is no bed CODE"),
    ("your-own", "Use a script of your own."),
    ("repeat-noun", "those of a noisy bed get less weight."),
    ("exit-status", "The command ends with 4."),
    ("untouched", "The file is left alone."),
    ("be-of", "The answer is of another server."),
    ("actor", "A database is looked at first."),
    ("retired-word", "It is stopped and begun anew."),
    ("retired-word", "Options count more than files."),
    ("plain-phrase", "The setting may do nothing here."),
    ("one-colon", "One condition: two of them; and a third: more."),
    ("too-long", " ".join(["word"] * 26)),
]
GOOD = [
    "autotune supports nginx, Apache and HAProxy.",
    "If a setting occurs several times, autotune edits the last line.",
    "Settings that need a restart are not tuned.",
    "Workers wait up to ten minutes for a restarted database.",
    "The study records the values read from the hosts.",
    "SECURITY.md shows the sudoers line.",
    "invalid --concurrency CODE: expected numbers from 1 to N, such as 1,5.",
    "Peaks from a noisy bed get less weight.",
    "The command exits with status 4.",
    "Options override files.",
    "The model predicts no effect.",
    'Readings are corrected; see "CPU steal" in the report.',
]


@pytest.mark.parametrize(("rule", "sentence"), BAD)
def test_a_sentence_that_breaks_the_standard_is_flagged(rule: str, sentence: str) -> None:
    assert rule in rules.broken("docs", sentence)
    assert rules.ADVICE[rule]


@pytest.mark.parametrize("sentence", GOOD)
def test_a_plain_sentence_is_not_flagged(sentence: str) -> None:
    assert rules.broken("docs", sentence) == ()


def test_limits_of_length_depend_on_the_surface() -> None:
    sentence = " ".join(["word"] * 13)
    assert rules.broken("help", sentence) == ("too-long",)
    assert rules.broken("errors", sentence) == ()


def test_paragraphs_and_items_have_limits() -> None:
    long = "It is so. " * 5
    page = f"# Heading\n\n{long}\n\n- {'word ' * 36}\n- short\n\n```\n{long}\n```\n| {long} |\n"
    blocks = list(page_texts.markdown(page))
    broken = [rules.broken_by_block(block.text, is_item=block.is_item) for block in blocks]
    assert broken == [("paragraph-too-long",), ("item-too-long",), ()]
    assert [block.line for block in blocks] == [3, 5, 6]


def test_every_surface_is_read() -> None:
    sentences = {surface for surface, *_ in surfaces.sentences()}
    assert sentences == {*surfaces.SURFACES}


def test_no_file_breaks_the_standard_more_often_than_before() -> None:
    """A count that fell is stored, too: the next sentence must not use it up."""
    flags, stored = list(surfaces.flags()), baseline.read()
    counts = surfaces.counts()
    rose = {place for place, count in counts.items() if count > stored[place]}
    fell = sorted(place for place, count in stored.items() if count > counts[place])
    lines = [f"{flag}\n    {'; '.join(rules.ADVICE[name] for name in flag.rules)}"
             for flag in flags if (flag.surface, flag.path) in rose]  # fmt: skip
    assert rose == set(), "new flags are among these:\n" + "\n".join(lines)
    assert fell == [], "run python -m scripts.prose --write"
