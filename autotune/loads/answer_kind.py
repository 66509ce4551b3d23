"""Whether an answer is of the same kind as others, and whether it looks like an error page.

Pages vary: times, tokens, advertisements, search results. What does not vary is their kind: the status,
the type of the content, the end of the page, and text that every sample has. An answer that lacks
these is another page. Sizes and titles vary more, so they only count if they are far off or agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autotune.loads.probes import Answer
from autotune.masking import masked

MOST_MARKERS = 48
FEW_MARKERS = 6  # fewer say nothing by themselves
# A part of the samples' text, without digits, as long as this.
_MARKER = re.compile(r"[^\d\n]{16,40}")
_SAME = 0.5  # of the markers: an answer with fewer is another page
_NEARLY = 0.9  # of them: an answer with fewer may be
# Sizes: factors beyond the samples' smallest and largest.
_FAR, _OFF, _NEAR = 4.0, 1.5, 1.1
_SLACK = 256  # bytes that never matter
SHORT = 50  # words: a longer page that mentions an error may be about errors
MOST_TITLE = 60  # characters that are shown

_TITLE = re.compile(r"<title[^>]{0,200}>\s*([^<]{0,300})", re.I)
_HEADING = re.compile(r"<h1[^>]{0,200}>\s*([^<]{0,300})", re.I)
_TAG = re.compile(r"<(?:script|style)\b.{0,60000}?</(?:script|style)>|<[^>]{0,1000}>", re.I | re.S)
# Every sentence below has one of these words, which are quickly found; it is looked for around them.
_HINTS = re.compile(
    r"(?i)error|exception|wrong|unavailable|sqlstate|difficulties|maintenance|gateway|failed|guru"
    r"|traceback|be right back|back soon"
)
MOST_HINTS, AROUND = 50, 120  # of the first and of the last words; characters around each
# Sentences that applications, frameworks and servers print in place of a page.
_ERRORS = re.compile(
    r"""(?ix) (?:fatal|parse)\ error(?:</b>)?:  | uncaught\ \w{0,40}(?:error|exception)
    | error\ establishing\ a\ database\ connection | has\ been\ a\ critical\ error\ on
    | briefly\ unavailable\ for\ scheduled\ maintenance
    | (?:we(?:'|’|&\#39;|&rsquo;)re\ )?sorry,?\ but\ something\ went\ wrong
    | looks\ like\ something\ went\ wrong | server\ error\ \(500\) | internal\ (?:server\ )?error
    | you(?:'|’|&\#39;|&\#x27;)re\ seeing\ this\ error\ because | traceback\ \(most\ recent\ call
    | the\ website\ encountered\ an\ unexpected\ error
    | site\ is\ experiencing\ technical\ difficulties | database\ (?:query\ )?error\ has\ occurred
    | cannot\ access\ the\ database | fatal\ exception\ of\ type | sqlstate\[
    | service\ (?:temporarily\ |is\ )?unavailable | bad\ gateway | gateway\ time-?out
    | backend\ fetch\ failed | guru\ meditation
    | (?:under|down\ for|undergoing|performing)\ (?:\w{1,20}\ ){0,2}maintenance | be\ right\ back
    | an?\ (?:application|unexpected|unhandled)\ (?:error|exception)\ (?:has\ )?occurred
    | application\ error
    | (?:^|[\s>])(?:\w{0,30}error):\ [^\n]{0,150}(?:\n|<br>|&nbsp;|\s){1,20}at\ \w """
)


@dataclass(frozen=True)
class Reference:
    """What ``samples`` right answers to one request have in common. ``sizes`` are the smallest and the
    largest body in bytes. ``title`` is ``None`` if there is none or it varies, ``closing`` how all end,
    ``markers`` text that all have. ``errors``: the samples themselves mention errors."""

    samples: int
    statuses: frozenset[int]
    types: frozenset[str]
    sizes: tuple[int, int]
    title: str | None = None
    closing: str = ""
    markers: tuple[str, ...] = ()
    errors: bool = False

    @classmethod
    def of(cls, samples: Sequence[Answer]) -> Reference:
        """Raises ValueError without samples."""
        if not samples:
            raise ValueError("there are no answers to compare with")
        titles = {title_of(sample) for sample in samples}
        closings = {closing_of(sample) for sample in samples}
        sizes = [sample.size for sample in samples]
        return cls(
            len(samples),
            frozenset(sample.status for sample in samples),
            frozenset(map(media_type, samples)),
            (min(sizes), max(sizes)),
            title=titles.pop() if len(titles) == 1 else None,
            closing=closings.pop() if len(closings) == 1 else "",
            markers=_markers(samples),
            errors=any(error_words(sample.text) for sample in samples),
        )

    def present(self, answer: Answer) -> float:
        """The fraction of the markers that an answer has."""
        if not self.markers:
            return 1.0
        return sum(marker in answer.text for marker in self.markers) / len(self.markers)


def difference(reference: Reference, answer: Answer) -> str | None:
    """How the answer differs in kind, in words; ``None`` if it may be a right one."""
    return next(_differences(reference, answer), None)


def _differences(reference: Reference, answer: Answer) -> Iterator[str]:
    if answer.status not in reference.statuses:
        statuses = " or ".join(map(str, sorted(reference.statuses)))
        yield f"status {answer.status} instead of {statuses}"
    if (kind := media_type(answer)) not in reference.types:
        types = " or ".join(sorted(reference.types)) or "none"
        yield described(answer, reference, f"{_shown(kind) or 'no type'} instead of {types}")
    if reference.closing and reference.closing != closing_of(answer):
        yield described(answer, reference, f"no {reference.closing} at the end")
    present = reference.present(answer)
    another = len(reference.markers) >= FEW_MARKERS and present < _SAME
    if another or _outside(answer.size, reference.sizes, _FAR):
        yield described(answer, reference)
    titled = reference.title is not None and title_of(answer) != reference.title
    unusual = titled or present < _NEARLY or _outside(answer.size, reference.sizes, _NEAR)
    if unusual and not reference.errors and error_words(answer.text):
        yield described(answer, reference)
    if titled and present < _NEARLY and _outside(answer.size, reference.sizes, _OFF):
        yield described(answer, reference)


def error_in(answer: Answer) -> str | None:
    """The words by which an answer looks like an error page; ``None`` if it looks like a page.

    A long page may be about errors, unless its title or heading is one, or it breaks off.
    """
    words = [*_errors(answer.text)]
    if not words:
        return None
    headed = [
        head[1] for head in (_TITLE.search(answer.text), _HEADING.search(answer.text)) if head
    ]
    breaks_off = "<html" in answer.text.lower() and not closing_of(answer)
    short = len(_TAG.sub(" ", answer.text).split()) < SHORT
    explained = next((match for match in words if "seeing" in match), None)
    if short or breaks_off or any(map(error_words, headed)) or explained:
        return _shown(_TAG.sub(" ", explained or words[0]))
    return None


def error_words(text: str) -> str | None:
    """The first sentence in a text that an error page would have; ``None`` without one."""
    return next(_errors(text), None)


def _errors(text: str) -> Iterator[str]:
    """Sentences of error pages, around the first and the last hints."""
    hints = [*_HINTS.finditer(text)]
    # A debugger's page explains itself at its end.
    for hint in (*hints[:MOST_HINTS], *hints[MOST_HINTS:][-MOST_HINTS:]):
        around = text[max(0, hint.start() - AROUND) : hint.end() + 2 * AROUND]
        yield from (match[0] for match in _ERRORS.finditer(around))


def described(answer: Answer, reference: Reference, first: str = "") -> str:
    """``1.2 KB instead of 14–15 KB, title 'Fatal error'``: bounded, and nothing secret is in it."""
    parts = [first] if first else []
    if _outside(answer.size, reference.sizes, _NEAR):
        parts.append(f"{kilobytes(answer.size)} instead of {_span(reference.sizes)}")
    title = title_of(answer)
    if title and title != reference.title:
        parts.append(f"title {_shown(title)!r}")
    elif words := _shown(_TAG.sub(" ", answer.text[:4000])):
        parts.append(f"text {words!r}")
    return ", ".join(parts) or "other text"


def media_type(answer: Answer) -> str:
    """``text/html``, without parameters."""
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def title_of(answer: Answer) -> str | None:
    """The title of a page, if it has one."""
    match = _TITLE.search(answer.text[:65536])
    return " ".join(match[1].split()) if match else None


def title_shown(reference: Reference) -> str | None:
    """The common title of a page as it may be recorded."""
    return _shown(reference.title) if reference.title else None


def closing_of(answer: Answer) -> str:
    """What a complete page of its kind ends with, if it does."""
    end = answer.text[-4096:].rstrip().lower()
    if "</html>" in end:
        return "</html>"
    first = answer.text.lstrip()[:1]
    pairs = {"{": "}", "[": "]"}
    return pairs[first] if first in pairs and end.endswith(pairs[first]) else ""


def kilobytes(size: float) -> str:
    """``900 B``, ``1.2 KB``, ``15 KB``."""
    if size < 1000:
        return f"{size:.0f} B"
    return f"{size / 1000:.1f} KB" if size < 10_000 else f"{size / 1000:.0f} KB"


def _span(sizes: tuple[int, int]) -> str:
    low, high = map(kilobytes, sizes)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number}–{high}" if high.endswith(f" {unit}") else f"{low}–{high}"


def _shown(text: str) -> str:
    """Text of an answer as it may be shown and recorded."""
    visible = "".join(c if c.isprintable() else " " for c in masked(text[:2000]))
    line = " ".join(visible.split())
    return line if len(line) <= MOST_TITLE else f"{line[: MOST_TITLE - 1]}…"


def _outside(size: float, sizes: tuple[int, int], factor: float) -> bool:
    low, high = sizes
    if factor > _NEAR:
        return size < (low - _SLACK) / factor or size > high * factor + _SLACK
    return size < low / factor or size > high * factor


def _markers(samples: Iterable[Answer]) -> tuple[str, ...]:
    """Text that every sample has, spread over the page."""
    first, *others = samples
    parts = dict.fromkeys(part.strip() for part in _MARKER.findall(first.text))
    common = [part for part in parts
              if len(part) >= FEW_MARKERS and all(part in other.text for other in others)]  # fmt: skip
    step = max(1, -(-len(common) // MOST_MARKERS))
    return tuple(common[::step])
