"""Work on many hosts at once: bounded, complete, errors by host."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from autotune.errors import AutotuneError
from autotune.transports import parallel_hosts
from autotune.transports.parallel_hosts import run_on_all


@dataclass(frozen=True)
class Host:
    name: str


HOSTS = [Host(f"web{number}") for number in range(6)]


def test_results_come_by_name_in_the_order_of_the_hosts() -> None:
    gathered = run_on_all(HOSTS, lambda host: host.name.upper())
    assert list(gathered.unwrap().items()) == [(host.name, host.name.upper()) for host in HOSTS]


def test_hosts_are_worked_on_together_up_to_the_bound() -> None:
    together = threading.Barrier(3)  # passes only when three are inside at once
    inside = threading.Semaphore(3)

    def work(host: Host) -> bool:
        free = inside.acquire(blocking=False)
        together.wait(timeout=120)
        inside.release()
        return free

    assert all(run_on_all(HOSTS, work, max_parallel=3).unwrap().values())


def test_an_error_of_one_host_stops_no_other() -> None:
    def work(host: Host) -> str:
        if host.name in {"web1", "web4"}:
            raise AutotuneError(f"{host.name}: disk full", hint="make room")
        return "done"

    gathered = run_on_all(HOSTS, work)
    assert sorted(gathered.results) == ["web0", "web2", "web3", "web5"]
    assert sorted(gathered.errors) == ["web1", "web4"]
    with pytest.raises(AutotuneError, match="web1: disk full\nweb4: disk full") as error:
        gathered.unwrap()
    assert error.value.hint == "make room"


def test_a_single_error_is_raised_as_it_is() -> None:
    class Special(AutotuneError):
        exit_code = 5

    def work(host: Host) -> None:
        raise Special("locked")

    with pytest.raises(Special):
        run_on_all(HOSTS[:1], work).unwrap()


def test_a_bug_is_not_gathered() -> None:
    with pytest.raises(ZeroDivisionError):
        run_on_all(HOSTS, lambda host: 1 // 0)


def test_interrupted_it_waits_for_what_has_begun_and_begins_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ended = [], []
    noticed = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *given: Any, **more: Any) -> None:
            noticed.set()
            super().shutdown(*given, **more)

    def work(host: Host) -> None:
        begun.append(host.name)
        if host.name == "web1":
            for _ in range(3):  # more than once, as somebody does who does not want to wait
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                time.sleep(0.1)
        noticed.wait(120)
        time.sleep(0.3)
        ended.append(host.name)

    monkeypatch.setattr(parallel_hosts, "ThreadPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt):
        run_on_all(HOSTS, work, max_parallel=2)
    assert sorted(begun) == sorted(ended) == ["web0", "web1"]


def test_no_hosts_are_no_work() -> None:
    assert run_on_all([], lambda host: host).unwrap() == {}
