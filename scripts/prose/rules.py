"""The rules of the prose standard: patterns for single sentences, and maximum lengths.

Patterns only approximate grammar, so a flagged sentence is not always wrong. The word `CODE` stands
for code in a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

# Nouns for things, which must not be subjects of verbs such as "say", "hear" or "believe".
_PROGRAMS = (
    "CODE|autotune|bed|catalogue|command|files?|generator|guides?|hosts?|intervals?|it|kernel|logs?|memory"
    "|model|page|plan|readings?|report|rules?|scripts?|search|servers?|sites?|software|store|study|target"
    "|unit|verdict|warnings?|workers?"
)
_SPEAKING = (
    "asks?|believes?|forgets?|hands?|hears?|knows?|lies?|looks?|meets?|proves?|sa(?:y|ys|id)|sees?|speaks?"
    "|stands?|suffers?|tells?|told|thinks?|wants?|wins?"
)
_BE = "(?:is|are|was|were|be|been)"
_PARTICIPLE = r"(?:\w{2,}ed|left|set|read|kept|known|shown|given|found|made|run|taken|written)"


@dataclass(frozen=True)
class Rule:
    """A pattern that a sentence must not match, and how to rewrite it."""

    name: str
    advice: str
    pattern: re.Pattern[str]
    except_on: frozenset[str] = frozenset()


def _rule(name: str, advice: str, *patterns: str, except_on: tuple[str, ...] = ()) -> Rule:
    return Rule(name, advice, re.compile("|".join(patterns)), frozenset(except_on))


RULES = (
    _rule("subject-first", "put the subject first",
        rf"^(?:Known|Left|Kept|Worse|Best|Better|Not \w+|Searched|Shown|Written|Printed|Counted) {_BE}\b",
        r"^Of (?:a|an|the|those|these|one|each|some|all|what|several)\b",
        r"^By hand\b|^Beside (?:a|its|the)\b|^For so\b|^From (?:what|then|there|\d+)\b",
        r"\bof which\b.{0,40}\b(?:is|are)\b|\bso (?:is|are|does) (?:the|a|it)\b|\bso is\b.*\btoo\b"),
    _rule("no-what-subject", "start with the noun, not with 'what'",
        r"^(?:What|Whatever|Whoever|Whether|How far) (?!is a\b|are the\b)[^?]*$",
        r"[,:;] (?:what|whatever) [\w' ]{1,40} (?:is|are|has|stays|counts|needs|comes|lies|waits|goes"
        r"|costs)\b"),
    _rule("no-what-clause", "name the thing instead of 'what …'",
        rf"\bwhat {_BE} (?:there|left|behind|tuned|in|asked|not|known|proven|gone|changed)\b",
        r"\bwhat (?:else|comes|counts|runs|lies|holds|needs|caps)\b"),
    _rule("relative-clause", "put the relative clause next to its noun",
        rf"\b{_BE} {_PARTICIPLE} (?:that|which|whose|who) "),
    _rule("no-speech", "programs and files do not say, know or want",
        rf"\b(?:{_PROGRAMS}) (?:{_SPEAKING}) "),
    _rule("contains", "write contains, lists, sets or provides instead of 'has'",
        r"\b(?:CODE|page|files?|report|units?|hosts?|log|target|table|JSON|storage|history|software|study"
        r"|tier|it|that|which) has "
        r"(?!been\b|to\b|no\b|had\b|not\b|a choice|changed|already|run\b|started|just)\w+"),
    _rule("not-a", "write 'is not a', 'no such' or 'unknown'",
        rf"\b{_BE} (?:no|neither an?) (?!longer\b|more\b|such\b|way\b|limit\b|one\b|need\b)"
        r"[a-z]+(?: [a-z]+)?(?=$|[,.;:)])", r"^[Tt]here (?:is|are) no "),
    _rule("your-own", "write 'your own X' or 'its X'",
        r"\bof (?:its|their|your|autotune's|our|one's) own\b|\bof (?:yours|theirs|ours|mine)\b"
        r"|\bof (?:somebody|someone|anybody) else|\bof (?:anybody|others)\b"),
    _rule("repeat-noun", "repeat the noun",
        r"\bthose (?:of|that|two)\b|\bthe same of\b|\bthe one (?:that|of)\b|\ball (?:of it|else)\b"
        r"|\b(?:whatever|everything) else\b|\bnothing of\b|\banother one\b|\bone of (?:yours|anybody)\b"
        r"|\bwhat (?:it|they) (?:is|are|has|have) of\b"),
    _rule("exit-status", "write 'exits with status N'",
        r"\b[Ee]nds? (?:with|in) (?:\d|code\b|other\b|N\b)"),
    _rule("untouched", "write 'is not changed'", r"\bleft alone\b|\bstays? as it (?:is|was|lies)\b"),
    _rule("be-of", "use a verb of the field",
        r"\b(?:sa(?:y|ys|id)|tells?|true|known|speaks?|claimed|learned|printed) of\b",
        rf"\b{_BE} of (?:a|an|the|another|this|no)\b"),
    _rule("actor", "name the actor",
        r"\b(?:is|are) (?:told|asked for|named|looked (?:at|for)|taken back|put up|set aside|brought"
        r"|held against|told apart)\b"),
    _rule("retired-word", "use the word of the standard's list",
        r"\b(?:anew|beside|meanwhile|needless|mend(?:s|ed|ing)?|begun|thereof|wherever|whom)\b"
        r"|\b(?:some|any|no)body\b(?! than)|\bapart\b(?! from)|\bin (?:hand|turn)\b|\bat one time\b"
        r"|\bso many\b|\bas ever\b|\ball the same\b|\bas it lies\b|\bby now\b|\bcounts? more\b"
        r"|\bgo(?:es|ing)? on\b|\bwent on\b|\bof use\b|\bnow and then\b|\bleft behind\b|\bway to\b"
        r"|\bno more\b(?! than)|\bgave out\b|\blets? (?:us )?in\b|\bset aside\b|\bput up\b|\bheld back\b"
        r"|\blook(?:s|ed)? (?:it )?through\b|\bin effect at\b|\bmachine below\b|\bstolen CPU\b"),
    _rule("plain-phrase", "say it in a sentence that a runbook could contain",
        r"(?i)\b(?:more than nothing|do nothing|nowhere else|by the model|where time is left|none left to"
        r"|not heard of|taken by the machine|not ended|would part|as far as it came|without one\.|to go"
        r"|stands? behind|by how often|what is with|whatever it|at its capacity|answers? (?:right|wrong)"
        r"|makes no sense|speaks? of|no record|came of|set against|asks? (?:it|them|for each)"
        r"|to be (?:measured|tuned|read)|the best found|the beginning of|of them first|use no other"
        r"|another \w+ than|does not say|says? nothing|so hardly|means? nothing|mean something)\b"),
    _rule("one-colon", "use at most one colon or semicolon",
        r"[:;](?!//)[^:;]*[:;](?!//)", except_on=("docstrings",)),
)  # fmt: skip

# Maximum number of words in a sentence, by surface. Surfaces that are missing have the limit of "docs".
LONGEST = {"help": 12, "errors": 20, "messages": 20, "templates": 20, "comments": 25}
LONGEST_IN_DOCUMENT = 25
PARAGRAPH, SENTENCES, ITEM = 60, 4, 35
PAGES = frozenset({"README", "docs"})
_WORD = re.compile(r"[A-Za-z0-9][\w'’%/.-]*")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|max|min|no)\.$", re.IGNORECASE)
_END = re.compile(r"(?<=[.!?])[\"”')\]]*\s+(?=[\"“'(\[]?\w)")


def count_words(text: str) -> int:
    """Return the number of words in a sentence. Each piece of code counts as one word."""
    return len(_WORD.findall(text))


@cache
def plain(text: str) -> str:
    """Return ``text`` on one line without markup. `CODE` replaces code, `URL` replaces addresses."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`+[^`]+`+|\{[^{}]*\}", "CODE", text)
    text = re.sub(r"\b[a-z]+://\S+", "URL", text).replace("*", "")
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a plain text that have at least two words."""
    parts: list[str] = []
    for part in _END.split(text):
        if parts and _ABBREVIATION.search(parts[-1]):
            parts[-1] = f"{parts[-1]} {part}"
        else:
            parts.append(part)
    return [part for part in parts if count_words(part) > 1]


@cache
def broken(surface: str, sentence: str) -> tuple[str, ...]:
    """Return the rules that a sentence breaks."""
    names = [rule.name for rule in RULES
             if surface not in rule.except_on and rule.pattern.search(sentence)]  # fmt: skip
    if count_words(sentence) > LONGEST.get(surface, LONGEST_IN_DOCUMENT):
        names.append("too-long")
    return tuple(names)


def broken_by_block(text: str, *, is_item: bool) -> tuple[str, ...]:
    """Return the maximum lengths that a paragraph or list item of a page exceeds."""
    length = count_words(text)
    if is_item:
        return ("item-too-long",) if length > ITEM else ()
    return ("paragraph-too-long",) if length > PARAGRAPH or len(sentences(text)) > SENTENCES else ()


ADVICE = {rule.name: rule.advice for rule in RULES} | {
    "too-long": "split the sentence",
    "item-too-long": f"at most {ITEM} words in an item of a list",
    "paragraph-too-long": f"at most {PARAGRAPH} words and {SENTENCES} sentences in a paragraph",
    "imperative": "start a command's help with an imperative verb",
}
