"""A load host's kernel settings and free client ports.

Each request uses a new connection, whose port stays occupied for a minute afterwards (TIME-WAIT).
An address with the default range of 28,232 ports can sustain 470 new connections/s. If
``tcp_tw_reuse`` is 1, the kernel may reuse a port in TIME-WAIT after a second. The value 2, the
default since Linux 4.19, allows the reuse only on loopback. Backlogs of a load host do not matter,
because no client connects to a load host.
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
LOWEST_PORT, HIGHEST_PORT = 1024, 65535  # ports above the well-known ports
MIN_OPEN_FILES = 65_536  # more than enough: a process holds at most a thousand connections


def fit_kernel_values(current_values: Mapping[str, str | None]) -> dict[str, str]:
    """Return sufficient values for those ``SYSCTL_KEYS`` whose ``current_values`` values do not suffice.

    A current value of ``None`` means that the kernel lacks the setting.
    """
    new_values: dict[str, str] = {}
    port_range = (current_values.get(PORT_RANGE_KEY) or "").split()
    if len(port_range) == 2 and all(map(is_uint, port_range)):
        low, high_port = min(int(port_range[0]), LOWEST_PORT), max(int(port_range[1]), HIGHEST_PORT)
        new_values[PORT_RANGE_KEY] = f"{low} {high_port}"
    if current_values.get(PORT_REUSE_KEY) is not None:
        # the value 2, which is the default since Linux 4.19, covers only loopback
        new_values[PORT_REUSE_KEY] = "1"
    max_open_files = current_values.get(OPEN_FILES_KEY) or ""
    if is_uint(max_open_files) and int(max_open_files) < MIN_OPEN_FILES:
        new_values[OPEN_FILES_KEY] = str(MIN_OPEN_FILES)
    return {name: value for name, value in new_values.items() if value != current_values.get(name)}


PORT_FILES = (
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/tcp_tw_reuse",
    "/proc/net/sockstat",
)
SPARE_PORTS = 1000  # reserved for other programs on the host
# Seconds to wait for ports, slightly longer than TIME-WAIT (TCP_TIMEWAIT_LEN, 60 s), and seconds
# between checks.
MAX_WAIT_SECONDS, WAIT_POLL_SECONDS = 65.0, 1.0


@dataclass(frozen=True)
class ClientPorts:
    """The size of the client port range, the numbers of sockets in TIME-WAIT and in use, and
    ``tcp_tw_reuse``.
    """

    range_size: int
    time_wait: int
    in_use: int
    reuse_mode: int

    @classmethod
    def parse(cls, text: str) -> ClientPorts | None:
        """Return the ports that the texts of ``PORT_FILES`` describe; ``None`` if their format is
        unknown.
        """
        range_match = re.search(r"^([0-9]{1,5})\s+([0-9]{1,5})$", text, re.M)
        reuse_match = re.search(r"^([0-9])$", text, re.M)
        socket_match = re.search(
            r"^TCP: inuse ([0-9]{1,9}) orphan [0-9]+ tw ([0-9]{1,9})", text, re.M
        )
        if range_match is None or reuse_match is None or socket_match is None:
            return None
        range_size = int(range_match[2]) - int(range_match[1]) + 1
        return cls(range_size, int(socket_match[2]), int(socket_match[1]), int(reuse_match[1]))

    def find_shortage(self, rate: float, seconds: float, *, loopback: bool) -> PortShortage | None:
        """Return why ``rate`` new connections/s for ``seconds`` would exhaust the ports; ``None``
        if there are enough ports.

        Sockets to all destinations are counted, so a shortage may be reported too early.
        """
        if self.reuse_mode == 1 or (self.reuse_mode == 2 and loopback):
            # Ports are free again after one or two seconds.
            needed_ports, waiting_ports = rate * 2, 0
        else:
            needed_ports, waiting_ports = rate * seconds, self.time_wait
        free_ports = self.range_size - self.in_use - waiting_ports
        if needed_ports + SPARE_PORTS <= free_ports:
            return None
        return PortShortage(
            f"{needed_ports:.0f} client ports needed, {max(0, free_ports)} free: set"
            " net.ipv4.tcp_tw_reuse=1 on the load host, widen net.ipv4.ip_local_port_range or add load"
            " hosts",
            is_temporary=needed_ports + SPARE_PORTS <= free_ports + waiting_ports,
        )


@dataclass(frozen=True)
class PortShortage:
    """The ``reason`` why ``host`` lacks ports.

    ``is_temporary`` is true if enough ports become free when TIME-WAIT ends.
    """

    reason: str
    is_temporary: bool = False
    host: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.reason}"


def find_port_shortage(
    transports: Sequence[Transport], request: Request, spec: LoadSpec
) -> PortShortage | None:
    """Return the shortage on the first host that lacks ports, or ``None``. Raises HostUnreachable.

    A host whose number of ports is unknown is assumed to have enough ports.
    """
    loopback = request.endpoint.host == "localhost" or request.endpoint.host.startswith("127.")
    port_results = run_on_all(
        transports, lambda transport: transport.run(("cat", *PORT_FILES)).stdout
    )
    rate, load_seconds = spec.rate / len(transports), spec.seconds + spec.ramp_seconds
    for host_name, port_text in port_results.unwrap().items():
        ports = ClientPorts.parse(port_text)
        shortage = ports.find_shortage(rate, load_seconds, loopback=loopback) if ports else None
        if shortage:
            return replace(shortage, host=host_name)
    return None


@dataclass
class PortWait:
    """A wait until ports of earlier connections are free again.

    ``note`` is called with a message at the first wait. A failed wait (``has_failed``) is not repeated,
    because other connections occupy the ports.
    """

    note: Callable[[str], None] = lambda _: None
    was_noted: bool = False
    has_failed: bool = False

    def wait_for_ports(
        self, transports: Sequence[Transport], request: Request, spec: LoadSpec
    ) -> bool:
        """Wait until ports for ``spec`` are free. Raises HostUnreachable.

        Returns false if the ports do not become free.
        """
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while shortage := find_port_shortage(transports, request, spec):
            if self.has_failed or not shortage.is_temporary:
                return False
            self._note(shortage.host)
            self.has_failed = time.monotonic() > deadline
            time.sleep(WAIT_POLL_SECONDS)
        return True

    def _note(self, host: str) -> None:
        if not self.was_noted:
            self.note(
                f"waiting up to a minute for client ports of {host} (TIME-WAIT);"
                " net.ipv4.tcp_tw_reuse=1 or more load hosts avoid this"
            )
        self.was_noted = True
