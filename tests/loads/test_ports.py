"""Client ports: real generators in a network of their own that has hardly any."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.deploy.stack import Stack
from autotune.environments.load_meter import LoadMeter
from autotune.loads import load_host
from autotune.loads.base import NO_PORT_ERROR, LoadSpec, Request
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.load_host import PORT_FILES, PortWait
from autotune.loads.reading_run import take_reading
from autotune.loads.registry import LOAD_GENERATORS
from autotune.services.base import Endpoint
from autotune.target.slo import Slo
from autotune.transports.base import Argv, CommandResult
from autotune.transports.local import LocalTransport
from tests.loads.tls import each

CONFIG = """daemon off; master_process off; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  server {{ listen 127.0.0.1:80; return 200 "ok\\n"; }}
}}
"""
ENTRY = Request(Endpoint("127.0.0.1", 80), "/")
PATIENT = 20.0  # seconds, a limit that nothing is later than


class Apart(LocalTransport):
    """This machine with another network: that of the process ``pid``."""

    silent = False  # whether it does not say how many ports it has

    def __init__(self, pid: int) -> None:
        super().__init__("load1")
        self.pid = pid

    def run(self, argv: Argv, **options: object) -> CommandResult:
        if self.silent and tuple(argv) == ("cat", *PORT_FILES):
            argv = ("true",)
        return super().run(("nsenter", f"--net=/proc/{self.pid}/ns/net", *argv), **options)  # type: ignore[arg-type]

    def set(self, ports: str, reuse: int) -> None:
        script = f"echo {ports} >{PORT_FILES[0]}; echo {reuse} >{PORT_FILES[1]}"
        assert self.run(("sh", "-c", script)).ok


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    """A load host with nginx on its loopback; both end by themselves."""
    (tmp_path / "nginx.conf").write_text(CONFIG.format(directory=tmp_path))
    serve = f"ip link set lo up && exec timeout 600 nginx -p {tmp_path}/ -c nginx.conf"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", serve]) as process:
        try:
            while not (tmp_path / "pid").exists():
                assert process.poll() is None
                threading.Event().wait(0.02)
            yield Apart(process.pid)
        finally:
            process.terminate()


def meter(apart: Apart, notes: list[str]) -> LoadMeter:
    return LoadMeter(
        HttperfGenerator(), ENTRY, Slo(limit=PATIENT), (apart,), Stack((), ENTRY.endpoint), (),
        timeout=PATIENT, max_rate=20_000.0, port_wait=PortWait(notes.append),
    )  # fmt: skip


@pytest.mark.lab
def test_a_reading_waits_for_ports_and_is_made(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_host, "WAIT_POLL_SECONDS", 0.02)
    apart.set("20000 21249", 0)  # 250 more than may be needed otherwise
    waiting = threading.Event()

    class Notes(list[str]):
        def append(self, note: str) -> None:
            super().append(note)
            waiting.set()

    notes = Notes()
    gauge = meter(apart, notes)
    assert NO_PORT_ERROR not in gauge.take_reading(100.0, 1.0, ramp_seconds=0.5).reading.errors
    assert notes == []
    helper = threading.Thread(target=lambda: waiting.wait(60) and apart.set("20000 21249", 1))
    helper.start()
    reading = gauge.take_reading(100.0, 1.0, ramp_seconds=0.5).reading
    helper.join()
    # However late a stolen CPU may make it.
    assert (NO_PORT_ERROR in reading.errors, reading.seconds, reading.intended) == (False, 1.0, 100)
    assert len(notes) == 1
    assert "waiting up to a minute for client ports of load1" in notes[0]
    apart.set("20000 20004", 1)  # however long one waits
    reading = gauge.take_reading(100.0, 1.0).reading
    assert reading.errors == {NO_PORT_ERROR: 100}
    assert reading.seconds == 0.0
    assert "tcp_tw_reuse" in (reading.limited or "")
    assert len(notes) == 1


@pytest.mark.lab
@pytest.mark.parametrize("name", each(LOAD_GENERATORS))
def test_each_generator_says_that_there_was_no_port(apart: Apart, name: str) -> None:
    apart.set("20000 20004", 0)
    apart.silent = True
    spec = LoadSpec(200, 1.0, timeout=2.0, latency_limit=0.05, ramp_seconds=0.5)
    result = take_reading(
        LOAD_GENERATORS[name], ENTRY, replace(spec, latency_limit=0.5), apart, max_rate=20_000.0
    )
    assert result.limited is not None, result
    assert "client ports" in result.limited
    assert result.errors[NO_PORT_ERROR] > 0
