"""The embedded runtime with the real servers: deployed, reloaded, broken, rolled back, taken away."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy import dataset, run_directories
from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.deployment import Deployment
from autotune.environments.load_session import LoadSession, StackMeter
from autotune.services.base import Action, Settings
from autotune.study.trial_context import TrialContext, stop_orphaned_servers
from autotune.transports.local import LocalTransport
from tests.answers import fetched
from tests.deploy.conftest import ALL, SOME, Opened, processes_below
from tests.deploy.lab import give_up_soon

pytestmark = pytest.mark.stack
RIGHT = (200, b"found 0100 of 0100\n")


def settings(bench: TrialContext, **changed: Any) -> Settings:
    """The baseline with some values changed; ``__`` stands for a dot."""
    return bench.space.build_candidate(
        {k.replace("__", "."): v for k, v in changed.items()}
    ).settings


def fleet(bench: TrialContext) -> Deployment:
    assert isinstance(bench.session.fleet, Deployment)
    return bench.session.fleet


def meter(bench: TrialContext) -> StackMeter:
    assert isinstance(bench.session, LoadSession)
    return bench.session.meter


def answer(bench: TrialContext) -> object:
    return fetched(fleet(bench).stack.entry, "/kv.php")


def test_least_action_and_what_is_in_effect(opened: Opened) -> None:
    with opened() as bench:
        first = fleet(bench).deploy(settings(bench))
        assert set(first.actions.values()) == {Action.RESTART}
        assert answer(bench) == RIGHT
        assert first.mismatches == ()
        asked = settings(bench)
        assert {n: asked[n] for n in first.effective if n in asked} == {
            n: v for n, v in first.effective.items() if n in asked
        }

        again = fleet(bench).deploy(settings(bench))
        assert set(again.actions.values()) == {Action.NONE}

        reloaded = fleet(bench).deploy(
            settings(bench, web__php_fpm__max_children=9, lb__nginx__worker_processes=3)
        )
        acted = {n: a for n, a in reloaded.actions.items() if a is not Action.NONE}
        assert acted == {"web.here.php_fpm": Action.RELOAD, "lb.here.nginx": Action.RELOAD}
        assert reloaded.effective["web.php_fpm.max_children"] == 9
        assert reloaded.effective["lb.nginx.worker_processes"] == 3

        restarted = fleet(bench).deploy(
            settings(
                bench,
                web__php_fpm__max_children=9,
                lb__nginx__worker_processes=3,
                cache__memcached__threads=2,
            )
        )
        acted = {n: a for n, a in restarted.actions.items() if a is not Action.NONE}
        assert acted == {"cache.here.memcached": Action.RESTART}
        assert restarted.effective["cache.memcached.threads"] == 2
        assert answer(bench) == RIGHT


def test_a_backlog_beyond_somaxconn_is_read_back_as_it_is(opened: Opened) -> None:
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with opened() as bench:
        deployed = fleet(bench).deploy(settings(bench, lb__nginx__backlog=65535))
        assert deployed.effective["lb.nginx.backlog"] == min(somaxconn, 65535)
        # The space lowers it before the deployment, so that what is deployed is in effect.
        assert "lb.nginx.backlog" not in {each.parameter for each in deployed.mismatches}


def test_what_does_not_validate_changes_nothing(opened: Opened) -> None:
    with opened() as bench:
        fleet(bench).deploy(settings(bench))
        before = {
            p.pid
            for p in processes_below(Path(fleet(bench).stack.instances[0].placement.directory))
        }
        broken = {**settings(bench), "lb.nginx.keepalive_timeout": "a while"}
        with pytest.raises(DeployFailed, match=r"keepalive_timeout.*invalid value"):
            fleet(bench).deploy(broken)
        with pytest.raises(DeployFailed, match="memcached"):
            fleet(bench).deploy({**settings(bench), "cache.memcached.threads": "none"})
        after = {
            p.pid
            for p in processes_below(Path(fleet(bench).stack.instances[0].placement.directory))
        }
        assert before == after
        assert answer(bench) == RIGHT
        assert set(fleet(bench).deploy(settings(bench)).actions.values()) == {Action.NONE}


def test_what_validates_and_then_answers_wrong_is_rolled_back(
    opened: Opened, tmp_path: Path
) -> None:
    templates = tmp_path / "mine" / "php_fpm"
    templates.mkdir(parents=True)
    shipped = Path(__file__).parents[2] / "templates" / "php_fpm" / "php-fpm.conf.j2"
    # A pool that looks right to PHP-FPM, and whose application cannot say what it found.
    trap = "{% if max_children == 13 %}\nphp_admin_value[disable_functions] = printf\n{% endif %}\n"
    (templates / shipped.name).write_text(shipped.read_text() + trap)
    change = ("app: reference", "templates: mine, app: reference")
    with opened(change) as bench:
        fleet(bench).deploy(settings(bench))
        give_up_soon(fleet(bench))
        with pytest.raises(DeployFailed, match="does not respond correctly"):
            fleet(bench).deploy(settings(bench, web__php_fpm__max_children=13))
        assert answer(bench) == RIGHT
        good = fleet(bench).deploy(settings(bench))
        assert set(good.actions.values()) == {Action.NONE}


def test_a_server_that_died_is_started_again(opened: Opened) -> None:
    with opened() as bench:
        deployed = fleet(bench).deploy(settings(bench))
        assert deployed.actions["cache.here.memcached"] is Action.RESTART
        site = next(
            p.placement for p in fleet(bench).stack.instances if p.service.name == "memcached"
        )
        for process in processes_below(Path(site.directory)):
            process.kill()
            process.wait()
        again = fleet(bench).deploy(settings(bench))
        acted = {n for n, action in again.actions.items() if action is not Action.NONE}
        assert acted == {"cache.here.memcached"}
        assert answer(bench) == RIGHT


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_servers_of_a_killed_tuner_are_recognised_and_ended(opened: Opened, tmp_path: Path) -> None:
    forks = multiprocessing.get_context("fork")
    up = forks.Event()

    def tuner() -> None:
        with opened(name="killed") as bench:
            fleet(bench).deploy(settings(bench))
            up.set()
            forks.Event().wait()

    process = forks.Process(target=tuner)
    process.start()
    assert up.wait(240)
    (directory,) = run_directories.list_run_directories(tmp_path)
    run = directory.path
    assert stop_orphaned_servers(tmp_path) == ()  # it lives: its lock is held
    process.kill()
    process.join()
    assert processes_below(run)

    ended = stop_orphaned_servers(tmp_path)
    assert {line.removeprefix("killed: ") for line in ended} == {
        "memcached", "redis", "php_fpm", "nginx",
    }  # fmt: skip
    assert not processes_below(run)
    assert not run.exists()
    assert stop_orphaned_servers(tmp_path) == ()


@pytest.mark.quiet
def test_nine_of_ten_gets_hit_at_the_defaults(opened: Opened) -> None:
    with opened((SOME, ALL)) as bench:
        # The rate does not matter, so it is one that any machine carries with enough children.
        fleet(bench).deploy(settings(bench, web__php_fpm__max_children=20))
        shares = [0.0]
        for _ in range(30):
            before = meter(bench).count_cache_lookups()
            meter(bench).take_reading(300, 2.0)
            after = meter(bench).count_cache_lookups()
            assert before is not None
            assert after is not None
            hits, misses = after[0] - before[0], after[1] - before[1]
            shares.append(hits / (hits + misses))
            if abs(shares[-1] - shares[-2]) < 0.004:
                break
        assert 0.87 <= shares[-1] <= 0.93
        assert shares[1] >= 0.85  # it was filled


def test_a_cache_that_was_restarted_is_filled_again(opened: Opened) -> None:
    with opened((SOME, ALL)) as bench:
        fleet(bench).deploy(settings(bench))
        deployed = fleet(bench).deploy(settings(bench, cache__memcached__threads=2))
        assert deployed.prefilled
        before = meter(bench).count_cache_lookups()
        meter(bench).take_reading(100, 2.0, ramp_seconds=0.0)
        after = meter(bench).count_cache_lookups()
        assert before is not None
        assert after is not None
        hits, misses = after[0] - before[0], after[1] - before[1]
        assert hits / (hits + misses) >= 0.85
        assert not fleet(bench).deploy(settings(bench, cache__memcached__threads=2)).prefilled


def test_the_data_set_is_loaded_once_and_is_what_it_should_be(opened: Opened) -> None:
    with opened((SOME, ALL)) as bench:
        fleet(bench).deploy(settings(bench))
        part = next(p for p in fleet(bench).stack.instances if p.service.name == "redis")
        site = part.placement
        data, transport = fleet(bench).target.data, LocalTransport()
        assert not dataset.load_dataset(part, data, transport)

        def ask(*command: str) -> str:
            argv = (site.programs["redis-cli"], "-p", str(site.listen.port), *command)
            return transport.run(argv).stdout.strip()

        assert ask("DBSIZE") == str(data.pairs + 1)
        lengths = [int(ask("STRLEN", f"k{index:010d}")) for index in range(0, data.pairs, 1000)]
        assert min(lengths) >= 1
        assert max(lengths) <= 100
        assert 15 <= sum(lengths) / len(lengths) <= 35
        # Restarted with other settings, the store has its data without being filled again.
        fleet(bench).deploy(settings(bench, store__redis__maxclients=5000))
        assert ask("DBSIZE") == str(data.pairs + 1)
        assert not dataset.load_dataset(part, data, transport)
