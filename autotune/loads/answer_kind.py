"""Compare responses by kind, and detect error pages.

Correct responses vary in times, tokens, advertisements and search results. The kind of a response
does not vary: its status, media type and ending, and text that all samples contain. A response of
another kind is a different page. Sizes and titles vary more, so they count only if they deviate
strongly, or if other signs agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autotune.loads.probes import ProbeAnswer
from autotune.masking import mask_secrets

MAX_MARKERS = 48
MIN_MARKERS = 6  # fewer markers do not identify a page
# A marker is text of this length without digits.
_MARKER_PATTERN = re.compile(r"[^\d\n]{16,40}")
_SAME_PAGE_SHARE = 0.5  # a response with a smaller share of the markers is a different page
_SIMILAR_PAGE_SHARE = 0.9  # a response with a smaller share of the markers may be a different page
# A size is far off, off, or slightly off if it is outside the samples' size range by these factors.
_FAR_SIZE_FACTOR, _OFF_SIZE_FACTOR, _NEAR_SIZE_FACTOR = 4.0, 1.5, 1.1
_SIZE_SLACK_BYTES = 256  # smaller differences in size are ignored
SHORT_PAGE_WORDS = 50  # words; a longer page that mentions an error may be about errors
MAX_TITLE_LENGTH = 60  # maximum number of characters shown

_TITLE_PATTERN = re.compile(r"<title[^>]{0,200}>\s*([^<]{0,300})", re.I)
_HEADING_PATTERN = re.compile(r"<h1[^>]{0,200}>\s*([^<]{0,300})", re.I)
_SCRIPT_TAG_PATTERN = re.compile(r"<(?P<end>/?)(?:script|style)\b", re.I)
_TAG_PATTERN = re.compile(r"<[^<>]{0,1000}>")
# Words, at least one of which occurs in each sentence of `_ERROR_PATTERN`. Searching for single words
# first is faster.
_ERROR_HINT_PATTERN = re.compile(
    r"(?i)error|exception|wrong|unavailable|sqlstate|difficulties|maintenance|gateway|failed|guru"
    r"|traceback|be right back|back soon"
)
# Maximum number of hints examined at each end of a text, and number of characters examined around a hint.
MAX_HINTS, HINT_CONTEXT_LENGTH = 50, 120
# Sentences on error pages of applications, frameworks and servers.
_ERROR_PATTERN = re.compile(
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
    | (?:^|[\s>])(?:\w{0,30}error):\ [^\n]{0,150}(?:<br>|&nbsp;|\s){1,20}at\ \w """
)


@dataclass(frozen=True)
class ReferenceAnswer:
    """The common properties of ``sample_count`` correct responses to one request.

    - ``size_range``: the smallest and the largest body in bytes.
    - ``title``: the common title; ``None`` if the pages have no title, or different titles.
    - ``ending``: the common end of the bodies, such as ``</html>``.
    - ``markers``: text that all samples contain.
    - ``is_error_like``: true if the samples themselves mention errors.
    """

    sample_count: int
    statuses: frozenset[int]
    media_types: frozenset[str]
    size_range: tuple[int, int]
    title: str | None = None
    ending: str = ""
    markers: tuple[str, ...] = ()
    is_error_like: bool = False

    @classmethod
    def from_samples(cls, samples: Sequence[ProbeAnswer]) -> ReferenceAnswer:
        """Return the common properties of the samples. Raises ValueError if ``samples`` is empty."""
        if not samples:
            raise ValueError("reference responses are missing")
        titles = {find_title(sample) for sample in samples}
        sample_endings = {find_ending(sample) for sample in samples}
        sample_sizes = [sample.size for sample in samples]
        return cls(
            len(samples),
            frozenset(sample.status for sample in samples),
            frozenset(map(find_media_type, samples)),
            (min(sample_sizes), max(sample_sizes)),
            title=titles.pop() if len(titles) == 1 else None,
            ending=sample_endings.pop() if len(sample_endings) == 1 else "",
            markers=_find_common_markers(samples),
            is_error_like=any(find_error_sentence(sample.text) for sample in samples),
        )

    def marker_share(self, answer: ProbeAnswer) -> float:
        """Return the fraction of the markers that a response contains."""
        if not self.markers:
            return 1.0
        return sum(marker in answer.text for marker in self.markers) / len(self.markers)


def find_difference(reference_answer: ReferenceAnswer, answer: ProbeAnswer) -> str | None:
    """Describe how a response differs in kind from the reference; ``None`` if it may be correct."""
    return next(_list_differences(reference_answer, answer), None)


def _list_differences(reference_answer: ReferenceAnswer, answer: ProbeAnswer) -> Iterator[str]:
    if answer.status not in reference_answer.statuses:
        statuses = " or ".join(map(str, sorted(reference_answer.statuses)))
        yield f"status {answer.status} instead of {statuses}"
    if (media_type := find_media_type(answer)) not in reference_answer.media_types:
        expected_media_types = " or ".join(sorted(reference_answer.media_types)) or "none"
        yield describe_difference(
            answer,
            reference_answer,
            f"{_sanitize_text(media_type) or 'no media type'} instead of {expected_media_types}",
        )
    if reference_answer.ending and reference_answer.ending != find_ending(answer):
        yield describe_difference(
            answer, reference_answer, f"no {reference_answer.ending} at the end"
        )
    marker_share = reference_answer.marker_share(answer)
    is_other_page = len(reference_answer.markers) >= MIN_MARKERS and marker_share < _SAME_PAGE_SHARE
    if is_other_page or _is_outside_range(
        answer.size, reference_answer.size_range, _FAR_SIZE_FACTOR
    ):
        yield describe_difference(answer, reference_answer)
    has_other_title = (
        reference_answer.title is not None and find_title(answer) != reference_answer.title
    )
    is_unusual = (
        has_other_title
        or marker_share < _SIMILAR_PAGE_SHARE
        or _is_outside_range(answer.size, reference_answer.size_range, _NEAR_SIZE_FACTOR)
    )
    if is_unusual and not reference_answer.is_error_like and find_error_sentence(answer.text):
        yield describe_difference(answer, reference_answer)
    if (
        has_other_title
        and marker_share < _SIMILAR_PAGE_SHARE
        and _is_outside_range(answer.size, reference_answer.size_range, _OFF_SIZE_FACTOR)
    ):
        yield describe_difference(answer, reference_answer)


def find_error(answer: ProbeAnswer) -> str | None:
    """Return the text that identifies an error page; ``None`` if the response looks like a normal
    page.

    A long page may be about errors. A long page counts as an error page only if its title or
    heading is an error, or if the page is incomplete.
    """
    error_sentences = [*_list_error_sentences(answer.text)]
    if not error_sentences:
        return None
    heading_texts = [
        heading_match[1]
        for heading_match in (
            _TITLE_PATTERN.search(answer.text),
            _HEADING_PATTERN.search(answer.text),
        )
        if heading_match
    ]
    is_cut_off = "<html" in answer.text.lower() and not find_ending(answer)
    is_short = len(_remove_tags(answer.text).split()) < SHORT_PAGE_WORDS
    explanation = next((match for match in error_sentences if "seeing" in match), None)
    if is_short or is_cut_off or any(map(find_error_sentence, heading_texts)) or explanation:
        return _sanitize_text(_remove_tags(explanation or error_sentences[0]))
    return None


def _remove_tags(text: str) -> str:
    """Return a page without tags, scripts and styles, in linear time for any page."""
    pieces, last_end = list[str](), 0
    script_start: int | None = None
    for tag in _SCRIPT_TAG_PATTERN.finditer(text):
        if not tag["end"]:
            script_start = tag.start() if script_start is None else script_start
        elif script_start is not None:
            pieces += [text[last_end:script_start], " "]
            last_end, script_start = tag.start(), None
    return _TAG_PATTERN.sub(" ", "".join([*pieces, text[last_end:]]))


def find_error_sentence(text: str) -> str | None:
    """Return the first sentence in a text that is typical of error pages; ``None`` if there is
    none.
    """
    return next(_list_error_sentences(text), None)


def _list_error_sentences(text: str) -> Iterator[str]:
    """Yield sentences that are typical of error pages. Only text near the first and the last hints
    of an error is searched.
    """
    hints = [*_ERROR_HINT_PATTERN.finditer(text)]
    # A framework's debug page identifies itself only at its end.
    for hint in (*hints[:MAX_HINTS], *hints[MAX_HINTS:][-MAX_HINTS:]):
        hint_context = text[
            max(0, hint.start() - HINT_CONTEXT_LENGTH) : hint.end() + 2 * HINT_CONTEXT_LENGTH
        ]
        yield from (match[0] for match in _ERROR_PATTERN.finditer(hint_context))


def describe_difference(
    answer: ProbeAnswer, reference_answer: ReferenceAnswer, prefix: str = ""
) -> str:
    """Return a difference such as ``1.2 KB instead of 14–15 KB, title 'Fatal error'``. The text's
    length is limited, and secrets are masked.
    """
    phrases = [prefix] if prefix else []
    if _is_outside_range(answer.size, reference_answer.size_range, _NEAR_SIZE_FACTOR):
        phrases.append(
            f"{format_size(answer.size)} instead of {_format_size_range(reference_answer.size_range)}"
        )
    title = find_title(answer)
    if title and title != reference_answer.title:
        phrases.append(f"title {_sanitize_text(title)!r}")
    elif page_text := _sanitize_text(_remove_tags(answer.text[:4000])):
        phrases.append(f"text {page_text!r}")
    return ", ".join(phrases) or "other text"


def find_media_type(answer: ProbeAnswer) -> str:
    """Return the media type without parameters, such as ``text/html``."""
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def find_title(answer: ProbeAnswer) -> str | None:
    """Return the title of a page, or ``None`` if the page has no title."""
    match = _TITLE_PATTERN.search(answer.text[:65536])
    return " ".join(match[1].split()) if match else None


def sanitize_title(reference_answer: ReferenceAnswer) -> str | None:
    """Return the common title of a page in a form that may be recorded."""
    return _sanitize_text(reference_answer.title) if reference_answer.title else None


def find_ending(answer: ProbeAnswer) -> str:
    """Return the text that ends a complete page, such as ``</html>`` or ``}``; empty if the page is
    incomplete.
    """
    text_end = answer.text[-4096:].rstrip().lower()
    if "</html>" in text_end:
        return "</html>"
    first_character = answer.text.lstrip()[:1]
    bracket_pairs = {"{": "}", "[": "]"}
    return (
        bracket_pairs[first_character]
        if first_character in bracket_pairs and text_end.endswith(bracket_pairs[first_character])
        else ""
    )


def format_size(size: float) -> str:
    """Return a size as text, such as ``900 B``, ``1.2 KB`` or ``15 KB``."""
    if size < 1000:
        return f"{size:.0f} B"
    return f"{size / 1000:.1f} KB" if size < 10_000 else f"{size / 1000:.0f} KB"


def _format_size_range(size_range: tuple[int, int]) -> str:
    low, high_text = map(format_size, size_range)
    if low == high_text:
        return low
    low_number, _, unit = low.partition(" ")
    return f"{low_number}–{high_text}" if high_text.endswith(f" {unit}") else f"{low}–{high_text}"


def _sanitize_text(text: str) -> str:
    """Return text from a response in a form that may be shown and recorded."""
    visible_text = "".join(c if c.isprintable() else " " for c in mask_secrets(text[:2000]))
    line = " ".join(visible_text.split())
    return line if len(line) <= MAX_TITLE_LENGTH else f"{line[: MAX_TITLE_LENGTH - 1]}…"


def _is_outside_range(size: float, size_range: tuple[int, int], factor: float) -> bool:
    low, high = size_range
    if factor > _NEAR_SIZE_FACTOR:
        return size < (low - _SIZE_SLACK_BYTES) / factor or size > high * factor + _SIZE_SLACK_BYTES
    return size < low / factor or size > high * factor


def _find_common_markers(samples: Iterable[ProbeAnswer]) -> tuple[str, ...]:
    """Return texts that all samples contain, spread over the page."""
    first_sample, *further_samples = samples
    candidates = dict.fromkeys(
        candidate.strip() for candidate in _MARKER_PATTERN.findall(first_sample.text)
    )
    common_markers = [
        candidate
        for candidate in candidates
        if len(candidate) >= MIN_MARKERS and all(candidate in s.text for s in further_samples)
    ]
    marker_step = max(1, -(-len(common_markers) // MAX_MARKERS))
    return tuple(common_markers[::marker_step])
