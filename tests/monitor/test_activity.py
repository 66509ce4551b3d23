"""Rates and levels out of two samples and more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.deploy.stack import ServiceInstance
from autotune.monitor.activity import (
    compute_counter_growth,
    compute_host_activity,
    compute_host_usages,
    compute_instance_activity,
    find_queue,
    select_loaded_samples,
    select_samples,
)
from autotune.monitor.counters import ServerCounters
from autotune.monitor.host_watch import Observations, WatchedHost
from autotune.monitor.process_table import ServiceProcesses
from autotune.monitor.procfs import HostSample, InterfaceBytes, ListenQueue
from autotune.services.base import AdoptedConfig, Endpoint, Placement, Role, Service
from autotune.services.nginx.service import Nginx
from autotune.services.php_fpm.service import PhpFpm


def placed(service: Service, role: Role, tier: str = "web") -> ServiceInstance:
    return ServiceInstance(
        service,
        Placement(
            tier=tier, host="web1", role=role, directory="/x", listen=Endpoint("10.0.0.1", 80)
        ),
    )


FPM = placed(PhpFpm(), Role.APP)
WEB = placed(Nginx(), Role.WEB)
SOCKET = str(FPM.service.get_socket(FPM.placement))
FIRST = HostSample(
    uptime=100.0,
    cpu={"user": 10.0, "system": 5.0, "idle": 50.0, "iowait": 0.0},
    running=2,
    context_switches=1000,
    memory={"MemTotal": 1000, "MemAvailable": 400, "SwapFree": 500},
    tcp={"OutSegs": 100, "RetransSegs": 0, "ListenDrops": 7, "ActiveOpens": 5, "PassiveOpens": 50},
    sockets={"inuse": 5, "tw": 100},
    network={"eth0": InterfaceBytes(0, 0), "lo": InterfaceBytes(0, 0)},
    link_speeds={"eth0": 1000.0},
    open_files=(10, 100),
    throttled_seconds=1.0,
    queues=(ListenQueue(":80", 0, 511), ListenQueue(f"././{SOCKET}", 0, None, 0)),
    processes={"web.web1.php_fpm": ServiceProcesses(2, 1, 2, 1.0, 0.5, 30, 9, 1024)},
)
LAST = HostSample(
    uptime=102.0,
    cpu={"user": 12.0, "system": 6.0, "idle": 51.0, "iowait": 0.0},
    running=4,
    context_switches=3000,
    load=1.5,
    memory={"MemTotal": 1000, "MemAvailable": 300, "SwapFree": 400},
    tcp={
        "OutSegs": 300,
        "RetransSegs": 4,
        "ListenDrops": 9,
        "ActiveOpens": 15,
        "PassiveOpens": 250,
    },
    sockets={"inuse": 9, "tw": 50},
    network={"eth0": InterfaceBytes(1500, 300), "lo": InterfaceBytes(100, 100)},
    link_speeds={"eth0": 1000.0},
    open_files=(30, 100),
    throttled_seconds=1.5,
    queues=(
        ListenQueue(":80", 2, 511),
        ListenQueue(":80", 3, 511),
        ListenQueue(f"././{SOCKET}", 8, None, 5),
    ),
    processes={"web.web1.php_fpm": ServiceProcesses(5, 2, 5, 2.5, 1.5, 40, 11, 1024)},
)
HOST = WatchedHost("web1", 2.0, (FPM, WEB))
SEEN = Observations(samples={"web1": (FIRST, LAST)})


def test_a_host() -> None:
    found = compute_host_activity(HOST, SEEN, 3.0)
    assert found is not None
    assert found.cpu == {"user": 0.5, "system": 0.25, "idle": 0.25, "iowait": 0.0}
    assert found.busy_share == 0.75
    assert (found.running_processes, found.load, found.context_switches) == (3.0, 1.5, 1000.0)
    assert (found.memory, found.swapped_bytes) == (0.7, 100)
    assert (found.listen_drops, found.retransmits) == (2, 0.02)
    assert (found.network, found.link_share) == (1000.0, 0.75)
    assert (found.opened_rate, found.accepted_rate) == (5.0, 100.0)
    assert (found.sockets, found.time_wait, found.descriptors) == (9, 100, 0.3)
    assert found.throttled == 0.25


@pytest.mark.parametrize("samples", [(), (FIRST,), (FIRST, replace(LAST, uptime=110.0))])
def test_a_host_that_was_hardly_seen(samples: tuple[HostSample, ...]) -> None:
    assert compute_host_activity(HOST, Observations(samples={"web1": samples}), 3.0) is None


@pytest.mark.parametrize(
    ("received", "sent", "share"),
    [(900, 900, 0.45), (1800, 0, 0.9), (100, 1800, 0.9)],
)
def test_a_link_is_full_if_one_of_its_directions_is(received: int, sent: int, share: float) -> None:
    later = replace(LAST, network={"eth0": InterfaceBytes(received, sent)})
    found = compute_host_activity(HOST, Observations(samples={"web1": (FIRST, later)}), 3.0)
    assert found is not None
    assert (found.link_share, found.network) == (share, (received + sent) / 2)


@pytest.mark.parametrize(
    ("speeds", "share"),
    [
        ({"eth0": 1000.0, "ens1": 10.0}, 0.9),  # the speed of a virtual machine's device
        ({"eth0": 850.0}, 900 / 850),  # within the error of the samples' times
        ({"ens1": 10.0}, None),
    ],
)
def test_a_link_that_carries_more_than_its_speed_has_no_known_speed(
    speeds: dict[str, float], share: float | None
) -> None:
    both = {"eth0": InterfaceBytes(1800, 0), "ens1": InterfaceBytes(1800, 0)}
    first = replace(FIRST, network={name: InterfaceBytes(0, 0) for name in both})
    first, last = (
        replace(each, link_speeds=speeds) for each in (first, replace(LAST, network=both))
    )
    found = compute_host_activity(HOST, Observations(samples={"web1": (first, last)}), 3.0)
    assert found is not None
    assert found.link_share == share


@pytest.mark.parametrize(
    ("counters", "fraction", "segments"),
    [
        ({"RetransSegs": 40, "TCPSynRetrans": 40}, 0.0, 0),  # an accept queue was full
        ({"RetransSegs": 40, "TCPSynRetrans": 30}, 0.05, 10),
        ({"RetransSegs": 0, "TCPSynRetrans": 1}, 0.0, 0),
        ({"RetransSegs": 10}, 0.05, 10),
    ],
)
def test_repeated_syns_do_not_show_a_lossy_network(
    counters: dict[str, int], fraction: float, segments: int
) -> None:
    later = replace(LAST, tcp={**LAST.tcp, **counters})
    found = compute_host_activity(HOST, Observations(samples={"web1": (FIRST, later)}), 3.0)
    assert found is not None
    assert (found.retransmits, found.retransmitted_segments) == (fraction, segments)


def test_a_pool_of_processes() -> None:
    found = compute_instance_activity(FPM, SEEN, 3.0)
    assert (found.workers, found.cpu, found.cpu_delay, found.rss) == (5, 0.75, 0.5, 40)
    assert (found.descriptors, found.descriptor_limit) == (11, 1024)
    assert (found.waiting_connections, found.max_waiting, found.accepted_connections) == (
        4.0,
        8,
        2.5,
    )
    assert (found.queued_fraction, found.accepted_when_queued) == (0.5, 5.0)


def test_a_pool_that_was_replaced_meanwhile_used_no_negative_time() -> None:
    later = replace(LAST, processes={"web.web1.php_fpm": ServiceProcesses(2, cpu=0.25)})
    assert (
        compute_instance_activity(FPM, Observations(samples={"web1": (FIRST, later)}), 3.0).cpu
        == 0.0
    )


def test_the_main_process_is_counted_by_itself() -> None:
    first, last = (
        replace(sample, processes={"web.web1.php_fpm": ServiceProcesses(2, cpu=cpu, main_cpu=own)})
        for sample, cpu, own in ((FIRST, 1.0, 0.5), (LAST, 5.0, 2.0))
    )
    found = compute_instance_activity(FPM, Observations(samples={"web1": (first, last)}), 3.0)
    assert (found.cpu, found.main_cpu) == (2.0, 0.75)


def test_samples_without_processes_are_skipped() -> None:
    between = replace(FIRST, uptime=101.0, processes={})
    assert (
        compute_instance_activity(
            FPM, Observations(samples={"web1": (FIRST, between, LAST)}), 3.0
        ).cpu
        == 0.75
    )


def test_looks_before_and_after_the_load_say_nothing_of_its_queues() -> None:
    first, amid, last = (
        replace(FIRST, uptime=100.0),
        replace(LAST, uptime=101.0),
        replace(FIRST, uptime=102.0),
    )
    found = compute_instance_activity(FPM, Observations(samples={"web1": (first, amid, last)}), 3.0)
    assert (
        found.waiting_connections,
        found.accepted_connections,
        found.queued_fraction,
        found.accepted_when_queued,
    ) == (8.0, 5.0, 1.0, 5.0)


def test_nothing_seen_of_a_part() -> None:
    found = compute_instance_activity(FPM, Observations(), 3.0)
    assert (found.workers, found.cpu, found.cpu_delay, found.descriptors) == (0, 0.0, None, None)


def test_listening_sockets_that_share_a_port_are_one_queue() -> None:
    assert find_queue(WEB, LAST.queues) == ListenQueue(":80", 5, 1022, 0)


def test_the_queue_of_a_pool_on_a_port_is_not_that_of_a_longer_port() -> None:
    placement = replace(FPM.placement, installed=True, adopted=AdoptedConfig(listen="9000"))
    queues = (ListenQueue(":9000", 1, 511), ListenQueue(":19000", 7, 511))
    assert find_queue(replace(FPM, placement=placement), queues) == queues[0]


def test_samples_after_the_load_are_left_out() -> None:
    late = replace(LAST, uptime=104.0)
    assert list(select_samples((FIRST, LAST, late), 3.0)) == [FIRST, LAST]


def saturated(*seconds: float, idle_until: float) -> tuple[HostSample, ...]:
    """Samples of a host whose only CPU is idle, and from a moment on busy with PHP."""

    def sample(at: float) -> HostSample:
        busy = max(0.0, at - idle_until)
        group = ServiceProcesses(5, cpu=busy, scheduling_delay=busy)
        queue = ListenQueue(f"././{SOCKET}", 8 if busy else 0, None, 5 if busy else 0)
        return replace(
            FIRST,
            uptime=100.0 + at,
            cpu={"user": busy, "idle": at - busy},
            tcp={"ActiveOpens": round(100 * busy), "ListenDrops": round(10 * at)},
            memory={"SwapFree": 1000 - round(100 * at)},
            network={"eth0": InterfaceBytes(round(900 * busy), 0)},
            queues=(queue,),
            processes={"web.web1.php_fpm": group},
        )

    return tuple(sample(at) for at in seconds)


@pytest.mark.parametrize(
    ("seconds", "idle_until", "load_start", "load_end"),
    [
        ((0, 1, 2), 0.3, 0.0, 0.0),
        ((0, 0.5, 1, 1.5, 2), 0.4, 0.0, 0.0),
        ((0, 1.75, 2.65), 0.3, 0.3, 2.5),
        # A ramp-up precedes, and the generator takes time to start again after it.
        ((0, 1, 2, 3, 3.6), 1.9, 1.4, 3.4),
        ((0, 0.5, 1, 1.5, 2, 2.5, 3), 1.0, 0.8, 2.8),
    ],
)
def test_the_time_before_the_load_does_not_dilute_the_use_of_cpus(
    seconds: tuple[float, ...], idle_until: float, load_start: float, load_end: float
) -> None:
    seen = Observations(
        samples={"web1": saturated(*seconds, idle_until=idle_until)},
        load_start=load_start,
        load_end=load_end,
    )
    host = compute_host_activity(HOST, seen, 2.0)
    pool = compute_instance_activity(FPM, seen, 2.0)
    assert host is not None
    assert host.busy_share == pytest.approx(1.0)
    assert host.link_share == pytest.approx(0.9)
    assert host.opened_rate == pytest.approx(100.0)
    # Events count from the first sample on.
    assert host.listen_drops == round(10 * seconds[-1])
    assert host.swapped_bytes == round(100 * seconds[-1])
    assert (pool.cpu, pool.cpu_delay) == pytest.approx((1.0, 1.0))
    assert (pool.waiting_connections, pool.accepted_connections) == (8.0, 5.0)


@pytest.mark.parametrize(
    ("seconds", "load_start", "first"),
    [
        ((), 0.0, None),
        ((0,), 0.0, 0),
        ((0, 2), 0.0, 0),
        ((0, 0.3), 0.0, 0),
        ((0, 1, 2), 0.0, 1),
        ((0, 1.9, 2), 0.0, 0),  # the last two samples are too close to each other
        ((0, 1, 2, 2.3), 1.4, 1),
        ((0, 1, 2, 3), 0.6, 2),
    ],
)
def test_rates_start_with_the_load(
    seconds: tuple[float, ...], load_start: float, first: int | None
) -> None:
    samples = saturated(*seconds, idle_until=0.0)
    found = select_loaded_samples(samples, load_start)
    assert found == (samples if first is None else samples[first:])


def test_samples_are_used_until_the_planned_end_of_the_load() -> None:
    samples = saturated(0, 1, 2, 3, 4, idle_until=1.5)
    ended = Observations(samples={"web1": samples}, load_start=1.0, load_end=3.0)
    found = compute_host_activity(HOST, ended, 2.0)
    assert found is not None
    assert found.seconds == pytest.approx(1.0)  # from 2 to 3
    assert found.busy_share == pytest.approx(1.0)


def test_counters_grow_and_gauges_are_at_their_largest() -> None:
    answers = [
        ServerCounters(0.1, {"get_hits": 10.0, "curr_connections": 3.0}),
        ServerCounters(0.1, {"get_hits": 15.0, "curr_connections": 9.0}),
        ServerCounters(0.1, {"get_hits": 40.0, "curr_connections": 4.0}),
    ]
    assert compute_counter_growth(answers, frozenset({"curr_connections"})) == {
        "get_hits": 30.0,
        "curr_connections": 9.0,
    }
    assert compute_counter_growth([], frozenset()) == {}


def test_a_counter_that_was_reset_has_grown_to_its_last_value() -> None:
    answers = [
        ServerCounters(0.1, {"hits": 9000.0, "misses": 700.0, "oom_restarts": 4.0}),
        ServerCounters(0.1, {"hits": 900.0, "misses": 600.0, "oom_restarts": 5.0}),
    ]
    assert compute_counter_growth(answers, frozenset()) == {
        "hits": 900.0,
        "misses": 600.0,
        "oom_restarts": 1.0,
    }


def test_a_host_in_a_few_numbers() -> None:
    found = compute_host_usages(
        (HOST,), Observations(samples={"web1": (FIRST, LAST)}), seconds=2.0
    )["web1"]
    assert (found.cpu, found.steal, found.load, found.running) == (0.75, 0.0, 1.5, 3.0)
    assert (found.memory, found.sockets, found.time_wait) == (0.7, 9, 100)
    assert found.network == 1000
    assert found.rss == {FPM.name: 40}
    assert found.workers == {FPM.name: 5}


def test_a_host_that_was_not_seen_is_left_out() -> None:
    hidden = WatchedHost("web2", 2.0, ())
    assert (
        compute_host_usages((hidden,), Observations(samples={"web2": (FIRST,)}), seconds=2.0) == {}
    )
