from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest

from autotune.environments.peak import Peak
from autotune.optimize.confirmation import Gain
from autotune.report.studies import Study
from autotune.report.trial_outcomes import ReadingCounts
from autotune.report.view import build_study_view
from autotune.report.warnings import StudyWarning, collect_warnings
from autotune.study.state_replay import apply_record
from autotune.study.study_state import Phase, State, Trial
from autotune.study.verdict import Verdict
from autotune.target.model import Load, Simulated, Target
from autotune.target.read_target import read_target

TARGET = read_target(Path(__file__).parents[2] / "targets" / "local.yaml").target


def peak(value: float, verdict: str = "measured") -> Peak:
    return Peak(value, value * 0.97, value * 1.03, 0.02, verdict)


def trials(
    *, again: tuple[float, ...] = (1500, 1500, 1500), stock: tuple[float, ...] = (1000,) * 3, **best: Any
) -> tuple[Trial, ...]:  # fmt: skip
    """A baseline, a better trial 1, and their confirmation."""
    listed = [Trial(0, Phase.BASELINE, {}, peak=peak(1000))]
    listed.append(Trial(1, Phase.SEARCH, {}, **{"peak": peak(1600), **best}))
    for of, values in ((0, stock), (1, again)):
        for value in values:
            listed.append(Trial(len(listed), Phase.CONFIRM, {}, source_trial=of, peak=peak(value)))
    return tuple(listed)


def verdict(pairs: int = 3, said: str = "improved") -> Verdict:
    return Verdict(said, 1, Gain(1.5, 1.4, 1.6, pairs) if pairs else None)


def found(
    state: State, counts: dict[int, ReadingCounts] | None = None, target: Target = TARGET
) -> dict[str, StudyWarning]:
    study = Study(Path("lab"), target, (), state)
    vars(study)["reading_counts"] = counts or {}  # as if its readings had been counted
    return {warning.code: warning for warning in collect_warnings(build_study_view(study))}


def some(number: int) -> tuple[Trial, ...]:
    """More trials of the search, so that it cannot be said to have been short."""
    return tuple(Trial(100 + n, Phase.SEARCH, {}, peak=peak(900)) for n in range(number))


SOUND = State(trials=(*trials(), *some(20)), verdict=verdict(), seconds={"load": 95, "deploy": 5})


def test_a_sound_study_has_none() -> None:
    assert found(SOUND) == {}


def test_an_unchanged_setting_that_a_change_limits_needs_no_warning() -> None:
    difference = "web.x.y: requested 9, effective 4"
    of_both = [replace(trial, settings={**trial.settings, "web.x.y": 9})
               for trial in trials(differences=(difference,))]  # fmt: skip
    state = State(trials=(*of_both, *some(20)), verdict=verdict())
    assert "took-effect-differently" not in found(state)


@pytest.mark.parametrize(
    ("checked_count", "references", "value"), [(0, 1, 0), (50, 1, 50), (200, 1, None), (0, 0, None)]
)
def test_a_trial_whose_answers_were_hardly_checked_is_told(
    checked_count: int, references: int, value: int | None
) -> None:
    counts = {0: ReadingCounts(readings=9, checked_count=900),
              1: ReadingCounts(readings=9, checked_count=checked_count)}  # fmt: skip
    warned = found(replace(SOUND, reference_count=references), counts).get("few-answers")
    assert (warned and warned.value) == value
    assert warned is None or "of 1 trial (1)" in warned.text


def test_a_trial_that_failed_at_every_load_may_lack_checked_answers() -> None:
    state = replace(SOUND, trials=(*SOUND.trials, Trial(90, Phase.SEARCH, {}, failure="no")))
    counts = {0: ReadingCounts(readings=9, checked_count=900), 90: ReadingCounts(readings=9)}
    assert "few-answers" not in found(replace(state, reference_count=1), counts)


CASES: list[tuple[str, State, float, float]] = [
    ("few-pairs", State(trials=(*trials(), *some(20)), verdict=verdict(2)), 2, 3),
    ("few-trials", State(trials=(*trials(), *some(2)), verdict=verdict()), 4, 9),
    (
        "few-repeats",
        State(trials=(*trials(again=(1500,)), *some(20)), verdict=verdict(0)),
        1,
        3,
    ),
    (
        "failed-in-proof",
        State(
            trials=(
                *trials(),
                Trial(60, Phase.CONFIRM, {}, source_trial=1, failure="it stopped"),
                *some(20),
            ),
            verdict=verdict(0, "no-improvement"),
        ),
        1,
        0,
    ),
    ("not-remeasured", State(trials=(*trials(again=()), *some(20))), 0, 1),
    (
        "took-effect-differently",
        State(
            trials=(*trials(differences=("web.x.y: requested 9, effective 4",)), *some(20)),
            verdict=verdict(),
        ),
        1,
        0,
    ),
    (
        "time-not-loading",
        State(trials=(*trials(), *some(20)), verdict=verdict(), seconds={"load": 70, "deploy": 30}),
        0.3,
        0.2,
    ),
    ("drift", State(trials=(*trials(stock=(800,) * 3), *some(20)), verdict=verdict()), -0.2, 0.1),
    (
        "limited",
        State(
            trials=(
                *trials(),
                *some(20),
                Trial(200, Phase.SEARCH, {}, peak=peak(8000, "limited")),
            ),
            verdict=verdict(),
        ),
        1,
        0,
    ),
    (
        "many-failed",
        State(
            trials=(
                *trials(),
                *(Trial(50 + n, Phase.SEARCH, {}, failure="no") for n in range(10)),
            ),
            verdict=verdict(),
        ),
        10,
        4.0,
    ),
]


@pytest.mark.parametrize(("code", "state", "value", "threshold"), CASES, ids=lambda x: str(x)[:24])
def test_each_has_its_number_its_threshold_and_a_remedy(
    code: str, state: State, value: float, threshold: float
) -> None:
    warning = found(state)[code]
    assert warning.value == pytest.approx(value)
    assert warning.threshold == pytest.approx(threshold)
    assert warning.text
    assert warning.remedy


NONE_CASES: list[tuple[str, State]] = [
    (
        "few-trials",
        State(trials=trials(), verdict=verdict(), stop_reason="no further gain is expected"),
    ),
    (
        "not-remeasured",
        State(
            trials=(
                *trials(again=()),
                Trial(60, Phase.CONFIRM, {}, source_trial=1, failure="it stopped"),
                *some(20),
            ),
            verdict=verdict(0, "no-improvement"),
        ),
    ),
    (
        "drift",  # a first measurement as imprecise as this one may have been lucky
        State(
            trials=(
                Trial(0, Phase.BASELINE, {}, peak=Peak(1000, 700, 1400, 0.2, "rough")),
                *trials(stock=(800,) * 3)[1:],
                *some(20),
            ),
            verdict=verdict(),
        ),
    ),
]


@pytest.mark.parametrize(("code", "state"), NONE_CASES, ids=lambda x: str(x)[:24])
def test_other_causes_need_no_warning(code: str, state: State) -> None:
    assert code not in found(state)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("load.max_rate", "limited to 8,000 requests/s by `load.max_rate`"),
        ("no free port", "limited by no free port"),
    ],
)
def test_the_limit_of_the_load_is_named(limit: str, text: str) -> None:
    limited = replace(peak(5000, "limited"), limit=limit)
    state = State(
        trials=(*trials(), *some(20), Trial(200, Phase.SEARCH, {}, peak=limited)),
        verdict=verdict(),
    )
    assert found(state)["limited"].text.endswith(text)


def test_scatter_of_either_side() -> None:
    noisy = (1500 * exp(-0.1), 1500.0, 1500 * exp(0.1))
    state = State(trials=(*trials(again=noisy), *some(20)), verdict=verdict())
    warning = found(state)["noisy"]
    assert warning.value == pytest.approx(0.1)
    assert "best" in warning.text


@pytest.mark.parametrize("ended", ["unsettled", "unmet"])
def test_unsettled_measurements_behind_the_verdict(ended: str) -> None:
    extra = Trial(60, Phase.CONFIRM, {}, source_trial=1, peak=peak(1500, ended))
    state = State(trials=(*trials(), extra, *some(20)), verdict=verdict())
    assert found(state)["unsettled"].value == 1
    of_others = Trial(60, Phase.SEARCH, {}, peak=peak(1500, ended))
    assert "unsettled" not in found(
        State(trials=(*trials(), of_others, *some(20)), verdict=verdict())
    )


def test_a_warm_up_that_ran_out_of_windows() -> None:
    assert found(SOUND, {1: ReadingCounts(warmed=19)}) == {}
    assert found(SOUND, {2: ReadingCounts(warmed=20)})["warm-up-cut-short"].value == 1
    stopped = replace(SOUND, verdict=None)
    for state, is_named in ((SOUND, True), (stopped, False)):
        warning = found(state, {0: ReadingCounts(warmed=20), 2: ReadingCounts(warmed=20)})
        assert ("the verdict uses" in warning["warm-up-cut-short"].text) is is_named


@pytest.mark.parametrize("is_settled", [True, False])
def test_steps_of_load_after_an_overload_are_no_warm_up_that_ran_out(is_settled: bool) -> None:
    """A warm-up of 4 windows, and 16 steps of load before the readings after overloads."""
    record = {"event": "warm-up", "trial": 1, "settled": is_settled, "windows": 4}
    warnings = found(apply_record(SOUND, record), {1: ReadingCounts(warmed=20)})
    assert ("warm-up-cut-short" in warnings) is not is_settled


def test_only_a_constraint_of_the_target_can_be_relaxed() -> None:
    rule = "web.php_fpm.max_children * 30 MB <= 70% of web.memory"
    target = TARGET.model_copy(update={"constraints": (rule,)})
    bound = (f"web.php_fpm.max_children: 200 → 120 ({rule}: 6e+09 <= 4e+09)",)
    built_in = ("web.php_fpm.start_servers: 9 → 5 (web.php_fpm.start_servers <= …: 9 <= 5)",)
    for bindings, expected in ((bound, True), (built_in, False)):
        state = State(trials=(*trials(bindings=bindings), *some(20)), verdict=verdict())
        assert ("bound-by-rule" in found(state, target=target)) is expected


def test_the_objective_was_not_met_only_if_no_trial_met_it() -> None:
    of_load = replace(peak(8000, "limited"), limit="load.max_rate")
    unmeetable = verdict(0, "unmeetable")
    failed = Trial(0, Phase.BASELINE, {}, peak=Peak(0.0, 0.0, 9.0, 0.1, "unmeetable"))
    for trial, is_named in ((failed, True), (replace(failed, peak=of_load), False)):
        state = State(trials=(trial, *(replace(t, peak=failed.peak) for t in some(20))),
                      verdict=replace(unmeetable, best=None))  # fmt: skip
        assert ("slo-not-met" in found(state)) is is_named


def test_an_empty_study_has_none() -> None:
    assert found(State()) == {}


def test_a_model_is_called_one() -> None:
    modelled = TARGET.model_copy(update={"simulated": Simulated()})
    assert set(found(SOUND, target=modelled)) == {"simulated"}


def test_pages_without_a_reference_are_named() -> None:
    pages = (
        {"page": "/", "share": 0.9995},
        {"page": "/gone", "share": 0.0005, "problem": "status 404"},
    )
    state = apply_record(SOUND, {"event": "answers", "at": "", "pages": pages})
    assert state.reference_count == 1
    warning = found(state)["pages-not-checked"]
    assert warning.text == (
        "responses of 1 rarely requested page were not compared, because they were already incorrect "
        "before the first trial, for example /gone (status 404)"
    )


def test_answers_under_any_certificate_are_no_proof() -> None:
    loose = TARGET.model_copy(update={"load": Load(url="https://shop.example/", insecure=True)})
    assert set(found(SOUND, target=loose)) == {"insecure"}
