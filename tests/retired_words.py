"""Retired words and names as data, and their counts.

Words are everyday words that hide the actor or the action. Names are identifiers that do not
describe their values. Counts per package may only fall: ``python -m tests.retired_words`` writes
them to retired_words.txt.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BASELINE = Path(__file__).with_name("retired_words.txt")
# Regular expressions of whole words with their inflections, and the replacement.
WORDS = {
    "carr(?:y|ies|ied|ying)": "sustain, serve",
    "(?:the )?machine below": "hypervisor",
    "stolen|taken cpu time": "CPU steal",
    "lets? in": "accept",
    "g[ai]ves? out|giving out": "reach its limit",
    "go(?:es|ing)? on|went on": "continue",
    "mend(?:s|ed|ing)?": "fix",
    "sets? aside|setting aside": "remove from the study",
    "puts? up|putting up": "set up",
    "anew": "again",
    "beside": "next to, in addition to",
    "needless(?:ly)?": "unnecessary, optional",
    "(?:some|any|no|every)body": "someone, another process, no one",
    "at one time": "concurrently",
    "in hand": "in flight",
    "so many": "the number, the limit",
    "count(?:s|ed|ing)? more": "override",
    "look(?:s|ed|ing)? at": "check, read",
    "h[oe]lds? back|holding back": "throttle",
    "begin(?:s|ning)?|began|begun": "start",
    "bits of a file|no bits": "mode",
    "ends? with (?:status )?[0-9]": "exit with status",
    "(?:a|in) circles?": "cycle",
    "seams?": "interface",
    "meanwhile": "during",
}
# Names of arguments, locals and fields, with advice for a better name.
NAMES = {
    "parts?": "instance, piece, component, word",
    "sites?": "placement, web site",
    "one|each|every|other|others|rest|whole|both|same|more": "the thing itself",
    "this|that|these|those|it|they|ours|mine|theirs|own|here|there|which|what": "the noun",
    "left|kept|asked|told|made|found|held|taken|given|shown|known|wanted|said|seen|meant|done": "noun",
    "settled|opened|drawn|put|gone|named|typed|listed|looked|written|chosen": "the thing itself",
    "beside|together|apart": "the thing itself",
}  # fmt: skip
# A function that is not a property must not be named by a participle alone, because its name should
# describe its action.
PARTICIPLE = re.compile(
    r"_*(?:[a-z]+ed|begun|bound|broken|brought|built|caught|chosen|done|drawn|found|given|gone|held|kept"
    r"|known|laid|left|lost|made|meant|met|paid|put|said|seen|sent|shown|spent|stood|taken|told|thrown"
    r"|understood|won|written)(?:_(?:back|up|out|in|off|down))?"
)
VERBS = {"embed", "feed", "need", "seed", "reseed", "proceed", "exceed"}
JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_+")
Place = tuple[str, str]  # a package, and a word or name


def find_uses() -> Iterator[tuple[Place, str]]:
    """Yield each use: its package, the word or name, and file with line."""
    for path in sorted((REPOSITORY / "autotune").rglob("*.py")):
        place = path.relative_to(REPOSITORY).as_posix()
        package = path.relative_to(REPOSITORY / "autotune").parts[0].removesuffix(".py")
        for line, word in (*find_words(_read_texts(path)), *find_names(path)):
            yield (package, word), f"{place}:{line}"
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md"),
                 *(REPOSITORY / "templates").rglob("*.j2")]  # fmt: skip
    for path in sorted(documents):
        place = path.relative_to(REPOSITORY).as_posix()
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for line, word in find_words(lines):
            yield (place.partition("/")[0], word), f"{place}:{line}"


def count_uses() -> Counter[Place]:
    """Return how often each package uses each word or name."""
    return Counter(place for place, _ in find_uses())


def read_baseline() -> dict[Place, int]:
    """Return the stored counts."""
    counts: dict[Place, int] = {}
    for line in BASELINE.read_text(encoding="utf-8").splitlines():
        name, _, count = line.rpartition(" ")
        package, _, word = name.partition(" ")
        counts[package, word] = int(count)
    return counts


def find_words(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield line and pattern of each retired word."""
    any_word = _compile("|".join(WORDS))
    for line, text in lines:
        if any_word.search(text):
            for word in WORDS:
                yield from ((line, word) for _ in _compile(word).finditer(text))


@cache
def _compile(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words})\b")


def _read_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield names split at their joints, and the lines of strings and comments."""
    source = path.read_text(encoding="utf-8")
    prose = {
        tokenize.STRING,
        tokenize.COMMENT,
        getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], JOINT.sub(" ", token.string).lower()
        elif token.type in prose:
            lines = token.string.splitlines()
            yield from ((token.start[0] + offset, line) for offset, line in enumerate(lines))


def find_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and kind of each retired name, and of each function named by a participle."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            if _is_participle(node):
                yield node.lineno, "def PARTICIPLE"
            continue
        # `other` is the usual name of a second operand.
        name = node.arg if isinstance(node, ast.arg) and node.arg != "other" else None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        for names in NAMES if name else ():
            if re.fullmatch(names, str(name)):
                yield getattr(node, "lineno", 0), f"name {names}"


def _is_participle(function: ast.FunctionDef) -> bool:
    decorators = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    name = function.name.lstrip("_")
    return (
        not decorators & {"property", "cached_property"}
        and name not in VERBS
        and PARTICIPLE.fullmatch(name) is not None
    )


if __name__ == "__main__":
    rows = [f"{package} {word} {count}" for (package, word), count in sorted(count_uses().items())]
    BASELINE.write_text("\n".join(rows) + "\n", encoding="utf-8")
