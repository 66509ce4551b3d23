"""CPU steal: CPU time that the hypervisor takes from the hosts during a reading.

At times, other guests take CPU time from a virtual machine, and its kernel counts this time as *steal*.
Every reading is kept, whether it met the objective or not. Repeating only failed readings would favour
lucky readings and take time. Instead, each reading records the steal above the usual level, and the
capacity search corrects for the steal (`measure.posterior`).

The usual level is computed from recent readings. If a machine always loses a fifth of its CPU time, the
measured capacity includes this loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.monitor.activity import HostUsage

# The user is warned if CPU steal above the usual level exceeds this share. A warm-up window with more
# steal and too many violations does not count as overloaded.
HIGH_STEAL_SHARE = 0.03
USUAL_STEAL_QUANTILE = 0.1  # the usual steal is this quantile of the steal in recent readings
MAX_REMEMBERED_READINGS = 50  # number of recent readings for the usual steal


@dataclass(frozen=True)
class CpuSteal:
    """The CPU steal in recent readings, as fractions, on the host with the most steal."""

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
        """Return the history with one more reading, during which ``hosts`` is the usage of each host."""
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
    """Return the name of the host with the most CPU steal, and its steal as a fraction. Without hosts,
    return an empty name and 0.
    """
    steal_by_host = {name: usage.steal for name, usage in hosts.items()}
    return max(steal_by_host.items(), key=lambda item: item[1], default=("", 0.0))
