from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune.cli.session import create_progress
from autotune.deploy.deploy_result import DeployResult, SettingMismatch
from autotune.environments.peak import Peak
from autotune.measure.reading import Reading
from autotune.measure.warm_up import WarmUpResult, WarmUpWindow
from autotune.report.live_progress import LiveProgress
from autotune.report.progress import PlainProgress, ProgressDisplay, TeeProgress
from autotune.report.studies import Study
from autotune.report.text_report import format_brief_lines
from autotune.report.view import build_study_view
from autotune.services.base import Action
from autotune.study.study_state import Phase, State, Trial
from autotune.terminal import wrap_lines

Opened = Callable[[str], Study]

READING = Reading(1200.0, 2.0, 2400, 12, {"timeout": 2}, {0.02: 2388, 0.2: 10})
DEPLOYED = DeployResult(
    {},
    {"web.here.nginx": Action.RELOAD, "cache.here.memcached": Action.NONE},
    {},
    (SettingMismatch("web.nginx.backlog", 9000, 4096),),
)
WARMTH = WarmUpResult(
    True, (WarmUpWindow(600, False, 0.01, 0.85), WarmUpWindow(600, False, 0.01, 0.905))
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Growing:
    """The state of a study while it is told: what has begun so far."""

    def __init__(self, study: Study) -> None:
        self._whole, self.begun = study.state, 0

    def __call__(self) -> State:
        return replace(self._whole, trials=self._whole.trials[: self.begun], verdict=None)


def tell(
    told: ProgressDisplay, study: Study, state: Growing | None = None, reading: Reading = READING
) -> None:
    """Everything a narrator hears of a study, trial by trial."""
    with told:
        told.note("loading data")
        for trial in study.state.trials:
            if state is not None:
                state.begun += 1
            told.on_trial_start(trial)
            told.on_deployed(trial, DEPLOYED)
            told.on_reading(trial, reading, "warm-up")
            told.on_warm_up(trial, WARMTH)
            told.on_reading(trial, reading, "peak")
            if trial.is_finished:
                told.on_trial_end(trial)


def plainly(study: Study, *, verbose: bool = False) -> list[str]:
    stream, state = io.StringIO(), Growing(study)
    tell(create_progress(study.target, state, stream, {}, verbose=verbose), study, state)
    return stream.getvalue().splitlines()


def test_a_line_for_what_is_news(study: Opened) -> None:
    opened = study("improved")
    said = plainly(opened)
    assert said[0] == "loading data"
    assert said[1].startswith("[1/7] #0 baseline ")
    assert "1,240/s  p99 " in said[1]
    assert "best 1,240/s (#0)" in said[1]
    assert "best 2,118/s (#1, +71 %)" in said[2]
    assert " left" in said[1]
    assert any(" confirm #" in line for line in said)
    assert not any("[" in line for line in said if " confirm " in line or " finalist " in line)
    folded = sum(
        int(count)
        for line in said
        for count in re.findall(r"(\d+) (?:pruned|failed|measured|not converged)[,)]", line)
    )
    assert folded > 0
    last = int(re.findall(r"#(\d+)", said[-1])[0])
    assert len(said) - 1 + folded == last + 1  # each trial until then is a line or counted in one


def test_the_log_has_a_line_per_trial(study: Opened) -> None:
    opened = study("improved")
    said = [line for line in plainly(opened, verbose=True) if not line.startswith("  ")]
    assert len(said) == 1 + len(opened.state.trials)


@pytest.mark.usefixtures("beside_studies")
@pytest.mark.parametrize("name", ["improved", "aa", "noisy", "infeasible"])
def test_a_run_under_cpu_steal_prints_few_lines(name: str, study: Opened) -> None:
    opened, stream = study(name), io.StringIO()
    state = Growing(opened)
    progress = PlainProgress(opened.target, state, stream)
    tell(progress, opened, state, replace(READING, stolen=0.1))
    verdict = list(wrap_lines(format_brief_lines(build_study_view(opened)), 80))
    assert all(len(line) <= 80 for line, _ in verdict)
    assert "CPU steal in 2 readings" in stream.getvalue()
    around = 4  # where load goes, two values left out, the sampler
    assert around + len(stream.getvalue().splitlines()) + len(verdict) <= 25


def test_what_two_displays_are_told_is_the_same(study: Opened) -> None:
    opened, streams = study("aa"), (io.StringIO(), io.StringIO())
    displays = [
        PlainProgress(opened.target, lambda: opened.state, each, verbose=True) for each in streams
    ]
    tell(TeeProgress(*displays), opened)
    assert streams[0].getvalue() == streams[1].getvalue() != ""


def test_failures_and_screening_are_said(study: Opened) -> None:
    said = "\n".join(plainly(study("infeasible")))
    assert "failed: php-fpm did not start" in said
    assert "SLO not attainable at any rate" in said
    assert "pruned" in said


def test_details_on_request(study: Opened) -> None:
    said = "\n".join(plainly(study("improved"), verbose=True))
    assert (
        "deployed: reload web.here.nginx; web.nginx.backlog: requested 9000, effective 4096" in said
    )
    assert "warm after 2 windows, hit rate 90.5 %" in said
    assert "peak     1,200/s ✓ p99   20 ms  0.5 % late or failed  (timeout 2)" in said


@pytest.mark.parametrize(
    ("reading", "mark"),
    [
        (READING, "✓"),
        (Reading(100, 2, 200, 3, {}, {0.01: 197}), "✗"),
        (Reading(100, 2, 2000, 10, {"5xx": 10}, {0.001: 1990}), "✗"),
        (Reading(100, 2, 2000, 0, {}, {0.01: 2000}, truncated=True), "✗"),
        (Reading(100, 2, 200, 200, {}, {}), "✗"),
        (Reading(100, 0, 0, 0, {}, {}), "✗"),
    ],
)
def test_a_rung_of_the_ladder_is_marked(reading: Reading, mark: str, study: Opened) -> None:
    stream = io.StringIO()
    opened = study("improved")
    told = PlainProgress(opened.target, lambda: opened.state, stream, verbose=True)
    told.on_reading(opened.state.trials[0], reading, "peak")
    assert f"/s {mark} " in stream.getvalue()


def test_a_limited_generator_says_nothing_of_the_stack(study: Opened) -> None:
    stream = io.StringIO()
    opened = study("improved")
    told = PlainProgress(opened.target, lambda: opened.state, stream, verbose=True)
    told.on_reading(opened.state.trials[0], Reading(9e3, 2, 1, 1, limited="no free port"), "peak")
    assert "9,000/s  invalid reading: no free port" in stream.getvalue()


def test_lines_or_a_panel(study: Opened) -> None:
    opened = study("improved")

    def kind(stream: io.StringIO, environment: dict[str, str], *, verbose: bool = False) -> type:
        return type(
            create_progress(
                opened.target, lambda: opened.state, stream, environment, verbose=verbose
            )
        )

    assert kind(io.StringIO(), {}) is PlainProgress
    assert kind(Terminal(), {"TERM": "dumb"}) is PlainProgress
    assert kind(Terminal(), {}, verbose=True) is PlainProgress
    assert kind(Terminal(), {"TERM": "xterm"}) is LiveProgress
    assert kind(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}) is LiveProgress


def test_the_panel_shows_what_is_going_on(study: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    opened, stream = study("infeasible"), Terminal()
    state = Growing(opened)
    tell(LiveProgress(opened.target, state, stream), opened, state)
    said = stream.getvalue()
    assert "infeasible · p99 ≤ 50 ms · configuration 0 of 9" in said
    assert "infeasible · p99 ≤ 50 ms · configuration 9 of 9" in said
    assert "deployed: reload web.here.nginx" in said
    assert "1,200/s ✓ p99" in said
    assert "choosing the next configuration" in said
    assert "best 2,058/s (#1, +71 %)" in said
    assert "[pool www]" in said  # square brackets are no markup


@pytest.mark.parametrize("name", ["killed", "unmeetable", "lifted", "aa"])
def test_every_recorded_study_can_be_told(name: str, study: Opened) -> None:
    opened = study(name)
    for stream in (io.StringIO(), Terminal()):
        tell(
            create_progress(opened.target, lambda: opened.state, stream, {"TERM": "xterm"}), opened
        )
        assert "cannot show progress" not in stream.getvalue()


ODD = State(
    trials=(
        Trial(0, Phase.BASELINE, {}, failure=""),
        Trial(1, Phase.SEARCH, {}, peak=Peak(0.0, 0.0, 0.0, 0.0, "limited", limit="load.max_rate")),
        Trial(2, Phase.MEASURE, {}, peak=Peak(12.0, 11.0, 13.0, 0.0, "measured")),
        Trial(3, Phase.CONFIRM, {}, source_trial=99, peak=Peak(1e9, 0.0, 1e12, 3.0, "novel")),
    )
)


@pytest.mark.parametrize("terminal", [False, True])
def test_odd_data_is_told_all_the_same(terminal: bool, study: Opened) -> None:
    target = study("improved").target
    stream = Terminal() if terminal else io.StringIO()
    with create_progress(target, lambda: ODD, stream, {"TERM": "xterm"}) as told:
        for trial in ODD.trials:
            told.on_trial_start(trial)
            told.on_reading(trial, Reading(0.0, 0.0, 0, 0), "odd")
            told.on_trial_end(trial)
    assert "cannot show progress" not in stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_trouble_is_said_once_and_the_study_goes_on(terminal: bool, study: Opened) -> None:
    def broken() -> State:
        raise RuntimeError("out of reach")

    opened = study("improved")
    stream = Terminal() if terminal else io.StringIO()
    tell(create_progress(opened.target, broken, stream, {"TERM": "xterm"}), opened)
    assert stream.getvalue().count("cannot show progress") == 1
    assert "out of reach" in stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_closed_stream_ends_nothing(terminal: bool, study: Opened) -> None:
    opened = study("improved")
    stream = Terminal() if terminal else io.StringIO()
    told = create_progress(opened.target, lambda: opened.state, stream, {"TERM": "xterm"})
    stream.close()
    tell(told, opened)


def test_an_interrupt_is_not_swallowed(study: Opened) -> None:
    def interrupted() -> State:
        raise KeyboardInterrupt

    opened = study("improved")
    told = PlainProgress(opened.target, interrupted, io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        told.on_trial_end(opened.state.trials[0])
