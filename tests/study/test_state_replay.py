from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.study import state_replay, study_state
from autotune.study.state_replay import apply_record, replay_records
from autotune.study.study_state import Phase, State, StudyPause, Trial

TRIAL = {"event": "trial", "trial": 0, "phase": "baseline", "settings": {}, "of": None,
         "asked": None, "suggested": {}, "bindings": []}  # fmt: skip


def test_records_change_the_trial_they_name_or_the_study() -> None:
    state = replay_records([
        {"event": "study", "started": "now"},
        TRIAL,
        {"event": "failed", "trial": 0, "why": "it does not start"},
        {"event": "spent", "seconds": {"load": 1.5}},
        {"event": "spent", "seconds": {"load": 1.0, "search": 0.5}},
        {"event": "of a later version", "trial": 0},
    ])  # fmt: skip
    assert state.started == "now"
    assert state.find_trial(0).failure == "it does not start"
    assert state.list_finished_trials(Phase.BASELINE) == state.trials
    assert state.elapsed_seconds == 3.0


@pytest.mark.parametrize(
    ("record", "pauses"),
    [
        ({"event": "session", "at": "2026-03-01T12:10:00+00:00"}, ()),
        ({"event": "session", "at": "2026-03-01T15:00:00+00:00"}, (StudyPause(0),)),
        ({"event": "session", "at": None}, ()),
        ({"event": "session", "at": "later"}, ()),
        ({"event": "joined", "bed": "a", "at": "2026-03-01T15:00:00+00:00"}, (StudyPause(0, "a"),)),
        ({"event": "joined", "bed": "b", "at": "2026-03-01T15:00:00+00:00"}, ()),
    ],
)
def test_a_long_pause_between_sessions_is_known(
    record: dict[str, Any], pauses: tuple[StudyPause, ...]
) -> None:
    failed = {"event": "failed", "trial": 0, "why": "no", "at": "2026-03-01T12:00:00+00:00"}
    assert replay_records([TRIAL | {"bed": "a"}, failed, record]).pauses == pauses


def test_a_session_without_test_beds_leaves_no_bed_out() -> None:
    """`explain --measure` uses one bed after the verdict."""
    reason = "web1 cannot be reached"
    state = replay_records([
        {"event": "session", "beds": ["a", "b"]},
        {"event": "bed", "bed": "b", "set_aside": reason},
        {"event": "session"},
    ])  # fmt: skip
    assert state.beds == ("a", "b")
    assert state.exclusion_reasons == {"b": reason}


def test_a_trial_is_found_by_its_number_wherever_it_is() -> None:
    numbers = (0, 1, 3, 7)  # of a journal that somebody has shortened
    trials = [TRIAL | {"trial": number} for number in numbers]
    failed = [{"event": "failed", "trial": number, "why": f"{number}"} for number in (3, 2, 0, 9)]
    state = replay_records([*trials, *failed])
    assert [state.find_trial(number).number for number in numbers] == [0, 1, 3, 7]
    assert [trial.failure for trial in state.trials] == ["0", None, "3", None]


def test_trials_of_several_phases_are_in_their_order_and_share_the_names_of_settings() -> None:
    order = (Phase.SEARCH, Phase.TRY_FIRST, Phase.REFERENCE, Phase.SEARCH, Phase.TRY_FIRST)
    lines = [json.dumps(record) for number, phase in enumerate(order) for record in (
        TRIAL | {"trial": number, "phase": phase, "settings": {"web.nginx.some": number}},
        {"event": "failed", "trial": number, "why": "it does not start"},
    )]  # fmt: skip
    state = replay_records(map(json.loads, lines))
    assert [
        trial.number for trial in state.list_finished_trials(Phase.TRY_FIRST, Phase.SEARCH)
    ] == [
        0,
        1,
        3,
        4,
    ]
    assert state.list_finished_trials() == state.trials
    names = {id(name) for trial in state.trials for name in trial.settings}
    assert len(names) == 1


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"event": "failed"},
        TRIAL | {"phase": "of a later version"},
        {"event": "standings", "peaks": {"0": [-1.0, 0.1]}, "noise": 0.1},
        {"event": "standings", "peaks": {"first": [1.0, 0.1]}, "noise": 0.1},
        {"event": "standings", "peaks": [], "noise": 0.1},
        {"event": "spent", "seconds": 3},
        {"event": "spent", "seconds": {"load": 1e308}},
        {"event": ["study"]},
    ],
)
def test_a_garbled_record_is_damage_and_no_bug(record: dict[str, Any]) -> None:
    with pytest.raises(AutotuneError, match="invalid record of kind"):
        replay_records([record])


def test_nothing_recorded_is_an_empty_state() -> None:
    assert replay_records([]) == State()


# A record for every collection that grows with the length of a journal; ``{n}`` is replaced.
GROWING = [
    {**TRIAL, "trial": "{n}"},
    {"event": "deployed", "trial": "{n}", "effective": {}, "differences": []},
    {"event": "failed", "trial": "{n}", "why": "it does not start"},
    {"event": "answered", "trial": "{n}", "values": [1.0]},
    {"event": "capacities", "trial": "{n}", "parts": {}},
    {"event": "warm-up", "trial": "{n}", "settled": True, "windows": 1},
    {"event": "memory", "trial": "{n}", "rss": {"a": 1}},
    {"event": "spent", "seconds": {"load": 1.0}, "bed": "a"},
    {"event": "joined", "bed": "a"},
    {"event": "bed", "bed": "a", "set_aside": "it is gone"},
    {"event": "answers", "pages": [{"page": "/{n}", "problem": "none"}]},
]


def test_a_journal_is_replayed_with_one_copy_of_each_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each collection is copied, and the trials are indexed, once for any number of records."""
    numbers = range(1000, 0, -1)  # of a stranger's journal: no number is an index
    lines = [json.dumps(record).replace('"{n}"', str(number)).replace("{n}", str(number))
             for number in numbers for record in GROWING]  # fmt: skip
    counts: Counter[str] = Counter()
    replace, index_trials, own = (
        state_replay.replace,
        state_replay.index_trials,
        state_replay._StateDraft._own,
    )

    def count_states(instance: Any, **changes: Any) -> Any:
        counts["states"] += isinstance(instance, State)
        return replace(instance, **changes)

    def count_indices(trials: Any) -> dict[int, int]:
        counts["indices"] += 1
        return index_trials(trials)

    def count_copies(self: Any, name: str, copy: Any) -> Any:
        def count_and_copy(collection: Any) -> Any:
            counts[name] += 1
            return copy(collection)

        return own(self, name, count_and_copy)

    monkeypatch.setattr(state_replay, "replace", count_states)
    monkeypatch.setattr(state_replay, "index_trials", count_indices)
    monkeypatch.setattr(study_state, "index_trials", count_indices)
    monkeypatch.setattr(state_replay._StateDraft, "_own", count_copies)
    state = replay_records(map(json.loads, lines))
    assert [trial.number for trial in state.trials] == list(numbers)
    assert {trial.failure for trial in state.trials} == {"it does not start"}
    assert set(counts.values()) == {1}
    assert [state.find_trial(number).number for number in numbers] == list(numbers)
    assert counts["indices"] == 2


@pytest.mark.parametrize("record", [
    {"event": "joined", "bed": "{n}"},
    {"event": "spent", "seconds": {"load": 1.0}, "bed": "{n}"},
    {"event": "spent", "seconds": {"{n}": 1.0}},
    {"event": "session", "beds": ["{n}"]},
])  # fmt: skip
def test_too_many_names_are_refused(record: dict[str, Any]) -> None:
    lines = [json.dumps(record).replace("{n}", str(number)) for number in range(1001)]
    replay_records(map(json.loads, lines[:1000]))
    with pytest.raises(AutotuneError, match="more than 1,000"):
        replay_records(map(json.loads, lines))


def test_a_draft_does_not_change_the_state_that_it_started_from() -> None:
    lines = [json.dumps(record).replace('"{n}"', "0").replace("{n}", "0") for record in GROWING]
    first = replay_records(map(json.loads, lines))
    before = repr(first)
    second = replay_records(map(json.loads, lines), first)
    assert repr(first) == before
    assert len(second.trials) == 2


FAULT = {"event": "failed", "trial": 0, "why": "no load", "fault": True}
SEARCHED = TRIAL | {"phase": "search"}
VERDICT = {"event": "verdict", "verdict": "no-improvement", "best": None}


@pytest.mark.parametrize(
    ("records", "is_outdated"),
    [
        ([SEARCHED, FAULT], False),
        ([SEARCHED, FAULT, {"event": "session"}], True),
        ([SEARCHED, FAULT, {"event": "joined", "bed": "a"}], False),  # a further worker
        ([{"event": "joined", "bed": "a"}, SEARCHED, FAULT, {"event": "joined", "bed": "a"}], True),
        ([{"event": "session"}, SEARCHED, FAULT], False),
        ([SEARCHED, FAULT | {"fault": False}, {"event": "session"}], False),
        ([SEARCHED, FAULT, VERDICT, {"event": "session"}], False),  # `explain --measure`
    ],
)
def test_a_fault_before_a_resume_does_not_count(
    records: list[dict[str, Any]], is_outdated: bool
) -> None:
    state = replay_records(records)
    assert state.is_outdated_fault(state.find_trial(0)) is is_outdated
    assert len(state.list_counted_trials()) == (0 if is_outdated else 1)


def test_the_baseline_of_another_bed_counts_if_that_of_the_first_showed_nothing() -> None:
    measured = Peak(100.0, 90.0, 110.0, 0.05, "measured")
    trials = (
        Trial(0, Phase.BASELINE, {}, bed="a", failure="no load", is_fault=True),
        Trial(1, Phase.BASELINE, {}, bed="b", peak=measured),
    )
    state = apply_record(State(trials=trials, beds=("a", "b")), {"event": "session", "beds": ["b"]})
    assert [trial.number for trial in state.list_counted_trials()] == [1]
