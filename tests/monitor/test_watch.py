"""Watching never fails a reading, whatever the hosts do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.deploy.private_servers import PID_SUFFIX
from autotune.deploy.stack import Part
from autotune.monitor.watch import Watch, WatchedHost, owners, pause
from autotune.services.base import Endpoint, Role, Site
from autotune.services.memcached.service import Memcached
from autotune.services.nginx.service import Nginx
from autotune.transports.base import Argv, Completed, HostUnreachable, Transport
from autotune.transports.local import LocalTransport


class Elsewhere(LocalTransport):
    """This machine, reached as if it were another one; it may break in several ways."""

    def __init__(self, output: str | None = None, error: Exception | None = None) -> None:
        self._output, self._error = output, error

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # as the Protocol has it
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        if self._error:
            raise self._error
        if self._output is not None:
            return Completed(tuple(argv), 1, self._output, "")
        return super().run(argv, input=input, timeout=timeout, sudo=sudo, cwd=cwd, env=env)


def host(directory: Path, transport: Transport | None) -> WatchedHost:
    site = Site(
        tier="lb", host="a", role=Role.PROXY, directory=str(directory),
        listen=Endpoint("127.0.0.1", 1), programs={"memcached-tool": "/no/such/program"},
    )  # fmt: skip
    cache = replace(site, tier="cache", role=Role.CACHE)
    return WatchedHost("a", 2.0, (Part(Nginx(), site), Part(Memcached(), cache)), transport)


def test_a_host_that_works(tmp_path: Path) -> None:
    with Watch([host(tmp_path, None)], 1.0) as watch:
        (tmp_path / "nginx-error.log").write_text("8 worker_connections are not enough\n")
    seen = watch.seen
    assert len(seen.samples["a"]) >= 1
    assert seen.cost["a"] > 0
    assert seen.complaints == {"lb.a.nginx": {"worker_connections": 1}}
    assert set(seen.counters["cache.a.memcached"]) == {None}
    assert not seen.failures


def test_a_host_over_a_transport_ends_with_a_last_look_when_it_is_left(tmp_path: Path) -> None:
    with Watch([host(tmp_path, Elsewhere())], 600.0) as watch:
        whoami = Path(watch._streams["a"]._whoami)
        while not whoami.exists():
            time.sleep(0.01)
        (tmp_path / "nginx-error.log").write_text("8 worker_connections are not enough\n")
    seen = watch.seen
    assert len(seen.samples["a"]) >= 1
    assert not whoami.exists()
    assert seen.complaints == {"lb.a.nginx": {"worker_connections": 1}}
    assert not seen.failures


def test_a_host_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.monitor.watch.PATIENCE", 0.1)
    over = threading.Event()

    class Hanging(LocalTransport):
        def run(self, argv: Argv, **options: object) -> Completed:  # type: ignore[override]
            over.wait()
            return Completed(tuple(argv), 0, "", "")

    with Watch([host(tmp_path, Hanging())], 1.0) as watch:
        pass
    assert "a did not tell in time what it saw" in watch.seen.failures
    over.set()


@pytest.mark.parametrize(
    "transport",
    [
        Elsewhere(error=HostUnreachable("no route")),
        Elsewhere(error=OSError("broken pipe")),
        Elsewhere(error=RuntimeError("a bug in there")),
        Elsewhere(output=""),
        Elsewhere(output="sh: tail: not found\n"),
        Elsewhere(output="== sample ==\n==> /proc/stat <==\ncpu x y z\n== sample ==\n"),
    ],
    ids=["unreachable", "broken", "bug", "silent", "no tools", "garbled"],
)
def test_a_host_that_fails_is_a_host_without_samples(tmp_path: Path, transport: Transport) -> None:
    with Watch([host(tmp_path, transport)], 1.0) as watch:
        reading = "taken"
    assert reading == "taken"
    assert watch.seen.samples.get("a", ()) == ()


def test_what_the_reading_raises_comes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Watch([host(tmp_path, None)], 1.0):
        raise KeyboardInterrupt


def test_private_processes_are_known_by_their_session(tmp_path: Path) -> None:
    (tmp_path / f"nginx{PID_SUFFIX}").write_text(f"{os.getpid()}\n")
    assert owners(host(tmp_path, None)).sessions == {os.getpid(): "lb.a.nginx"}
    elsewhere = owners(host(tmp_path, Elsewhere()))
    assert elsewhere.sessions == {}
    assert elsewhere.programs["nginx"] == "lb.a.nginx"


@pytest.mark.parametrize(
    ("cost", "elapsed", "expected"),
    [(0.005, 0.0, 0.0), (0.010, 0.0, 1.0), (0.010, 0.4, 0.6), (0.001, 0.0, -0.8)],
)
def test_sampling_pauses_until_it_is_within_its_share(
    cost: float, elapsed: float, expected: float
) -> None:
    assert pause(cost, elapsed) == pytest.approx(expected)
