"""What the generator itself can do from a load host, found against a server that does nothing.

The server is an nginx worker that answers from its configuration, on the load host's own loopback.
Generator and server are one event loop each and need about as much CPU per request, so the figure is
cautious for a real reading in which the generator has its host to itself.

No request reaches the target. The load hosts together are still asked for ``load.max_rate`` at most: a
study never needs more of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.loads.base import Load, LoadError, LoadResult, LoadSpec
from autotune.loads.take import count_requests, take
from autotune.services.base import Argv, Endpoint
from autotune.strict import split_lines
from autotune.transports import waiting
from autotune.transports.base import Completed, Transport
from autotune.transports.request import Request

RATES = (500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16_000.0)  # requests/s, tried in turn
SECONDS = 0.75
LIMIT = 0.050  # seconds; a server that does nothing answers 99 % of requests within it
TOLERATED = 0.01
IN_USE = 0.8  # of the headroom that a reading may ask for
BOUND = 60  # seconds after which the server ends by itself

_BODY = "found 0000 of 0000\n"


class TrivialServer:
    """Answers from its configuration and so costs next to nothing: a load host's own nginx."""

    program = "nginx"
    packages = ("nginx",)
    elsewhere = ""
    programs: Mapping[str, tuple[str, ...]] = {program: (program,)}


SERVER = TrivialServer()
_CONFIG = """daemon off; master_process off; pid server.pid; error_log stderr crit;
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
    """The highest rate (requests/s) the generator made, and why the next one failed, if one did."""

    rate: float
    stopped: str | None = None

    def shortage(self, rate: float) -> str | None:
        """Why ``rate`` is more than this load host should be asked for; ``None`` if it is not."""
        if rate <= IN_USE * self.rate or self.stopped is None:
            return None
        return (
            f"{rate:.0f}/s is more than {IN_USE:.0%} of the {self.rate:.0f}/s that the load host"
            f" can make ({self.stopped}): add load hosts"
        )


def of_hosts(
    load: Load, transports: Sequence[Transport], used: Mapping[str, str], max_rate: float
) -> Headroom:
    """The headroom of all load hosts together: each counts as much as the weakest.

    ``used``: the server's program on each, by the name of the host. Each makes an equal share of
    ``max_rate`` (requests/s) at most. They are measured one after the
    other, since hosts that share a machine would disturb each other. Raises LoadError.
    """
    headrooms = [
        calibrate(
            load,
            transport,
            server=used[transport.name],
            port=free_port(transport),
            max_rate=max_rate / len(transports),
        )
        for transport in transports
    ]
    weakest = min(headrooms, key=lambda headroom: headroom.rate)
    return Headroom(weakest.rate * len(headrooms), weakest.stopped)


def free_port(transport: Transport) -> int:
    """A port of that host where nothing listens, below the client ports that the kernel assigns."""
    listening = transport.run(("ss", "-ltnH")).stdout
    in_use = {line.split()[3].rpartition(":")[2] for line in split_lines(listening) if line}
    return next(port for port in range(21_000, 32_768) if str(port) not in in_use)


def calibrate(
    load: Load, transport: Transport, *, server: str = SERVER.program, port: int, max_rate: float
) -> Headroom:
    """Raise the load on a trivial server step by step to ``max_rate``, for about ``SECONDS`` each.

    ``port`` must be free on the load host. Raises LoadError when the server does not start there.
    """
    with trivial_server(transport, server=server, port=port) as endpoint:
        request = Request(endpoint, "/", _BODY.encode())
        reached = 0.0
        load = count_requests(load, request, transport, max_rate)
        for rate in steps(max_rate):
            spec = LoadSpec(rate / load.requests_each, SECONDS, limit=LIMIT, ramp=0.25)
            stopped = shortfall(take(load, request, spec, transport, max_rate=max_rate), spec)
            if stopped:
                return Headroom(reached, stopped)
            reached = rate
        return Headroom(reached)


def steps(max_rate: float) -> tuple[float, ...]:
    """The rates to try in turn: none above ``max_rate``, which is the last if any is as high."""
    return (
        *(rate for rate in RATES if rate < max_rate),
        *([max_rate] if max_rate <= RATES[-1] else []),
    )


def shortfall(result: LoadResult, spec: LoadSpec) -> str | None:
    """What kept the generator from a clean reading of a server that does nothing."""
    if result.limited:
        return result.limited
    if result.failed > TOLERATED * result.intended:
        worst = max(result.errors, key=lambda kind: result.errors[kind])
        return f"{result.errors[worst]} of {result.intended} requests at {spec.rate:.0f}/s: {worst}"
    late = result.later_than(spec.limit)
    if late + result.failed > TOLERATED * result.intended:
        return f"{late} of {result.intended} requests late at {spec.rate:.0f}/s"
    return None


@contextmanager
def trivial_server(transport: Transport, *, server: str, port: int) -> Iterator[Endpoint]:
    """nginx answering ``return 200`` on the host's loopback, gone when this is left."""
    temporary = transport.run(("mktemp", "--directory", "--tmpdir", "autotune-headroom.XXXXXXXX"))
    if not temporary.ok:
        raise LoadError(f"no temporary directory on the load host: {temporary.error_text}")
    directory = temporary.stdout.strip()
    argv = ("timeout", "--kill-after=1", str(BOUND), server,
            "-p", f"{directory}/", "-c", "server.conf")  # fmt: skip
    try:
        transport.put(_CONFIG.format(port=port, body=_BODY.replace("\n", "\\n")).encode(),
                      f"{directory}/server.conf")  # fmt: skip
        with ThreadPoolExecutor(1) as pool:
            serving = pool.submit(_serve, transport, argv)
            try:
                pid = _ready(transport, directory, serving)
                if pid is None:
                    raise LoadError(
                        f"a trivial server did not start: {serving.result().error_text}"
                    )
                yield Endpoint("127.0.0.1", port)
            finally:
                if (pid := _pid(transport, directory)) is not None:
                    transport.run(("kill", pid))
    finally:
        transport.run(("rm", "-r", "--", directory))


def _serve(transport: Transport, argv: Argv) -> Completed:
    with waiting.about("a trivial server", usual=BOUND):
        return transport.run(argv, timeout=BOUND + 10.0)


def _ready(transport: Transport, directory: str, serving: Future[Completed]) -> str | None:
    """Its process id once it has bound its port (nginx writes the file after that)."""
    for _ in range(100):
        if (pid := _pid(transport, directory)) is not None:
            return pid
        if serving.done():
            return None
        time.sleep(0.05)
    return None


def _pid(transport: Transport, directory: str) -> str | None:
    text = (transport.get(f"{directory}/server.pid") or b"").decode().strip()
    return text if text.isdigit() else None
