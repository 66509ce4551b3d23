"""What a trial expects of a stack once it has been warmed up."""

from __future__ import annotations

import pytest

from autotune.estimate import Estimate
from autotune.measure.warmup import Warmth, Window
from autotune.study.trial import BEYOND, UNKNOWN_SD, _forgets, _guess

EXPECTED = Estimate.of(1000.0, 0.1)


def warmth(*windows: tuple[float, bool]) -> Warmth:
    """Windows by their rate, and whether it was too much."""
    seen = tuple(Window(rate, overloaded, 0.01, None) for rate, overloaded in windows)
    return Warmth(settled=True, windows=seen)


@pytest.mark.parametrize(
    ("prior", "seen", "guess"),
    [
        # Nobody has measured it: somewhat above what it carried, if it carried anything.
        (None, warmth((200, False), (300, False)), Estimate.of(300 * BEYOND, UNKNOWN_SD)),
        (None, warmth((200, True), (100, True)), None),
        # It kept up with what is expected: so it is expected.
        (EXPECTED, warmth((600, False), (600, False)), EXPECTED),
        # It did not, and says itself what it can do …
        (EXPECTED, warmth((600, True), (300, False), (360, False)),
         Estimate.of(360 * BEYOND, UNKNOWN_SD)),
        # … but not by one window that was disturbed.
        (EXPECTED, warmth((600, False), (600, True), (300, False), (580, False)), EXPECTED),
        (EXPECTED, warmth((600, True), (300, True)), EXPECTED),
    ],
)  # fmt: skip
def test_a_peak_is_guessed_from_what_was_carried(
    prior: Estimate | None, seen: Warmth, guess: Estimate | None
) -> None:
    assert _guess(prior, seen) == guess


@pytest.mark.parametrize(
    ("part", "forgets"),
    [("cache.cache1.memcached", True), ("store.store1.redis", False), ("web.web1.php_fpm", False)],
)
def test_only_a_restarted_cache_has_to_be_filled_again(part: str, forgets: bool) -> None:  # a case
    assert _forgets(part) is forgets
