"""Measure the highest rate that the generator on a load host can send to a trivial server.

The server is an nginx worker that serves a fixed response from its configuration, on the load
host's own loopback address. The generator and the server are single event loops, and need about the
same CPU time per request. The result is therefore a lower bound for a real reading, in which the
generator does not share its host with a server.

No request reaches the target. Even so, all load hosts together send at most ``load.max_rate``,
because a study never needs more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.loads.base import LoadError, LoadGenerator, LoadResult, LoadSpec
from autotune.loads.reading_run import count_requests, take_reading
from autotune.services.base import Argv, Endpoint
from autotune.strict_parsing import split_lines
from autotune.transports import wait_notices
from autotune.transports.base import CommandResult, Transport
from autotune.transports.request import Request

TRIED_RATES = (500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16_000.0)  # requests/s, in this order
READING_SECONDS = 0.75
LATENCY_LIMIT_SECONDS = 0.050  # time limit for 99 % of the trivial server's responses
TOLERATED_LATE_SHARE = 0.01
USABLE_HEADROOM_SHARE = 0.8  # share of the headroom that readings may use
SERVER_MAX_SECONDS = 60  # time after which the server exits by itself

_RESPONSE_BODY = "found 0000 of 0000\n"


class TrivialServer:
    """A load host's own nginx, which serves a fixed response at almost no cost."""

    program = "nginx"
    packages = ("nginx",)
    package_source = ""
    programs: Mapping[str, tuple[str, ...]] = {program: (program,)}


TRIVIAL_SERVER = TrivialServer()
_NGINX_CONFIG = """daemon off; master_process off; pid server.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; default_type text/plain;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{ listen 127.0.0.1:{port} backlog=4096; return 200 "{body}"; }}
}}
"""


@dataclass(frozen=True)
class Headroom:
    """The highest rate (requests/s) that the generator reached.

    ``stop_reason`` is why the next higher rate failed; ``None`` if no rate failed.
    """

    rate: float
    stop_reason: str | None = None

    def find_shortage(self, rate: float) -> str | None:
        """Return why ``rate`` is too high for this load host; ``None`` if the load host can
        generate it.
        """
        if rate <= USABLE_HEADROOM_SHARE * self.rate or self.stop_reason is None:
            return None
        return (
            f"{rate:.0f}/s exceeds {USABLE_HEADROOM_SHARE:.0%} of the load host's highest rate, "
            f"{self.rate:.0f}/s ({self.stop_reason}): add load hosts"
        )


def measure_headroom(
    load: LoadGenerator,
    transports: Sequence[Transport],
    programs: Mapping[str, str],
    max_rate: float,
) -> Headroom:
    """Return the headroom of all load hosts together: the weakest host's headroom times the number
    of hosts.

    ``programs`` are the paths of the server's program, by host name. Each host generates at most an
    equal share of ``max_rate`` (requests/s). Hosts are measured one after the other, because hosts
    on the same machine would disturb each other. Raises LoadError.
    """
    headrooms = [
        measure_host_headroom(
            load,
            transport,
            server=programs[transport.name],
            port=find_free_port(transport),
            max_rate=max_rate / len(transports),
        )
        for transport in transports
    ]
    smallest_headroom = min(headrooms, key=lambda headroom: headroom.rate)
    return Headroom(smallest_headroom.rate * len(headrooms), smallest_headroom.stop_reason)


def find_free_port(transport: Transport) -> int:
    """Return a free port on a host, below the kernel's default range of ephemeral ports."""
    listening_sockets = transport.run(("ss", "-ltnH")).stdout
    used_ports = {
        line.split()[3].rpartition(":")[2] for line in split_lines(listening_sockets) if line
    }
    return next(port for port in range(21_000, 32_768) if str(port) not in used_ports)


def measure_host_headroom(
    load: LoadGenerator,
    transport: Transport,
    *,
    server: str = TRIVIAL_SERVER.program,
    port: int,
    max_rate: float,
) -> Headroom:
    """Increase the load on a trivial server step by step up to ``max_rate``, and return the
    headroom.

    Each step takes about ``READING_SECONDS``. ``port`` must be free on the load host. Raises
    LoadError if the server does not start.
    """
    with run_trivial_server(transport, server=server, port=port) as endpoint:
        request = Request(endpoint, "/", _RESPONSE_BODY.encode())
        reached_rate = 0.0
        load = count_requests(load, request, transport, max_rate)
        for rate in list_rates(max_rate):
            spec = LoadSpec(
                rate / load.requests_per_iteration,
                READING_SECONDS,
                latency_limit=LATENCY_LIMIT_SECONDS,
                ramp_seconds=0.25,
            )
            shortfall = find_shortfall(
                take_reading(load, request, spec, transport, max_rate=max_rate), spec
            )
            if shortfall:
                return Headroom(reached_rate, shortfall)
            reached_rate = rate
        return Headroom(reached_rate)


def list_rates(max_rate: float) -> tuple[float, ...]:
    """Return the rates to try: all ``TRIED_RATES`` below ``max_rate``, then ``max_rate`` itself.

    ``max_rate`` is omitted if it exceeds all ``TRIED_RATES``.
    """
    return (
        *(rate for rate in TRIED_RATES if rate < max_rate),
        *([max_rate] if max_rate <= TRIED_RATES[-1] else []),
    )


def find_shortfall(result: LoadResult, spec: LoadSpec) -> str | None:
    """Return why a reading against a trivial server failed; ``None`` if the reading succeeded."""
    if result.limited:
        return result.limited
    if result.error_count > TOLERATED_LATE_SHARE * result.intended:
        kind = max(result.errors, key=lambda kind: result.errors[kind])
        return f"{result.errors[kind]} of {result.intended} requests at {spec.rate:.0f}/s: {kind}"
    late_count = result.count_later_than(spec.latency_limit)
    if late_count + result.error_count > TOLERATED_LATE_SHARE * result.intended:
        return f"{late_count} of {result.intended} requests late at {spec.rate:.0f}/s"
    return None


@contextmanager
def run_trivial_server(transport: Transport, *, server: str, port: int) -> Iterator[Endpoint]:
    """Run nginx with ``return 200`` on the host's loopback address, and stop it at the end."""
    mktemp_result = transport.run(
        ("mktemp", "--directory", "--tmpdir", "autotune-headroom.XXXXXXXX")
    )
    if not mktemp_result.ok:
        raise LoadError(
            f"cannot create a temporary directory on the load host: {mktemp_result.error_text}"
        )
    directory = mktemp_result.stdout.strip()
    argv = (
        "timeout",
        "--kill-after=1",
        str(SERVER_MAX_SECONDS),
        server,
        "-p",
        f"{directory}/",
        "-c",
        "server.conf",
    )
    try:
        transport.put(
            _NGINX_CONFIG.format(port=port, body=_RESPONSE_BODY.replace("\n", "\\n")).encode(),
            f"{directory}/server.conf",
        )
        with ThreadPoolExecutor(1) as pool:
            server_run = pool.submit(_serve_answers, transport, argv)
            try:
                pid = _await_pid(transport, directory, server_run)
                if pid is None:
                    raise LoadError(
                        f"the trivial server did not start: {server_run.result().error_text}"
                    )
                yield Endpoint("127.0.0.1", port)
            finally:
                if (pid := _read_pid(transport, directory)) is not None:
                    transport.run(("kill", pid))
    finally:
        transport.run(("rm", "-r", "--", directory))


def _serve_answers(transport: Transport, argv: Argv) -> CommandResult:
    with wait_notices.about("a trivial server", usual=SERVER_MAX_SECONDS):
        return transport.run(argv, timeout=SERVER_MAX_SECONDS + 10.0)


def _await_pid(
    transport: Transport, directory: str, server_run: Future[CommandResult]
) -> str | None:
    """Return the server's process ID once the server listens. nginx writes its PID file after
    binding the port.
    """
    for _ in range(100):
        if (pid := _read_pid(transport, directory)) is not None:
            return pid
        if server_run.done():
            return None
        time.sleep(0.05)
    return None


def _read_pid(transport: Transport, directory: str) -> str | None:
    pid_text = (transport.get(f"{directory}/server.pid") or b"").decode().strip()
    return pid_text if pid_text.isdigit() else None
