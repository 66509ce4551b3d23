"""Kernel settings of a tier's hosts: queues, buffers, connections and open files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from autotune.parameter_name import select_service_settings
from autotune.services.base import (
    Placement,
    Programs,
    Readback,
    Role,
    Service,
    Settings,
    Value,
    at_once,
    on_restart,
    with_guidance,
)
from autotune.services.diagnosis import Diagnosis, Resource
from autotune.services.readback import parse_number
from autotune.strict_parsing import split_lines

NET_DOCS = "kernel.org, admin-guide/sysctl/net"
IP_DOCS = "kernel.org, networking/ip-sysctl"
FS_DOCS = "kernel.org, admin-guide/sysctl/fs"
VM_DOCS = "kernel.org, admin-guide/sysctl/vm"
build_ip_setting = partial(at_once, source=IP_DOCS)

# ``stock`` is the kernel's default; the baseline of a study is the host's value. Most changes take
# effect immediately, and only settings of listening sockets need a restart. These include sizes of
# buffers: a listening socket gets its sizes at the start of a program, and connections inherit them.
# Buffer sizes, global limits and harmful settings are searched only on demand.
PARAMETERS = with_guidance((
    on_restart("net.core.somaxconn",
        "Upper limit for the accept queue of each listening socket, in connections.",
        low=128, high=65535, log=True, stock=4096, recommended=65535, source=NET_DOCS),
    at_once("net.core.netdev_max_backlog", "Maximum number of received packets that wait for a CPU.",
        low=250, high=100_000, log=True, stock=1000, recommended=5000, source=NET_DOCS),
    on_restart("net.core.rmem_max", "Maximum size of a receive buffer that a program may set.",
        low=65_536, high=67_108_864, log=True, stock=212_992, unit="B", on_demand=True, source=NET_DOCS),
    on_restart("net.core.wmem_max", "Maximum size of a send buffer that a program may set.",
        low=65_536, high=67_108_864, log=True, stock=212_992, unit="B", on_demand=True, source=NET_DOCS),
    on_restart("net.ipv4.tcp_rmem",
        "Receive buffer of a connection in bytes: minimum, initial, maximum.",
        choices=("4096 131072 6291456", "4096 16384 4194304", "4096 262144 16777216"),
        stock="4096 131072 6291456", on_demand=True, source=IP_DOCS),
    on_restart("net.ipv4.tcp_wmem",
        "Send buffer of a connection in bytes: minimum, initial, maximum.",
        choices=("4096 16384 4194304", "4096 65536 4194304", "4096 65536 16777216"),
        stock="4096 16384 4194304", on_demand=True, source=IP_DOCS),
    on_restart("net.ipv4.tcp_max_syn_backlog",
        "Maximum number of half-open connections per listening socket.",
        low=128, high=65535, log=True, stock=1024, recommended=8192, source=IP_DOCS),
    at_once("net.ipv4.tcp_tw_reuse",
        "Reuse the ports of closed connections: never (0), always (1), or on loopback only (2).",
        choices=(0, 1, 2), stock=2, recommended=1, source=f"{IP_DOCS}; reference stack"),
    # With 1, the kernel drops new connections of clients behind NAT, which the load cannot show.
    at_once("net.ipv4.tcp_tw_recycle",
        "Discard closed connections early; removed in Linux 4.12.",
        choices=(0, 1), stock=0, on_demand=True,
        source="kernel commit 4396e46187ca (Linux 4.12 removed it); reference stack"),
    build_ip_setting("net.ipv4.tcp_fin_timeout",
        "Time that an orphaned connection waits for the final packet.",
        low=5, high=120, log=True, stock=60, recommended=15, unit="s"),
    # Services such as memcached (11211) use lower ports. If an outgoing connection used such a port,
    # the service could not start.
    at_once("net.ipv4.ip_local_port_range",
        "Ports for outgoing connections. They limit concurrent connections to one address.",
        choices=("32768 60999", "16384 65535"), stock="32768 60999",
        recommended="16384 65535", source=f"{IP_DOCS}; reference stack"),
    build_ip_setting("net.ipv4.tcp_max_tw_buckets",
        "Maximum number of closed connections that are remembered. Others are discarded immediately.",
        low=4096, high=2_000_000, log=True, stock=262_144),
    on_restart("net.ipv4.tcp_fastopen",
        "Send data with the first packet: as a client (1), as a server (2), or both (3).",
        choices=(0, 1, 2, 3), stock=1, source=IP_DOCS),
    build_ip_setting("net.ipv4.tcp_slow_start_after_idle",
        "Begin again with slow start on a connection that was idle.",
        choices=(0, 1), stock=1, recommended=0),
    build_ip_setting("net.ipv4.tcp_congestion_control",
        "Congestion control algorithm, one of those that the host supports.",
        choices=("cubic", "bbr", "reno"), stock="cubic"),
    at_once("fs.file-max", "Maximum open files of all processes.",
        low=65_536, high=16_777_216, log=True, stock=1_048_576, on_demand=True, source=FS_DOCS),
    at_once("vm.swappiness", "Tendency to swap out process memory in favour of the page cache.",
        low=0, high=100, stock=60, recommended=10, on_demand=True, source=VM_DOCS),
),
    capacity="net.core.somaxconn+",
    small="net.core.netdev_max_backlog+ net.ipv4.tcp_max_syn_backlog+ net.ipv4.tcp_tw_reuse"
    " net.ipv4.ip_local_port_range net.ipv4.tcp_slow_start_after_idle- net.core.rmem_max+"
    " net.core.wmem_max+ net.ipv4.tcp_rmem net.ipv4.tcp_wmem vm.swappiness- fs.file-max+",
    safe={"net.core.somaxconn": (512, 65_535), "net.ipv4.tcp_max_syn_backlog": (512, 65_535),
          "net.core.netdev_max_backlog": (1000, 100_000), "net.ipv4.tcp_fin_timeout": (10, 60),
          "net.ipv4.tcp_max_tw_buckets": (65_536, 2_000_000)},
)  # fmt: skip

# Keys of kernel settings that list the choices that a host supports.
AVAILABLE_CHOICES_KEYS = {
    "net.ipv4.tcp_congestion_control": "net.ipv4.tcp_available_congestion_control"
}
# Keys of kernel settings that list the choices allowed in a private network namespace
# (tcp_set_default_congestion_control in net/ipv4/tcp_cong.c). A host without HOST_ONLY_KEY is in a
# private network namespace.
ALLOWED_CHOICES_KEYS = {
    "net.ipv4.tcp_congestion_control": "net.ipv4.tcp_allowed_congestion_control"
}
HOST_ONLY_KEY = "net.core.netdev_max_backlog"
KERNEL_KEYS = (
    *(p.name for p in PARAMETERS),
    *AVAILABLE_CHOICES_KEYS.values(),
    *ALLOWED_CHOICES_KEYS.values(),
)


class Sysctl(Service):
    """Kernel settings, without a process or file. autotune sets the values directly, reads them
    back and restores them.
    """

    name = "sysctl"
    title = "kernel"
    role = Role.HOST
    packages = ("procps",)
    programs: ClassVar[Programs] = {"sysctl": ("sysctl",)}
    parameters = PARAMETERS

    def build_sysctls(self, placement: Placement, settings: Settings) -> Mapping[str, str]:
        """Return the kernel values that the study sets on this tier's hosts."""
        own_settings = select_service_settings(settings, f"{placement.tier}.{self.name}")
        return {
            p.name: str(own_settings[p.name]) for p in self.parameters if p.name in own_settings
        }

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        sysctl_names = tuple(parameter.name for parameter in self.parameters)
        # With `-e`, sysctl ignores keys that this kernel lacks.
        return (Readback((placement.programs["sysctl"], "-e", *sysctl_names), parse_effective),)


SERVICES = (Sysctl(),)
DIAGNOSIS = Diagnosis(
    counter_query=None,
    find_log=None,
    recommended_changes={
        Resource.CONNECTIONS: ("net.core.somaxconn+", "net.ipv4.tcp_max_syn_backlog+")
    },
)


def parse_effective(output: str) -> dict[str, Value]:
    """Return the values in the ``key = value`` lines that sysctl(8) prints."""
    printed_rows = (line.partition(" = ") for line in split_lines(output))
    parameter_names = {parameter.name for parameter in PARAMETERS}
    return {
        sysctl_name: parse_number(" ".join(value.split()))
        for sysctl_name, equals_sign, value in printed_rows
        if equals_sign and sysctl_name in parameter_names
    }
