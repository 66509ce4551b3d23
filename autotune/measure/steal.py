"""CPU steal: CPU time that the hypervisor takes from the hosts during a reading.

Other guests take CPU time from a virtual machine at times, and the kernel counts it as *steal*. Every
reading is kept, whether it met the objective or not. Repeating only the failed readings would select
lucky ones, and cost time. Instead, each reading records its steal above the usual level, and the capacity
search allows for it (`measure.posterior`).

The readings also show the usual level. A machine that always loses a fifth of its CPU time is measured
as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.monitor.activity import HostUsage

# CPU steal above the usual level. From here on the user is warned, and a warm-up window with too many
# violations does not count as an overload.
MUCH = 0.03
USUAL = 0.1  # quantile of the steal in the readings so far …
REMEMBERED = 50  # … of which this many newest ones count


@dataclass(frozen=True)
class Steal:
    """The CPU steal of the hosts: fractions, by reading."""

    stolen: tuple[float, ...] = ()

    @property
    def usual(self) -> float | None:
        """The usual fraction of steal; ``None`` before the first reading."""
        last = len(self.stolen) - 1
        return sorted(self.stolen)[int(USUAL * last)] if self.stolen else None

    def after(self, hosts: Mapping[str, HostUsage]) -> Steal:
        """Return the steal with one more reading; ``hosts`` is their usage during it."""
        return Steal((*self.stolen, worst(hosts)[1])[-REMEMBERED:]) if hosts else self

    def beyond(self, hosts: Mapping[str, HostUsage]) -> float:
        """Return the steal above the usual level, on the host that lost most."""
        stolen = worst(hosts)[1]
        return stolen - (stolen if self.usual is None else self.usual) if hosts else 0.0


def worst(hosts: Mapping[str, HostUsage]) -> tuple[str, float]:
    """Return the host with the most steal, and the fraction; no name and 0 without hosts."""
    stolen = {name: usage.steal for name, usage in hosts.items()}
    return max(stolen.items(), key=lambda item: item[1], default=("", 0.0))
