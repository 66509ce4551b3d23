"""Settings of the kernel."""

from __future__ import annotations

from autotune.services.base import Action, Parameter

NET = "kernel.org, admin-guide/sysctl/net"
IP = "kernel.org, networking/ip-sysctl"
FS = "kernel.org, admin-guide/sysctl/fs"
VM = "kernel.org, admin-guide/sysctl/vm"

# ``stock`` is the kernel's own; the baseline of a study is what its hosts have. Servers learn of
# most changes at once: only what counts when a socket begins to listen needs them to restart. Sizes
# of buffers and what is the whole machine's are searched on demand: a space can have too much in it.
PARAMETERS = (
    Parameter(
        name="net.core.somaxconn", low=128, high=65535, log=True, stock=4096, recommended=65535,
        action=Action.RESTART, source=NET,
        meaning="Connections that may wait to be accepted: caps what servers ask for.",
    ),
    Parameter(
        name="net.core.netdev_max_backlog", low=250, high=100_000, log=True, stock=1000,
        recommended=5000, action=Action.NONE, source=NET,
        meaning="Packets that may wait for a CPU on their way in.",
    ),
    Parameter(
        name="net.core.rmem_max", low=65_536, high=67_108_864, log=True, stock=212_992, unit="B",
        action=Action.NONE, on_demand=True, source=NET,
        meaning="Largest receive buffer a program may ask for.",
    ),
    Parameter(
        name="net.core.wmem_max", low=65_536, high=67_108_864, log=True, stock=212_992, unit="B",
        action=Action.NONE, on_demand=True, source=NET,
        meaning="Largest send buffer a program may ask for.",
    ),
    Parameter(
        name="net.ipv4.tcp_rmem", stock="4096 131072 6291456", action=Action.NONE,
        on_demand=True, source=IP,
        choices=("4096 131072 6291456", "4096 16384 4194304", "4096 262144 16777216"),
        meaning="Receive buffer of a connection: least, to begin with, most, in bytes.",
    ),
    Parameter(
        name="net.ipv4.tcp_wmem", stock="4096 16384 4194304", action=Action.NONE,
        on_demand=True, source=IP,
        choices=("4096 16384 4194304", "4096 65536 4194304", "4096 65536 16777216"),
        meaning="Send buffer of a connection: least, to begin with, most, in bytes.",
    ),
    Parameter(
        name="net.ipv4.tcp_max_syn_backlog", low=128, high=65535, log=True, stock=1024,
        recommended=8192, action=Action.RESTART, source=IP,
        meaning="Connections that may be half open for each listening socket.",
    ),
    Parameter(
        name="net.ipv4.tcp_tw_reuse", choices=(0, 1, 2), stock=2, recommended=1,
        action=Action.NONE, source=f"{IP}; reference stack",
        meaning="Whether closed connections' ports are used again: never, always, on loopback.",
    ),
    Parameter(
        name="net.ipv4.tcp_tw_recycle", choices=(0, 1), stock=0, action=Action.NONE,
        source="kernel commit 4396e46187ca (Linux 4.12 removed it); reference stack",
        meaning="Whether closed connections are forgotten early; gone since Linux 4.12.",
    ),
    Parameter(
        name="net.ipv4.tcp_fin_timeout", low=5, high=120, log=True, stock=60, recommended=15,
        unit="s", action=Action.NONE, source=IP,
        meaning="How long a connection that nobody holds any more waits for its last packet.",
    ),
    Parameter(
        name="net.ipv4.ip_local_port_range", stock="32768 60999", recommended="1024 65535",
        choices=("32768 60999", "16384 65535", "1024 65535"), action=Action.NONE,
        source=f"{IP}; reference stack",
        meaning="Ports for connections to other hosts: so many to one address at one time.",
    ),
    Parameter(
        name="net.ipv4.tcp_max_tw_buckets", low=4096, high=2_000_000, log=True, stock=262_144,
        action=Action.NONE, source=IP,
        meaning="Closed connections that are remembered; more are forgotten at once.",
    ),
    Parameter(
        name="net.ipv4.tcp_fastopen", choices=(0, 1, 2, 3), stock=1, action=Action.RESTART,
        source=IP,
        meaning="Whether data may come with the first packet: as a client (1), as a server (2).",
    ),
    Parameter(
        name="net.ipv4.tcp_slow_start_after_idle", choices=(0, 1), stock=1, recommended=0,
        action=Action.NONE, source=IP,
        meaning="Whether a connection that was idle begins slowly again.",
    ),
    Parameter(
        name="net.ipv4.tcp_congestion_control", choices=("cubic", "bbr", "reno"), stock="cubic",
        action=Action.NONE, source=IP,
        meaning="How fast a connection sends; the choices are those the host has.",
    ),
    Parameter(
        name="fs.file-max", low=65_536, high=16_777_216, log=True, stock=1_048_576,
        action=Action.NONE, on_demand=True, source=FS,
        meaning="Files that all processes together may have open.",
    ),
    Parameter(
        name="vm.swappiness", low=0, high=100, stock=60, recommended=10, action=Action.NONE,
        on_demand=True, source=VM,
        meaning="How readily memory of processes is swapped out to keep files in it.",
    ),
)  # fmt: skip
