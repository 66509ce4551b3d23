"""`autotune sweep` as it is typed, on a modelled stack; stopped and continued."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError, UsageError
from autotune.report.page import encode_plotly
from autotune.study import start
from autotune.study.reading_records import load_readings
from autotune.study.study_store import load_state
from autotune.sweep import request, results, runner
from autotune.sweep.plan import read_finished_measurements
from tests.printed import printed
from tests.sweep import modelled

pytestmark = pytest.mark.long


OVER = ("--over", "web.php_fpm.max_children=10,40", "--over", "web.nginx.use=epoll,poll")


def autotune(*words: object) -> Result:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_a_grid_is_measured_drawn_and_told(tmp_path: Path) -> None:
    target, studies = modelled.written(tmp_path), tmp_path / "studies"
    done = autotune(
        "sweep", target, *OVER, "--hosts", "web=1,2", "--rate", 800, "--rate", 1500,
        "--repeat", 2, "--yes", "--json", "--studies", studies,
    )  # fmt: skip
    size = "8 points, each measured 2 times: 16 × 2 readings of 5 s, 2 min 40 s under load."
    assert size in done.stderr
    assert "its time is virtual." in done.stderr
    places = re.findall(r"^\[(\d+)/16\] .* at 800/s, .* at 1500/s$", done.stderr, re.M)
    assert [*map(int, places)] == [*range(1, 17)]
    found = printed("sweep", done.stdout)
    assert found["left"] == 0
    assert len(found["points"]) == 16
    assert found["best"]["at"]["web.php_fpm.max_children"] == 40
    assert found["best"]["hosts"] == {"web": 2}
    slow = next(p for p in found["points"] if p["rate"] == 1500 and p["hosts"] == {"web": 1}
                and p["at"]["web.php_fpm.max_children"] == 40)  # fmt: skip
    assert slow["response"]["count"] == 2
    assert slow["response"]["low"] < slow["response"]["value"] < slow["response"]["high"]
    assert slow["p50"] <= slow["p99"]
    assert set(slow["load"]) == {"lb", "web", "cache", "store"}

    page = (studies / "modelled-sweep" / "sweep.html").read_text().replace(encode_plotly(), "")
    assert page.count('class="plot tall"') == 5
    assert "simulated; no host was touched" in page
    assert not re.findall(r"(?:src|href)=|https?://|url\(", page)
    said = autotune("report", "modelled-sweep", "--studies", studies).stdout
    assert "Response time (ms), mean of 2 readings" in said
    assert "use epoll · 1 web · 800/s" in said


def test_peaks_of_deployments(tmp_path: Path) -> None:
    target = modelled.written(tmp_path)
    done = autotune(
        "sweep", target, "--over", "service=nginx/nginx+php-fpm,apache/nginx+php-fpm", "--peak",
        "--repeat", 1, "--yes", "--json", "--studies", tmp_path / "studies",
    )  # fmt: skip
    found = printed("sweep", done.stdout)
    assert re.search(r"^\[2/2\] service .*: capacity \d+/s$", done.stderr, re.M)
    peaks = {point["at"]["service"]: point["peak"]["value"] for point in found["points"]}
    assert set(peaks) == {"nginx, nginx+php-fpm", "apache, nginx+php-fpm"}
    assert found["best"]["at"]["service"] == max(peaks, key=lambda name: peaks[name])


def test_what_cannot_be_deployed_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    target = modelled.written(tmp_path)
    done = autotune(
        "sweep", target, "--over", "web.nginx.worker_connections=512,4096", "--set",
        "web.nginx.use=select", "--rate", 500, "--repeat", 1, "--yes",
        "--studies", tmp_path / "studies",
    )  # fmt: skip
    assert "1 × the maximum number of files supported by select() is 1024" in done.stdout


def test_a_capacity_is_never_that_of_other_values(tmp_path: Path) -> None:
    """A rule would change the larger value, because so many processes do not fit into the memory."""
    children = "web.php_fpm.max_children"
    target = modelled.written(tmp_path, modelled.TARGET.replace("memory: 32GB", "memory: 2GB"))
    done = autotune(
        "sweep", target, "--over", f"{children}=10,200", "--peak", "--repeat", 1, "--yes", "--json",
        "--studies", tmp_path / "studies",
    )  # fmt: skip
    peaks = {p["at"][children]: p["peak"] for p in printed("sweep", done.stdout)["points"]}
    assert peaks[10] is not None
    assert peaks[200] is None
    assert "not possible: " in done.stderr


def test_stopped_at_any_reading_it_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    path, directory = modelled.written(tmp_path), tmp_path / "studies" / "s"
    file, wanted = request.build_request(path, [OVER[1]], ["web=1,2"], None, [500.0], 2, peak=False)
    plan = request.build_plan(file, wanted, prepare(file).space)
    for patience in (1, 4, 9):
        with pytest.raises(KeyboardInterrupt):
            runner.run_sweep(file, plan, directory, modelled.Silent(patience))
    before = read_finished_measurements(directory)
    assert 0 < len(before) < 8
    runner.run_sweep(start.prepare_unfinished(directory).file, None, directory, modelled.Silent())
    assert read_finished_measurements(directory) > before
    found = results.load_results(directory)
    assert found.remaining_measurements == 0
    assert [r.response.count for r in found.results if r.response] == [2, 2, 2, 2]
    read = [r.trial for r in load_readings(directory) if r.purpose == "sweep"]
    assert len(load_state(directory).trials) > len(read_finished_measurements(directory)) == 8
    assert len(read) == len(set(read)) >= 8


def test_a_sweep_is_resumed_by_its_name(tmp_path: Path) -> None:
    path, directory = modelled.written(tmp_path), tmp_path / "studies" / "s"
    file, wanted = request.build_request(path, [OVER[1]], None, None, [500.0], 1, peak=False)
    plan = request.build_plan(file, wanted, prepare(file).space)
    with pytest.raises(KeyboardInterrupt):
        runner.run_sweep(file, plan, directory, modelled.Silent(1))
    unready = autotune("report", "s", "--studies", directory.parent).stdout
    assert "unfinished: 2 measurements remain" in unready
    for words in (["--csv", "trials"], ["--at", "100/s"]):
        with pytest.raises(UsageError, match="applies only to studies, and s is a sweep"):
            autotune("report", "s", *words, "--studies", directory.parent)
    done = autotune("resume", "s", "--yes", "--json", "--studies", directory.parent)
    assert printed("sweep", done.stdout)["left"] == 0
    assert (directory / "sweep.html").exists()


def test_a_finished_sweep_has_nothing_left_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, studies = modelled.written(tmp_path), tmp_path / "studies"
    sweep = ("sweep", target, "--over", OVER[1], "--rate", 500, "--repeat", 1, "--yes")
    autotune(*sweep, "--studies", studies)
    monkeypatch.setattr(start, "prepare_unfinished", None)  # no host is reached
    reported = autotune("report", "modelled-sweep", "--studies", studies).stdout
    done = autotune("resume", "modelled-sweep", "--studies", studies)  # nothing to confirm
    assert done.stdout == reported
    assert done.stderr == (
        "sweep modelled-sweep is finished, so nothing is left to measure; `autotune report "
        f"modelled-sweep --studies {studies}` shows its results\n"
    )
    done = autotune("resume", "modelled-sweep", "--json", "--studies", studies)
    assert printed("sweep", done.stdout)["left"] == 0


def test_nothing_to_vary_is_told(tmp_path: Path) -> None:
    path = modelled.written(tmp_path)
    file, wanted = request.build_request(path, None, None, None, [500.0], 1, peak=False)
    with pytest.raises(AutotuneError, match="the sweep varies nothing"):
        request.build_plan(file, wanted, prepare(file).space)


@pytest.mark.parametrize("peak", [False, True])
def test_a_plan_on_record_sets_nothing_but_parameters_of_the_target(
    tmp_path: Path, peak: bool
) -> None:
    path, rates = modelled.written(tmp_path), [] if peak else [500.0]
    file, wanted = request.build_request(path, [OVER[1]], None, None, rates, 1, peak=peak)
    plan = request.build_plan(file, wanted, prepare(file).space)
    forged = replace(plan, settings={**plan.settings, "web.nginx.user": "root; }"})
    with pytest.raises(AutotuneError, match="settings in the study do not fit its target"):
        runner.run_sweep(file, forged, tmp_path / "studies" / "s", modelled.Silent())
