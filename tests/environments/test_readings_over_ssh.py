"""Readings of a stack on lab hosts: what is seen of them, and what holds them down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments import load_meter
from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.load_session import StackMeter
from autotune.environments.stack import StackEnvironment, prepare
from autotune.errors import AutotuneError
from autotune.lab import target_labs
from autotune.lab.lifecycle import build_ssh_host, remove_lab
from autotune.loads import load_host
from autotune.services.base import Settings
from autotune.services.diagnosis import Resource
from autotune.target.read_target import read_target
from autotune.transports.base import Transport
from autotune.transports.ssh import SshTransport
from tests.deploy.lab import shown
from tests.undisturbed import undisturbed
from tests.waiting_httperf import install_waiting_httperf

pytestmark = pytest.mark.lab

_NETWORK = f"198.18.{150 + os.getpid() % 40}"
# One key a request and a store that answers at once: little work, so that a busy machine can do it.
TARGET = """\
name: readings
slo: {{p99: 1s, errors: 0.1%}}
ssh: {{config: lab/ssh_config}}
hosts:
  load1: {{address: {net}.10}}
  load2: {{address: {net}.11}}
  slow1: {{address: {net}.12, cpus: 0.03}}
  lb1:   {{address: {net}.13}}
  web1:  {{address: {net}.15, memory: 2GB}}
  web2:  {{address: {net}.16}}
  data1: {{address: {net}.17}}
replace: true
tiers:
  lb:    {{hosts: {lb}, service: nginx, forwards_to: web}}
  web:   {{hosts: [web1, web2], service: nginx+php-fpm, app: reference, uses: [cache, store]}}
  cache: {{hosts: data1, service: memcached}}
  store: {{hosts: data1, service: redis}}
load: {{hosts: {load}, path: /kv.php, timeout: 3s}}
data: {{pairs: 2000, keys_per_request: 1, store_latency: 0ms}}
"""
PLENTY: Settings = {"web.php_fpm.pm": "static", "web.php_fpm.max_children": 20}
SECONDS = 2.0
HIGHEST = 8000.0


class Silent:
    """Ignores progress."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("readings")
    path = target(directory)
    try:
        target_labs.start_target_lab(path, directory / "lab")
        yield directory
    finally:
        remove_lab(directory / "lab")


@pytest.fixture(scope="module")
def waiting_lab(lab: Path, waiting_httperf: Path | None) -> Path:
    """The lab, with load hosts that leave the CPU to others while they wait for responses."""
    if waiting_httperf is not None:
        for name in ("load1", "load2"):
            transport = SshTransport(build_ssh_host(lab / "lab", name))
            install_waiting_httperf(waiting_httperf, transport)
            transport.close()
    return lab


def target(directory: Path, lb: str = "lb1", load: str = "[load1, load2]") -> Path:
    path = directory / f"{lb}-{load.strip('[]').replace(', ', '-')}.yaml"
    path.write_text(TARGET.format(net=_NETWORK, lb=lb, load=load))
    return path


@contextmanager
def running(path: Path, study: Path) -> Iterator[tuple[StackEnvironment, StackMeter]]:
    """The stack of a target, deployed with plenty of everything."""
    bed = prepare(read_target(path))
    study.mkdir()
    with bed.open_session(study, lambda _: None, MeasurementHistory()) as session:
        session.fleet.deploy(bed.space.build_candidate(PLENTY).settings)
        yield bed, session.meter


def sysctls(transport: Transport) -> list[str]:
    return transport.run(
        ["sysctl", "-n", load_host.PORT_RANGE_KEY, load_host.PORT_REUSE_KEY]
    ).stdout.split()


def climb(bed: StackEnvironment, equipment: StackMeter, first: float) -> Bottleneck | None:
    """Readings at rising rates until two have failed; what is said of them."""
    readings: list[WatchedReading] = []
    slo = bed.file.target.slo.objective
    rate = first
    while (
        sum(w.reading.violation_fraction > slo.allowed_violations for w in readings) < 2
        and rate < HIGHEST
    ):
        readings.append(equipment.take_reading(rate, SECONDS))
        equipment.wait_until_drained()
        rate *= 1.7
    found = equipment.find_bottleneck(bed.space.build_candidate(PLENTY).settings, readings)
    print(f"\n{found}, after {[round(w.reading.rate) for w in readings]} requests/s")
    return found


@pytest.mark.quiet
def test_a_small_load_is_answered_and_watched_all_the_while(lab: Path, tmp_path: Path) -> None:
    with running(target(lab), tmp_path / "study") as (_, equipment):
        taken = equipment.take_reading(30.0, SECONDS)
        assert (taken.reading.intended, taken.reading.errors) == (60, {})
        assert all(len(samples) >= 2 for samples in taken.observations.samples.values())


def counters(taken: WatchedReading) -> list[bool]:
    """Whether memcached said how it is, each time that it was asked."""
    asked = taken.observations.counters["cache.data1.memcached"]
    return [bool(found and found.values) for found in asked]


def whole(taken: WatchedReading) -> bool:
    """Whether the machine let the load be made, and all be looked at meanwhile."""
    seen = taken.observations
    looked_at = not seen.failures and all(seen.samples.values()) and any(counters(taken))
    return taken.reading.intended == 60 and looked_at


def test_a_reading_with_two_load_hosts(waiting_lab: Path, tmp_path: Path) -> None:
    with running(target(waiting_lab), tmp_path / "study") as (bed, equipment):
        transports = bed.transports
        assert (
            sysctls(transports["load1"]) == sysctls(transports["load2"]) == ["1024", "65535", "1"]
        )
        taken = undisturbed(lambda: equipment.take_reading(30.0, SECONDS), whole, most=30)
        assert taken.reading.intended == 60
        seen = taken.observations
        assert not seen.failures
        assert set(seen.samples) == {"load1", "load2", "lb1", "web1", "web2", "data1"}
        for host, samples in seen.samples.items():
            assert samples, host
            print(
                f"\n{host}: {len(samples)} samples, {seen.sampling_cpu_seconds[host]:.3f} s of CPU",
                end="",
            )
        last = seen.samples["web2"][-1]
        assert last.processes["web.web2.php_fpm"].workers == 20
        assert last.processes["web.web2.nginx"].descriptor_limit
        assert any(queue.address.endswith(":80") for queue in last.queues)
        assert seen.samples["web1"][-1].memory["GroupLimit"] == 2 << 30
        assert any(counters(taken))
        assert equipment.count_cache_lookups() is not None
        assert equipment.wait_until_drained()
        prints = taken.hosts
        assert 0 < prints["web1"].memory < 1
        assert prints["web2"].rss["web.web2.php_fpm"] > 1 << 20
    again = prepare(read_target(target(waiting_lab)))
    assert sysctls(again.transports["load1"])[:2] == ["32768", "60999"]
    for transport in again.transports.values():
        transport.close()


WRONG = {
    "status 502": (
        ["systemctl", "stop", "php8.2-fpm"],
        ["systemctl", "start", "php8.2-fpm"],
    ),
    "status 200 with a wrong body, 'nonsense": (
        ["sh", "-c", "cd /var/www/autotune && cp -p kv.php /root && echo nonsense >kv.php"],
        ["sh", "-c", "mv /root/kv.php /var/www/autotune/kv.php"],
    ),
}


def test_the_one_web_host_of_two_that_answers_wrong_is_named(
    waiting_lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wrong responses never end the wait for the end of an overload, and there is none.
    for limit in ("DRAIN_SECONDS", "DRAIN_LIMITS"):
        monkeypatch.setattr(load_meter, limit, 2.0)
    with running(target(waiting_lab), tmp_path / "study") as (bed, equipment):
        web2 = bed.transports["web2"]
        for said, (broken, mended) in WRONG.items():
            assert web2.run(broken).ok
            try:
                found = shown(partial(climb, bed, equipment, 20.0), "web", Resource.WRONG_ANSWERS)
            finally:
                assert web2.run(mended).ok
            assert found.host == "web2"
            assert f"web2 answers {said}" in found.evidence
            assert "web1 responds correctly" in found.evidence


def test_a_starved_generator_is_no_slow_server(lab: Path, tmp_path: Path) -> None:
    with running(target(lab, load="slow1"), tmp_path / "study") as (bed, equipment):
        readings = undisturbed(
            lambda: [equipment.take_reading(rate, SECONDS) for rate in (1000.0, 2000.0)],
            lambda readings: all(taken.reading.limited for taken in readings), most=30,
        )  # fmt: skip
        found = equipment.find_bottleneck(bed.space.build_candidate(PLENTY).settings, readings)
    print(f"\n{found}")
    assert all(taken.reading.limited for taken in readings)
    assert found is not None
    assert found.resource is Resource.GENERATOR


@pytest.mark.quiet
def test_a_load_balancer_without_cpu_is_named(lab: Path, tmp_path: Path) -> None:
    with running(target(lab, lb="slow1"), tmp_path / "study") as (bed, equipment):
        found = climb(bed, equipment, 150.0)
    assert found is not None
    assert (found.tier, found.host, found.resource) == ("lb", "slow1", Resource.CPU)


def test_a_generator_that_is_not_there_is_missed_before_anything_is_changed(
    lab: Path, tmp_path: Path
) -> None:
    path = target(lab, load="load2")
    bed = prepare(read_target(path))
    bed.transports["load2"].run(["mv", "/usr/bin/httperf", "/root/httperf"])
    try:
        with pytest.raises(AutotuneError, match="not installed on load2: httperf"):
            prepare(read_target(path))
    finally:
        bed.transports["load2"].run(["mv", "/root/httperf", "/usr/bin/httperf"])
        for transport in bed.transports.values():
            transport.close()
