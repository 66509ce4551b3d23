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
from autotune.strict_parsing import is_uint
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.request import Request

PORT_RANGE_KEY = "net.ipv4.ip_local_port_range"
PORT_REUSE_KEY = "net.ipv4.tcp_tw_reuse"
OPEN_FILES_KEY = "fs.file-max"
SYSCTL_KEYS = (PORT_RANGE_KEY, PORT_REUSE_KEY, OPEN_FILES_KEY)
LOWEST_PORT, HIGHEST_PORT = 1024, 65535  # the ports above the well-known ones
MIN_OPEN_FILES = 65_536  # descriptors: a process holds a thousand connections at most


def fit_kernel_values(current: Mapping[str, str | None]) -> dict[str, str]:
    """Values for ``SYSCTL_KEYS`` where the ``current`` ones are too tight; ``None``: there is no
    such value."""
    values: dict[str, str] = {}
    span = (current.get(PORT_RANGE_KEY) or "").split()
    if len(span) == 2 and all(map(is_uint, span)):
        low, high = min(int(span[0]), LOWEST_PORT), max(int(span[1]), HIGHEST_PORT)
        values[PORT_RANGE_KEY] = f"{low} {high}"
    if current.get(PORT_REUSE_KEY) is not None:
        values[PORT_REUSE_KEY] = "1"  # 2, the default since Linux 4.19, is for loopback alone
    files = current.get(OPEN_FILES_KEY) or ""
    if is_uint(files) and int(files) < MIN_OPEN_FILES:
        values[OPEN_FILES_KEY] = str(MIN_OPEN_FILES)
    return {name: value for name, value in values.items() if value != current.get(name)}


PORT_FILES = (
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/tcp_tw_reuse",
    "/proc/net/sockstat",
)
SPARE_PORTS = 1000  # ports that everything else on the host may need
# Seconds to wait for ports, a little more than Linux keeps them (TCP_TIMEWAIT_LEN, 60 s), and between
# two looks at them.
MAX_WAIT_SECONDS, WAIT_POLL_SECONDS = 65.0, 1.0


@dataclass(frozen=True)
class ClientPorts:
    """``range_size`` of the client port range, and how many sockets are in TIME-WAIT or in use."""

    range_size: int
    time_wait: int
    in_use: int
    reuse_mode: int

    @classmethod
    def parse(cls, text: str) -> ClientPorts | None:
        """From ``PORT_FILES`` one after the other; ``None`` when they are not as Linux writes them."""
        span = re.search(r"^([0-9]{1,5})\s+([0-9]{1,5})$", text, re.M)
        reuse = re.search(r"^([0-9])$", text, re.M)
        sockets = re.search(r"^TCP: inuse ([0-9]{1,9}) orphan [0-9]+ tw ([0-9]{1,9})", text, re.M)
        if span is None or reuse is None or sockets is None:
            return None
        size = int(span[2]) - int(span[1]) + 1
        return cls(size, int(sockets[2]), int(sockets[1]), int(reuse[1]))

    def find_shortage(self, rate: float, seconds: float, *, loopback: bool) -> PortShortage | None:
        """Why ``rate`` new connections/s for ``seconds`` would run out of ports; else ``None``.

        Sockets are counted whatever they connect to, so this errs on the side of caution.
        """
        if self.reuse_mode == 1 or (self.reuse_mode == 2 and loopback):
            needed, waiting = rate * 2, 0  # free again after a second, or two
        else:
            needed, waiting = rate * seconds, self.time_wait
        free = self.range_size - self.in_use - waiting
        if needed + SPARE_PORTS <= free:
            return None
        return PortShortage(
            f"{needed:.0f} client ports needed, {max(0, free)} free: set net.ipv4.tcp_tw_reuse=1"
            " on the load host, widen net.ipv4.ip_local_port_range or add load hosts",
            is_temporary=needed + SPARE_PORTS <= free + waiting,
        )


@dataclass(frozen=True)
class PortShortage:
    """``reason`` a ``host`` cannot make a load, and whether that ``is_temporary`` when TIME-WAIT ends."""

    reason: str
    is_temporary: bool = False
    host: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.reason}"


def find_port_shortage(
    transports: Sequence[Transport], request: Request, spec: LoadSpec
) -> PortShortage | None:
    """Why the first host that lacks ports cannot start, ``None`` if none does. Raises HostUnreachable.

    A host that does not say how many ports it has is taken to have enough; httperf counts the
    connections that got no port.
    """
    loopback = request.endpoint.host == "localhost" or request.endpoint.host.startswith("127.")
    results = run_on_all(transports, lambda transport: transport.run(("cat", *PORT_FILES)).stdout)
    rate, seconds = spec.rate / len(transports), spec.seconds + spec.ramp_seconds
    for name, text in results.unwrap().items():
        ports = ClientPorts.parse(text)
        short = ports.find_shortage(rate, seconds, loopback=loopback) if ports else None
        if short:
            return replace(short, host=name)
    return None


@dataclass
class PortWait:
    """Waits until ports that earlier connections hold are free again; ``note`` is told of it once.

    If a wait was ``has_failed``, other connections take the ports, and there is no second wait.
    """

    note: Callable[[str], None] = lambda _: None
    was_noted: bool = False
    has_failed: bool = False

    def wait_for_ports(
        self, transports: Sequence[Transport], request: Request, spec: LoadSpec
    ) -> bool:
        """Whether there are ports for ``spec`` now. Raises HostUnreachable."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while short := find_port_shortage(transports, request, spec):
            if self.has_failed or not short.is_temporary:
                return False
            self._note(short.host)
            self.has_failed = time.monotonic() > deadline
            time.sleep(WAIT_POLL_SECONDS)
        return True

    def _note(self, host: str) -> None:
        if not self.was_noted:
            self.note(
                f"waiting for client ports: {host} has none left for a minute after a connection"
                " (TIME-WAIT). net.ipv4.tcp_tw_reuse=1 there, a wider"
                " net.ipv4.ip_local_port_range or more load hosts save that time"
            )
        self.was_noted = True
