"""What a load host's kernel should allow while it makes load, and the client ports it has left.

Each request is a new connection, which keeps its port for a minute after its use (TIME-WAIT): an
address with the stock range of 28 232 ports opens 470 new connections/s for good, unless the kernel
may use such a port again after a second: ``tcp_tw_reuse`` 1, or 2 (the default since Linux 4.19) for
loopback alone. Backlogs are a server's concern: nobody connects to a load host.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.loads.base import LoadSpec
from autotune.strict import is_whole
from autotune.transports.base import Transport
from autotune.transports.parallel import run_on_all
from autotune.transports.request import Request

RANGE = "net.ipv4.ip_local_port_range"
REUSE = "net.ipv4.tcp_tw_reuse"
OPEN_FILES = "fs.file-max"
NAMES = (RANGE, REUSE, OPEN_FILES)
LOWEST, HIGHEST = 1024, 65535  # the ports above the well-known ones
ENOUGH = 65_536  # descriptors: a process holds a thousand connections at most


def fit(current: Mapping[str, str | None]) -> dict[str, str]:
    """Values for ``NAMES`` where the ``current`` ones are too tight; ``None``: there is no such value."""
    values: dict[str, str] = {}
    span = (current.get(RANGE) or "").split()
    if len(span) == 2 and all(map(is_whole, span)):
        low, high = min(int(span[0]), LOWEST), max(int(span[1]), HIGHEST)
        values[RANGE] = f"{low} {high}"
    if current.get(REUSE) is not None:
        values[REUSE] = "1"  # 2, the default since Linux 4.19, is for loopback alone
    files = current.get(OPEN_FILES) or ""
    if is_whole(files) and int(files) < ENOUGH:
        values[OPEN_FILES] = str(ENOUGH)
    return {name: value for name, value in values.items() if value != current.get(name)}


FILES = (
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/tcp_tw_reuse",
    "/proc/net/sockstat",
)
SPARE = 1000  # ports that everything else on the host may need
# Seconds to wait for ports, a little more than Linux keeps them (TCP_TIMEWAIT_LEN, 60 s), and between
# two looks at them.
MOST_WAIT, PAUSE = 65.0, 1.0


@dataclass(frozen=True)
class Ports:
    """``size`` of the client port range, and how many sockets are in TIME-WAIT or in use."""

    size: int
    waiting: int
    used: int
    reuse: int

    @classmethod
    def read(cls, text: str) -> Ports | None:
        """From ``FILES`` one after the other; ``None`` when they are not as Linux writes them."""
        span = re.search(r"^([0-9]{1,5})\s+([0-9]{1,5})$", text, re.M)
        reuse = re.search(r"^([0-9])$", text, re.M)
        sockets = re.search(r"^TCP: inuse ([0-9]{1,9}) orphan [0-9]+ tw ([0-9]{1,9})", text, re.M)
        if span is None or reuse is None or sockets is None:
            return None
        size = int(span[2]) - int(span[1]) + 1
        return cls(size, int(sockets[2]), int(sockets[1]), int(reuse[1]))

    def shortage(self, rate: float, seconds: float, *, loopback: bool) -> Shortage | None:
        """Why ``rate`` new connections/s for ``seconds`` would run out of ports; else ``None``.

        Sockets are counted whatever they connect to, so this errs on the side of caution.
        """
        if self.reuse == 1 or (self.reuse == 2 and loopback):
            needed, waiting = rate * 2, 0  # free again after a second, or two
        else:
            needed, waiting = rate * seconds, self.waiting
        free = self.size - self.used - waiting
        if needed + SPARE <= free:
            return None
        return Shortage(
            f"{needed:.0f} client ports needed, {max(0, free)} free: set net.ipv4.tcp_tw_reuse=1"
            " on the load host, widen net.ipv4.ip_local_port_range or add load hosts",
            passes=needed + SPARE <= free + waiting,
        )


@dataclass(frozen=True)
class Shortage:
    """``why`` a ``host`` cannot make a load, and whether that ``passes`` when TIME-WAIT ends."""

    why: str
    passes: bool = False
    host: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.why}"


def shortage(transports: Sequence[Transport], request: Request, spec: LoadSpec) -> Shortage | None:
    """Why the first host that lacks ports cannot start, ``None`` if none does. Raises HostUnreachable.

    A host that does not say how many ports it has is taken to have enough; httperf counts the
    connections that got no port.
    """
    loopback = request.endpoint.host == "localhost" or request.endpoint.host.startswith("127.")
    asked = run_on_all(transports, lambda transport: transport.run(("cat", *FILES)).stdout)
    rate, seconds = spec.rate / len(transports), spec.seconds + spec.ramp
    for name, text in asked.unwrap().items():
        ports = Ports.read(text)
        short = ports.shortage(rate, seconds, loopback=loopback) if ports else None
        if short:
            return replace(short, host=name)
    return None


@dataclass
class PortWait:
    """Waits until ports that earlier connections hold are free again; ``note`` is told of it once.

    If a wait was ``in_vain``, other connections take the ports, and there is no second wait.
    """

    note: Callable[[str], None] = lambda _: None
    noted: bool = False
    in_vain: bool = False

    def over(self, transports: Sequence[Transport], request: Request, spec: LoadSpec) -> bool:
        """Whether there are ports for ``spec`` now. Raises HostUnreachable."""
        ends = time.monotonic() + MOST_WAIT
        while short := shortage(transports, request, spec):
            if self.in_vain or not short.passes:
                return False
            self._note(short.host)
            self.in_vain = time.monotonic() > ends
            time.sleep(PAUSE)
        return True

    def _note(self, host: str) -> None:
        if not self.noted:
            self.note(
                f"waiting for client ports: {host} has none left for a minute after a connection"
                " (TIME-WAIT). net.ipv4.tcp_tw_reuse=1 there, a wider"
                " net.ipv4.ip_local_port_range or more load hosts save that time"
            )
        self.noted = True
