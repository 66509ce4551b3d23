"""CPU steal: CPU time that the hypervisor takes from the hosts during a reading.

At times, other guests take CPU time from a virtual machine, and the kernel counts it as *steal*. Every
reading is kept, whether it met the objective or not. Repeating only the failed readings would select
lucky ones and cost time. Instead, each reading records its steal above the usual level, and the
capacity search allows for it (`measure.posterior`).

The usual level is computed from the readings. On a machine that always loses a fifth of its CPU time,
this loss is part of the measured capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.monitor.activity import HostUsage

# CPU steal above the usual level. From this value on, the user is warned, and a warm-up window with too
# many violations does not count as overloaded.
HIGH_STEAL_SHARE = 0.03
USUAL_STEAL_QUANTILE = 0.1  # the usual steal is this quantile of the steal in recent readings
MAX_REMEMBERED_READINGS = 50  # number of recent readings for the usual steal


@dataclass(frozen=True)
class CpuSteal:
    """The CPU steal of the hosts as fractions, for each reading."""

    steal_history: tuple[float, ...] = ()

    @property
    def usual_steal(self) -> float | None:
        """Return the usual fraction of steal; ``None`` before the first reading."""
        last_index = len(self.steal_history) - 1
        return (
            sorted(self.steal_history)[int(USUAL_STEAL_QUANTILE * last_index)]
            if self.steal_history
            else None
        )

    def with_reading(self, hosts: Mapping[str, HostUsage]) -> CpuSteal:
        """Return the steal with one more reading; ``hosts`` is the usage of hosts during it."""
        return (
            CpuSteal((*self.steal_history, find_worst_steal(hosts)[1])[-MAX_REMEMBERED_READINGS:])
            if hosts
            else self
        )

    def excess_steal(self, hosts: Mapping[str, HostUsage]) -> float:
        """Return the steal above the usual level, on the host with the most steal."""
        stolen_share = find_worst_steal(hosts)[1]
        return (
            stolen_share - (stolen_share if self.usual_steal is None else self.usual_steal)
            if hosts
            else 0.0
        )


def find_worst_steal(hosts: Mapping[str, HostUsage]) -> tuple[str, float]:
    """Return the host with the most steal and its fraction, or an empty name and 0 without hosts."""
    steal_by_host = {name: usage.steal for name, usage in hosts.items()}
    return max(steal_by_host.items(), key=lambda item: item[1], default=("", 0.0))
