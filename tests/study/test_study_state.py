from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.errors import AutotuneError
from autotune.study.study_state import Phase, State, replay_records

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
