"""The words of the code, its messages and its documents are those of the field.

``pytest -s`` shows how much was read. A word is looked for in identifiers split at their joints
(``peak_hunt``, ``PeakHunt``), in string literals, comments and docstrings, and in the documents.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import retired_words
from tests.sources import nodes

REPOSITORY = Path(__file__).parents[1]
CODE = sorted((REPOSITORY / "autotune").rglob("*.py"))
DOCUMENTS = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "templates").rglob("*.j2")),
    *sorted((REPOSITORY / "autotune").rglob("*.sh")),
]
# Private words, as regular expressions of whole words, and what the field says instead.
PRIVATE = {
    "equipment": "environment, session",
    "gauges?": "meter",
    "narrators?|harmless": "progress reporter, ignore errors",
    "contests?|standings?|contenders?": "ranking, leader, candidates",
    "opponents?": "reference configuration",
    "sittings?": "session",
    "grounds?": "run directory, context",
    "wanted": "desired",
    "judg(e|es|ed|ing|ement)": "validate",
    "insists?|insisting": "run checked, validate, refuse",
    "put_?back|puts? back|putting back|give_?back|gives? back|gave back": "restore",
    "as (it|they) (was|were) found": "as before, from the backup",
    "handovers?|handed over": "export, manifest",
    "tally|tallies": "load result, counts",
    "blames?|blamed": "bottleneck, reclassify",
    "hunts?|hunting|hunter": "peak search",
    "warmth": "warm-up result",
    "calm|patience": "steal guard, retry budget",
    "footprints?": "host usage",
    "situations?": "reading context",
    "remed(y|ies)|heed(s|ing|ed|less)?": "recommended moves, follow",
    "landscapes?|heights": "surrogate model",
    "lattices?": "grid",
    "homes|strangers|mutants|timid": "incumbents, random candidates, mutations",
    "weighings": "effect estimates",
    "prospects?|hope|hopes": "probability of improvement",
    "merits?": "objective scale",
    "yardsticks?": "objective formatter",
    "ladders?|rungs?": "load curve, load step",
    "weather": "noise model",
    "knobs?": "parameter, directive",
    "manieth|plainly|riddles?": "say it in a sentence of the field",
}
# Words of everyday that say nothing of what a name holds.
NAMELESS = re.compile(r"found|seen|known|wanted|said|told|made|one|taken|given|shown")
KEYS = {
    "autotune/measure/benchmark.py": "said",
    "autotune/study/reading_records.py": "said",
}  # of journals on disk
# Where a private word stands all the same: file or folder, word, reason.
ALLOWED = [
    ("autotune/study/state_replay.py", "standings", "an event of journals on disk"),
    ("autotune/study/study_store.py", "standings", "an event of journals on disk"),
    ("autotune/study/journal_records.py", "standings", "an event of journals on disk"),
    ("autotune/report/", "remedy", "a key of `report --json`"),
    ("autotune/report/measurement_report.py", "ladder", "a key of `report --json`"),
    ("autotune/report/documents.py", "ladder", "a key of `measure --json`"),
    ("autotune/report/csv_and_metrics.py", "gauge", "a kind of metric in Prometheus' format"),
]
JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_+")
ANY = re.compile(rf"\b(?:{'|'.join(PRIVATE)})\b", re.IGNORECASE)
# Python 3.12 takes the text of an f-string as a token of its own.
WITH_PROSE = {
    tokenize.STRING,
    tokenize.COMMENT,
    getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
}


@functools.cache
def texts(path: Path) -> tuple[tuple[int, str], ...]:
    """Lines with a private word: identifiers split at their joints, literals and comments as they are."""
    source = path.read_text(encoding="utf-8")
    lines = enumerate(source.splitlines(), 1) if path.suffix != ".py" else python_texts(source)
    return tuple(line for line in dict.fromkeys(lines) if ANY.search(line[1]))


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], f"{token.string} {JOINT.sub(' ', token.string)}"
        elif token.type in WITH_PROSE:
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def is_allowed(place: str, word: str) -> bool:
    return any(place.startswith(start) and word == name for start, name, _ in ALLOWED)


@pytest.mark.parametrize("words", PRIVATE)
def test_private_words_are_not_used(words: str) -> None:
    pattern = re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    uses = []
    for path in [*CODE, *DOCUMENTS]:
        place = path.relative_to(REPOSITORY).as_posix()
        uses += [
            f"{place}:{line}: {match.group()!r}"
            for line, text in texts(path)
            for match in [pattern.search(text)]
            if match and not is_allowed(place, match.group().lower())
        ]
    print(f"{words}: {len(uses)} uses in {len(CODE)} modules, {len(DOCUMENTS)} documents")
    assert uses == [], f"the field says: {PRIVATE[words]}"


def bindings(module: Path) -> Iterator[ast.Name | ast.arg]:
    for node in nodes(module):
        if isinstance(node, ast.arg) or (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ):
            yield node


def test_locals_are_named_after_what_they_hold() -> None:
    uses = []
    for path in CODE:
        for node in bindings(path):
            name = node.arg if isinstance(node, ast.arg) else node.id
            place = path.relative_to(REPOSITORY).as_posix()
            if NAMELESS.fullmatch(name) and KEYS.get(place) != name:
                uses.append(f"{place}:{node.lineno}: {name}")
    print(f"{len(uses)} names without a meaning in {len(CODE)} modules")
    assert uses == []


def test_retired_words_and_names_become_fewer() -> None:
    """`python -m tests.retired_words` lowers the counts after a clean-up."""
    stored, uses = retired_words.read_baseline(), [*retired_words.find_uses()]
    counts = Counter(place for place, _ in uses)
    rose = {place for place, count in counts.items() if count > stored.get(place, 0)}
    print(f"{sum(counts.values())} uses of retired words and names, {sum(stored.values())} stored")
    assert [f"{where}: {place[1]}" for place, where in uses if place in rose] == []


RETIRED = {
    "beside": "A file beside it.",
    "carr(?:y|ies|ied|ying)": "It carries 5/s; capacity_carried was low.",
    "look(?:s|ed|ing)? at": "It is looked at. looking at it",
    "(?:some|any|no|every)body": "somebody, nobody",
}


@pytest.mark.parametrize("word", RETIRED)
def test_inflections_of_a_retired_word_are_found(word: str) -> None:
    lines = ((1, text) for text in (RETIRED[word], "A plain sentence of the field."))
    assert {found for _, found in retired_words.find_words(lines)} == {word}


NAMES = """
def found(): pass
def _rolled_back(part, other): left = each = 1
@property
def is_allowed(self): pass
def embed(size): count = 1
"""


def test_retired_names_and_participles_are_found(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(NAMES)
    kinds = [kind for _, kind in retired_words.find_names(tmp_path / "m.py")]
    assert kinds.count("def PARTICIPLE") == 2
    assert sorted(kind for kind in kinds if kind.startswith("name"))[-1] == "name parts?"
    assert len(kinds) == 5


@pytest.mark.parametrize(("place", "word", "reason"), ALLOWED)
def test_what_is_allowed_is_there(place: str, word: str, reason: str) -> None:
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    files = [path for path in [*CODE, *DOCUMENTS]
             if path.relative_to(REPOSITORY).as_posix().startswith(place)]  # fmt: skip
    assert any(pattern.search(text) for path in files for _, text in texts(path)), reason
