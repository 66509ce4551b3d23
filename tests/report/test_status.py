from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import AutotuneError, TargetError
from autotune.report.page_summary import build_cards
from autotune.report.status import build_status, format_status, watch_status
from autotune.report.studies import Study, open_study
from autotune.report.summary import build_summary
from autotune.report.text_report import build_sections, select_change_title
from autotune.report.view import StudyView, build_study_view
from autotune.study.directory import StudyLock, find_study, list_study_names
from autotune.study.start import prepare_unfinished
from autotune.sweep.plan import AxisValue, SweepAxis, SweepPlan

Copied = Callable[[str], Path]


def test_found_by_name_and_by_path(copied: Copied, tmp_path: Path) -> None:
    directory = copied("aa")
    root = tmp_path / "studies"
    assert find_study("aa", root) == directory
    assert find_study(str(directory), tmp_path / "elsewhere") == directory


def test_a_misspelt_name_is_answered_with_the_nearest(copied: Copied, tmp_path: Path) -> None:
    copied("improved")
    copied("aa")
    with pytest.raises(AutotuneError) as caught:
        find_study("imporved", tmp_path / "studies")
    assert caught.value.message == "unknown study 'imporved'"
    assert caught.value.hint == "did you mean 'improved'?"
    with pytest.raises(AutotuneError) as caught:
        find_study("zzz", tmp_path / "studies")
    assert caught.value.hint == "existing studies: aa, improved"


def test_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError) as caught:
        find_study("lab", tmp_path / "studies")
    assert "--studies DIRECTORY" in (caught.value.hint or "")
    assert list_study_names(tmp_path / "studies") == ()


def test_a_study_that_runs_is_read_without_its_lock(copied: Copied) -> None:
    directory = copied("killed")
    with StudyLock(directory / "lock"):
        opened = build_study_view(open_study(directory))
        assert build_status(opened)["state"] == "running"
        said = format_status(opened)
        assert "killed: running, process " in said
        assert "trial 4 (search) is being" in said
        assert "not yet proven" in said
        assert "autotune resume" not in said
    assert build_status(build_study_view(open_study(directory)))["state"] == "stopped"


@pytest.mark.parametrize(
    ("purpose", "following"), [("applied", "autotune restore"), ("measured", "autotune report")]
)
def test_what_searched_nothing_is_not_to_be_resumed(
    purpose: str,
    following: str,
    copied: Copied,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = copied("killed")
    first, *others = (directory / "events.jsonl").read_text().splitlines(keepends=True)
    written = json.dumps({**json.loads(first), "purpose": purpose}) + "\n"
    (directory / "events.jsonl").write_text("".join([written, *others]))
    said = format_status(build_study_view(open_study(directory)))
    assert said == f"killed: a configuration was {purpose}\n  next      {following} killed\n"
    with pytest.raises(AutotuneError, match="killed cannot be resumed"):
        prepare_unfinished(directory)


@pytest.mark.parametrize(
    ("swept", "state", "command"),
    [((3,), "stopped", "autotune resume killed"), ((3, 4), "finished", "autotune report killed")],
)
def test_a_sweep_is_finished_when_all_its_points_are_measured(
    swept: tuple[int, ...],
    state: str,
    command: str,
    copied: Copied,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = copied("killed")
    values = (AxisValue("epoll", {}), AxisValue("poll", {}))
    plan = SweepPlan("sweep", (SweepAxis("lb.nginx.use", values),), rates=(100.0,), repeat=1)
    records: list[dict[str, object]] = [{"event": "sweep", "plan": plan.to_record()}]
    records += [{"event": "swept", "trial": n, "point": n - 3, "turn": 0} for n in swept]
    events = directory / "events.jsonl"
    lines = "".join(json.dumps(record) + "\n" for record in records)
    complete_lines = events.read_text().rpartition("\n")[0] + "\n"  # the last line is torn
    recorded = complete_lines.replace('"phase":"search"', '"phase":"measure"')
    events.write_text(recorded + lines)
    view = build_study_view(open_study(directory))
    status, said = build_status(view), format_status(view)
    assert (status["state"], status["seconds"]["left"]) == (state, None)
    assert f"  measured  {len(swept)} of 2 measurements\n" in said
    assert said.endswith(f"  next      {command}\n")
    assert ("was interrupted" in said) == (state == "stopped")
    assert "baseline" not in said


def test_a_damaged_journal_is_named(copied: Copied) -> None:
    events = copied("aa") / "events.jsonl"
    events.write_text("{broken\n" + events.read_text())
    with pytest.raises(AutotuneError, match=r"events\.jsonl"):
        open_study(events.parent)


def test_a_damaged_target_is_named(copied: Copied) -> None:
    directory = copied("aa")
    (directory / "target.yaml").write_text("name: [\n")
    with pytest.raises(TargetError, match=r"target\.yaml:"):
        open_study(directory)


def test_a_study_that_has_hardly_begun(copied: Copied) -> None:
    directory = copied("aa")
    first = (directory / "events.jsonl").read_text().splitlines(keepends=True)[0]
    (directory / "events.jsonl").write_text(first)
    (directory / "readings.jsonl").unlink()
    said = format_status(build_study_view(open_study(directory)))
    assert "not measured yet" in said
    assert "autotune resume aa" in said


def first_trials(study: Study, count: int) -> StudyView:
    """The view of a recorded study as it was after its first trials."""
    state = replace(study.state, trials=study.state.trials[:count], verdict=None, posterior=None)
    return build_study_view(replace(study, state=state))


def test_only_a_candidate_above_the_baseline_is_called_best(study: Callable[[str], Study]) -> None:
    view = first_trials(study("aa"), 3)
    assert view.outlook.is_baseline_leading
    assert "best      991 requests/s [966, 1,035] (trial 0)\n" in format_status(view)
    assert select_change_title(view) == "Best candidate: 3 settings changed (trial 2)"
    assert "Best candidate" in [card.title for card in build_cards(view)]
    assert select_change_title(first_trials(study("killed"), 3)).startswith("Best so far: ")


def test_a_failing_baseline_is_not_the_best(study: Callable[[str], Study]) -> None:
    said = format_status(first_trials(study("lifted"), 1))
    assert "  best      nothing meets the SLO yet\n" in said


def test_a_baseline_that_does_not_start_is_not_measured(study: Callable[[str], Study]) -> None:
    opened = study("lifted")
    first, *others = opened.state.trials
    failed = replace(first, peak=None, failure="nginx did not start")
    state = replace(opened.state, trials=(failed, *others))
    view = build_study_view(replace(opened, state=state))
    assert view.headline.text.endswith("; the baseline could not be measured")
    said = build_sections(view)["Capacity"][0]
    assert said == "baseline could not be measured  trial 0: nginx did not start"
    assert "  baseline  could not be measured (trial 0)\n" in format_status(view)
    assert build_cards(view)[0].note == "could not be measured"


def test_long_names_of_beds_do_not_run_into_figures(study: Callable[[str], Study]) -> None:
    opened = study("improved")
    state = replace(opened.state, beds=("a", "frankfurt-1"))
    view = build_study_view(replace(opened, state=state))
    assert "  bed a           0 measurements" in format_status(view)
    assert "  bed frankfurt-1 0 measurements" in format_status(view)
    assert build_sections(view)["Test beds"] == [
        "a           0 measurements",
        "frankfurt-1 0 measurements",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_study_that_nobody_runs_is_shown_once(copied: Callable[[str], Path]) -> None:
    out, directory = io.StringIO(), copied("improved")
    watch_status(lambda: directory, out)
    assert out.getvalue().count("improved: finished") == 1


def test_a_running_study_is_shown_again_when_it_has_changed(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    directory, out, looks = copied("killed"), Terminal(), []
    lock = StudyLock(directory / "lock")

    def meanwhile(_: float) -> None:
        looks.append(out.getvalue().count("\x1b[H"))
        if len(looks) == 1:
            journal = directory / "events.jsonl"
            whole, _, _ = journal.read_text().rpartition("\n")  # without the line that was torn
            more = json.dumps({"event": "spent", "seconds": {"load": 600.0}})
            journal.write_text(f"{whole}\n{more}\n")
        elif len(looks) == 3:
            lock.__exit__(None, None, None)

    lock.__enter__()
    watch_status(lambda: directory, out, meanwhile)
    assert looks == [1, 2, 2]
    assert out.getvalue().count("\x1b[H") == 3
    assert "stopped (no process holds the lock)" in out.getvalue()


def test_a_narrow_or_simple_terminal_is_watched_too(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "40")
    directory, out = copied("improved"), Terminal()
    watch_status(lambda: directory, out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "improved: finished"
    assert max(map(len, lines)) <= 40
    assert "\x1b" not in out.getvalue()


def test_a_finished_study_has_one_gain(copied: Copied) -> None:
    view = build_study_view(open_study(copied("improved")))
    assert view.conclusion.gain is not None
    assert build_status(view)["ratio"] == build_summary(view)["gain"]["ratio"]


@pytest.mark.parametrize("name", ["aa", "improved", "infeasible", "noisy"])
def test_status_and_panel_show_one_best_at_each_moment(
    name: str, copied: Copied, tmp_path: Path
) -> None:
    """The live panel prints the outlook, `status` its own record: they must not disagree."""
    opened = open_study(copied(name))
    for count in range(1, len(opened.state.trials) + 1):
        state = replace(opened.state, trials=opened.state.trials[:count], verdict=None)
        view = build_study_view(replace(opened, state=state))
        best = build_status(view)["best"]
        leader = view.outlook.leader
        assert (best or {}).get("trial") == (leader.trial.number if leader else None)
        if leader and leader.best_estimate and leader.best_estimate.is_feasible:
            assert best["peak"] == pytest.approx(leader.best_estimate.peak, abs=0.01)
            shown = view.units.format_short(best["peak"])
            assert f"best {shown} (#{best['trial']}" in str(view.outlook)
            assert f"{view.units.format_amount(best['peak'])} " in format_status(view)


def test_watching_refuses_invalid_records_of_others(copied: Copied) -> None:
    directory = copied("improved")
    verdict = {"event": "verdict", "verdict": "improved", "best": 5000, "gain": None, "phases": []}
    with (directory / "events.jsonl").open("a") as journal:
        journal.write(json.dumps(verdict) + "\n")
    with pytest.raises(AutotuneError, match="invalid records in study improved"):
        watch_status(lambda: directory, io.StringIO())
