"""A stack that answers late after a rollback, and servers that a load balancer regards as failed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy import deployment as deployments
from autotune.deploy import stack_readiness
from autotune.deploy.backends import DownServer, ServersDown
from autotune.deploy.boot_times import BootTimes
from autotune.deploy.deployment import Deployment
from autotune.deploy.host_state import HostPlan
from autotune.deploy.read_back import ConfirmedState, StackNotReady
from autotune.deploy.readiness import Answer
from autotune.deploy.stack_readiness import EntryProbe
from autotune.errors import AutotuneError
from autotune.services.base import Action
from autotune.transports.parallel_hosts import HostResults

PLANS = {"web1": HostPlan(unit_actions={"app": Action.RESTART})}
DOWN = DownServer("lb1", "HAProxy", "app/w1")


class Hosts:
    """Hosts without failures to report."""

    def run_on_hosts(self, names: object, work: object) -> HostResults[list[str]]:
        return HostResults()


def build_fleet(
    answers: Iterator[Answer], monkeypatch: pytest.MonkeyPatch, late_limit: float = 0.05
) -> Deployment:
    """Return a fleet with a good deployment and short limits in seconds."""
    stack: Any = SimpleNamespace(hosts=(), active_instances=lambda _: ())
    runtime: Any = SimpleNamespace(installed=True, service_manager=None)
    nothing: Any = None
    hosts: Any = Hosts()
    fleet = Deployment(
        nothing, nothing, stack, runtime, hosts, "study",
        probe=EntryProbe(lambda: next(answers)), loads_data=False, boot_times=BootTimes(0.05),
    )  # fmt: skip
    good: Any = SimpleNamespace(desired=SimpleNamespace(hosts={}, settings={}), deployed=None)
    fleet._confirmed_state = ConfirmedState(good.desired, good.deployed, {"web1": {"app": (1, 0)}})
    monkeypatch.setattr(deployments, "roll_back_hosts", lambda *_: {})
    monkeypatch.setattr(stack_readiness, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(BootTimes, "late_limit", property(lambda _: late_limit))
    return fleet


def late(count: int) -> Iterator[Answer]:
    yield from [(503, b"")] * count
    while True:
        yield 200, b"found"


def never() -> Iterator[Answer]:
    while True:
        yield 503, b""


def test_a_late_rollback_does_not_end_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = never()
    fleet = build_fleet(answers, monkeypatch)
    refused = StackNotReady("refused")
    fleet._roll_back(PLANS, refused)
    assert "The previous configuration was deployed again" in refused.message
    # A host is the cause only if the stack is still wrong before the next deployment.
    with pytest.raises(AutotuneError, match="no longer works"):
        fleet._await_late_stack()
    fleet.readiness.probe = EntryProbe(lambda: (200, b"found"))
    fleet._await_late_stack()
    assert not fleet._is_late


def test_a_rollback_waits_for_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = build_fleet(late(2), monkeypatch, late_limit=600.0)
    refused = StackNotReady("refused")
    fleet._roll_back(PLANS, refused)
    assert refused.message == "refused"
    assert fleet._confirmed_state is not None
    assert fleet._confirmed_state.unit_processes == {}  # its processes are new


def test_servers_that_are_down_are_named_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = build_fleet(late(0), monkeypatch)
    notes: list[str] = []
    states = iter([(DOWN,), (DOWN,), ()])
    monkeypatch.setattr(fleet.readiness, "_note", notes.append)
    monkeypatch.setattr(fleet.readiness._server_watch, "find_down_servers", lambda *_: next(states))
    monkeypatch.setattr(BootTimes, "late_limit", 600.0)
    fleet.await_service(is_answer_doubtful=False)
    monkeypatch.setattr(BootTimes, "late_limit", 0.05)
    assert [note for note in notes if "app/w1 (HAProxy on lb1)" in note] == notes
    assert len(notes) == 2
    monkeypatch.setattr(fleet.readiness._server_watch, "find_down_servers", lambda *_: (DOWN,))
    with pytest.raises(ServersDown, match=r"still down after 0 s: app/w1"):
        fleet.await_service(is_answer_doubtful=False)


def test_after_errors_a_correct_answer_is_needed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = build_fleet(never(), monkeypatch)
    fleet.await_service(is_answer_doubtful=False)
    with pytest.raises(ServersDown, match="after an overload: status 503"):
        fleet.await_service(is_answer_doubtful=True)
