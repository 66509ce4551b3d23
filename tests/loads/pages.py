"""Pages of sites with realistic variation, and error pages that may replace them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from autotune.loads.probes import ELISION_MARK, HEAD_BYTES, TAIL_BYTES, ProbeAnswer

_FIXTURES = Path(__file__).parent / "fixtures" / "error-pages"
ERROR_PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(_FIXTURES.iterdir())}
WORDS = tuple(
    "harbour lantern meadow copper violin saddle orchard thunder pebble lattice marble walnut ember "  # noqa: SIM905
    "compass feather granite juniper kettle ledger mosaic nickel oyster parcel quarry ribbon".split()
)
HTML, JSON = "text/html; charset=utf-8", "application/json"


def answer(text: str, kind: str = HTML, status: int = 200) -> ProbeAnswer:
    """Return a response in the form in which a sample reads it, with the middle of a long body
    removed.
    """
    shown = (
        text if len(text) <= HEAD_BYTES else text[:HEAD_BYTES] + ELISION_MARK + text[-TAIL_BYTES:]
    )
    return ProbeAnswer(status, len(text.encode()), shown, {"content-type": kind})


def _prose(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def _layout(title: str, main: str, foot: str = "") -> str:
    links = "\n".join(
        f'<li class="menu-item"><a href="/{word}/">{word.title()}</a></li>' for word in WORDS
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<link rel="stylesheet" href="/static/theme/main.css?ver=6.4.2">\n'
        '<script src="/static/theme/menu.js" defer></script></head>\n<body class="home page">\n'
        f'<header id="masthead"><nav class="primary-navigation"><ul>{links}</ul></nav></header>\n'
        f'<main id="content" class="site-main">{main}</main>\n'
        f'<footer id="colophon" class="site-footer"><p>All rights reserved.</p>{foot}</footer>\n'
        "</body></html>\n"
    )


def shop(chance: random.Random) -> ProbeAnswer:
    """Return a page with a token, a time, and its creation time."""
    token = "".join(chance.choices("abcdef0123456789", k=64))
    main = f'<form method="post"><input type="hidden" name="csrf" value="{token}"></form>'
    main += "".join(
        f'<article class="product"><h2>{w}</h2><p>12.00 EUR</p></article>\n' for w in WORDS * 4
    )
    time = f"09:{chance.randrange(60):02}:{chance.randrange(60):02}"
    made = f"<!-- made in {chance.random():.4f} s at 2026-11-26 {time} -->"
    return answer(_layout("Shop – offers", main, made))


def news(chance: random.Random) -> ProbeAnswer:
    """Return a page with advertisements and teasers, whose size varies by ±30 %."""
    teasers = (f"<h2>{_prose(chance, 6)}</h2><p>{_prose(chance, 30)}</p>" for _ in range(30))
    main = "".join(f'<article class="teaser">{teaser}</article>\n' for teaser in teasers)
    adverts = f'<aside class="ad">{_prose(chance, chance.randrange(0, 1400))}</aside>'
    return answer(_layout("The Harbour Times", main + adverts))


def personal(chance: random.Random) -> ProbeAnswer:
    """Return a page whose title contains a name and a number of messages."""
    name, count = chance.choice(WORDS).title(), chance.randrange(40)
    rows = "".join(f'<tr class="mail"><td>{_prose(chance, 8)}</td></tr>' for _ in range(count))
    return answer(_layout(f"({count}) {name} – inbox", f'<table class="mails">{rows}</table>'))


def results(chance: random.Random) -> ProbeAnswer:
    """Return a page with up to fifty search results, some of them about errors."""
    hits = chance.randrange(50)
    topics = (
        "How to fix 'Fatal error: Allowed memory size'",
        "What is a 502 Bad Gateway?",
        "Plain copper",
    )
    listed = "".join(
        f'<li class="hit">{chance.choice(topics)} {_prose(chance, 20)}</li>' for _ in range(hits)
    )
    return answer(_layout("Search", f'<p>{hits} results</p><ol class="hits">{listed}</ol>'))


def document(chance: random.Random) -> ProbeAnswer:
    """Return JSON with items of any number and length."""
    items = ", ".join(f'{{"id": {chance.randrange(10**6)}, "name": "{_prose(chance, 3)}", "stock": true}}'
                      for _ in range(chance.randrange(20, 40)))  # fmt: skip
    text = (
        f'{{"request_id": "{chance.getrandbits(64):x}", "total_count": 31, "items": [{items}]}}\n'
    )
    return answer(text, JSON)


def large(chance: random.Random) -> ProbeAnswer:
    """Return a page of which only the start and the end are read."""
    main = "".join(f"<p>{_prose(chance, 250)}</p>\n" for _ in range(60))
    return answer(_layout("The whole book", main))


def unchanging(chance: random.Random) -> ProbeAnswer:
    """Return a few bytes, as from a health check."""
    return answer("ok: all 3 shards are up\n", "text/plain")


SITES: dict[str, Callable[[random.Random], ProbeAnswer]] = {
    site.__name__: site for site in (shop, news, personal, results, document, large, unchanging)
}
