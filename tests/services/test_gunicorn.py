"""What gunicorn says of itself, and when its workers are too few."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.command_line import parse_exec_start
from autotune.services.diagnosis import InstanceActivity, InstanceReading, Resource
from autotune.services.gunicorn.service import DIAGNOSIS, Gunicorn, parse_effective
from autotune.space.facts import HostFacts
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target

TARGET = """\
name: shop
slo: {p99: 50ms}
hosts: {web: {address: 10.0.0.1}, db: {address: 10.0.0.2}}
tiers:
  app: {hosts: web, service: gunicorn, uses: [db]}
  db: {hosts: db, service: postgresql}
load: {path: /}
"""
PRINTED = (Path(__file__).parent / "fixtures" / "gunicorn.txt").read_text()


def test_quotes_that_a_shell_reads_otherwise_are_refused_with_a_hint() -> None:
    text = "[Service]\nExecStart=/usr/bin/gunicorn --name 'it\\'s' shop:app\n"
    with pytest.raises(AutotuneError, match="No closing quotation") as refused:
        parse_exec_start(text)
    assert refused.value.hint


def test_it_prints_its_own_configuration() -> None:
    assert parse_effective(PRINTED) == {
        "workers": 3, "threads": 2, "keepalive": 2, "worker_connections": 1000, "max_requests": 0,
        "max_requests_jitter": 0, "timeout": 30,
    }  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "-", "!", "+-"])
def test_the_program_is_checked_without_the_prefix_for_systemd(prefix: str) -> None:
    site = Placement(tier="app", host="h", role=Role.APP, directory="/run/x", installed=True,
                listen=Endpoint("10.0.0.4", 8000))  # fmt: skip
    unit = f"[Service]\nExecStart={prefix}/srv/venv/bin/gunicorn -w 4 --name 'a b' 100%%\n"
    command = Gunicorn().build_validation(site, {"/etc/systemd/system/a.service": unit.encode()})
    assert command is not None
    assert command[-6:] == ("/srv/venv/bin/gunicorn", "-w", "4", "--name", "a b", "100%")


@pytest.mark.parametrize(
    ("threads", "queued", "occupied", "accepted", "unread", "starved"),
    [
        (1, 0.9, 2.0, 2.0, 0.0, True),
        (1, 0.1, 2.0, 2.0, 0.0, False),  # it waits now and then
        (1, 0.9, 0.0, 0.0, 0.0, True),  # at a TCP port, where it is not seen what was accepted
        (1, 0.9, 1.0, 1.0, 0.0, False),  # it accepts late, with a worker to spare
        (4, 0.0, 0.0, 11.0, 0.0, True),  # those with threads accept what waits for one
        (4, 0.0, 0.0, 8.0, 0.0, False),
        (4, 0.0, 0.0, 0.0, 5.0, True),  # at a TCP port, data of waiting requests is unread
        (4, 0.0, 0.0, 0.0, 1.0, False),  # a few requests arrived just now
        (1, 0.0, 0.0, 0.0, 5.0, False),  # a process without threads leaves requests at its socket
    ],
)
def test_workers_that_are_too_few(
    threads: int, queued: float, occupied: float, accepted: float, unread: float, starved: bool
) -> None:
    activity = InstanceActivity(
        "app.h.gunicorn", "app", "h", "gunicorn", Role.APP, workers=2, queued_fraction=queued,
        waiting_connections=queued, accepted_when_queued=occupied, accepted_connections=accepted,
        unread_connections=unread,
    )  # fmt: skip
    part = InstanceReading(
        activity, {"workers": 2, "threads": threads}, 0, errors_dominate=False, idle_fraction=0.6
    )
    findings = [finding for rule in DIAGNOSIS.worker_rules if (finding := rule(part))]
    assert [finding.resource for finding in findings] == ([Resource.WORKERS] if starved else [])


def test_its_threads_are_in_the_rules_of_memory_and_connections(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TARGET)
    roomy = HostFacts(8, 64 * 2**30, 65_536)
    space = build_space(read_target(path), {"web": HostFacts(8, 2**30, 65_536), "db": roomy})
    greedy = space.build_candidate({"app.gunicorn.workers": 40, "app.gunicorn.threads": 2})
    assert greedy.settings["app.gunicorn.workers"] < 20
    assert "memory(web)" in greedy.repairs[0].rule
    space = build_space(read_target(path), {"web": roomy, "db": roomy})
    many = space.build_candidate({"app.gunicorn.workers": 20, "app.gunicorn.threads": 8,
                            "db.postgresql.max_connections": 100})  # fmt: skip
    assert "app.workers * count(app.hosts) <= db.connections" in many.repairs[0].rule
