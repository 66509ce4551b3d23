from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.loads.base import Tally, total, without_fastest

KINDS = ("5xx", "timeout", "refused", "not sent")
EDGES = tuple(ms / 1000 for ms in (1, 2, 5, 51, 400))
counts = st.integers(0, 10_000)


@st.composite
def tallies(draw: st.DrawFn) -> Tally:
    errors = draw(st.dictionaries(st.sampled_from(KINDS), st.integers(1, 999)))
    histogram = draw(st.dictionaries(st.sampled_from(EDGES), st.integers(1, 999)))
    return Tally(
        intended=sum(errors.values()) + sum(histogram.values()),
        sent=draw(counts),
        errors=errors,
        histogram=histogram,
        duration=draw(st.floats(0, 100)),
        truncated=draw(st.booleans()),
        limited=draw(st.sampled_from([None, "ports", "behind"])),
    )


@settings(max_examples=40)
@given(st.lists(tallies(), max_size=5), st.randoms(use_true_random=False))
def test_a_sum_does_not_depend_on_the_order_or_the_grouping(parts, rng) -> None:
    shuffled = list(parts)
    rng.shuffle(shuffled)
    cut = rng.randint(0, len(parts))
    assert total(shuffled) == total(parts)
    assert total([total(parts[:cut]), total(parts[cut:])]) == total(parts)


@settings(max_examples=40)
@given(st.lists(tallies(), max_size=5))
def test_every_intended_request_is_counted_once_in_a_sum(parts) -> None:
    whole = total(parts)
    assert whole.replies_ok + whole.failed == whole.intended
    assert whole.truncated == any(part.truncated for part in parts)
    assert (whole.limited is None) == all(part.limited is None for part in parts)


@given(tallies(), st.integers(0, 5000))
def test_blame_moves_right_answers_to_errors_and_never_hides_a_late_one(tally, wrong) -> None:
    blamed = tally.blame("wrong body", wrong)
    moved = min(wrong, tally.replies_ok)
    assert blamed.replies_ok + blamed.failed == tally.replies_ok + tally.failed
    assert blamed.failed == tally.failed + moved
    for limit in EDGES:
        late = tally.later_than(limit)
        assert blamed.later_than(limit) == min(late, tally.replies_ok - moved)


def test_later_than_counts_bins_that_end_after_the_limit() -> None:
    tally = Tally(10, histogram={0.049: 1, 0.050: 2, 0.051: 3, 0.4: 4})
    assert tally.later_than(0.050) == 7


def test_the_fastest_go_first() -> None:
    assert without_fastest({0.4: 2, 0.001: 3, 0.002: 5}, 4) == {0.002: 4, 0.4: 2}
