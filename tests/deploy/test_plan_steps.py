from __future__ import annotations

from autotune.deploy.backup import HostBackup
from autotune.deploy.host_state import HostPlan, HostState
from autotune.deploy.plan_steps import compute_action_timeout, list_plan_steps
from autotune.deploy.staging import staged_path
from autotune.deploy.unit_start import UnitStart
from autotune.services.base import Action


def test_the_limit_of_a_change_has_the_time_that_its_units_take_to_stop() -> None:
    plan = HostPlan(units_to_stop=("web.service",), unit_actions={"db.service": Action.RESTART})
    usual = compute_action_timeout(HostState(), plan, {})
    stopping = {"db.service": 900.0, "web.service": 90.0, "other.service": 3600.0}
    assert compute_action_timeout(HostState(), plan, stopping) - usual == 900.0 - 90.0


def test_only_processes_that_survive_a_reload_need_no_replacement() -> None:
    units = ("caddy.service", "nginx.service")
    desired = HostState(in_process_reloads=frozenset(units[:1]))
    plan = HostPlan(unit_actions=dict.fromkeys(units, Action.RELOAD))
    steps = list_plan_steps(desired, plan, HostBackup("here", "study"), staged_path, None, {})
    reloads = [words for words in steps if words[0] == "reload"]
    assert reloads == [("reload", "caddy.service", "rereading"), ("reload", "nginx.service")]


def test_a_restart_may_take_as_long_as_the_unit_takes_to_stop_and_to_start() -> None:
    plan = HostPlan(unit_actions={"db.service": Action.RESTART})
    desired = HostState(starts={"db.service": UnitStart(seconds=300.0)})
    stop_seconds = {"db.service": 900.0}
    backup = HostBackup("here", "study")
    steps = list_plan_steps(desired, plan, backup, staged_path, None, stop_seconds)
    assert ("restart", "db.service", "1200") in steps
    assert compute_action_timeout(desired, plan, stop_seconds) > 1200
