"""CPU steal: CPU time that the machine below takes from the hosts while a reading runs.

Other guests take CPU time from a virtual machine now and then: *stolen* time, which the kernel counts.
Every reading is kept, whether it met the objective or not: repeating only the failed ones would select
for good luck, and cost time. Instead, each reading says how much more CPU time than usual was stolen
during it, and the capacity search allows for that (`measure.posterior`).

What is usual is learned from the readings themselves. A machine that always loses a fifth of its
CPU time is measured as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.monitor.activity import HostUsage

# Fraction of the CPU time stolen beyond the usual. Above it the user is told, and a warm-up window with
# too many violations is not taken for an overload.
MUCH = 0.03
USUAL = 0.1  # as a quantile of what was stolen in the readings so far …
REMEMBERED = 50  # … the latest of them


@dataclass(frozen=True)
class Steal:
    """How much CPU time the hosts have lost to the machines below them: fractions, by reading."""

    stolen: tuple[float, ...] = ()

    @property
    def usual(self) -> float | None:
        """The fraction that is stolen when nothing special is going on; ``None`` at first."""
        last = len(self.stolen) - 1
        return sorted(self.stolen)[int(USUAL * last)] if self.stolen else None

    def after(self, hosts: Mapping[str, HostUsage]) -> Steal:
        """With one more reading; ``hosts`` is their usage during it."""
        return Steal((*self.stolen, worst(hosts)[1])[-REMEMBERED:]) if hosts else self

    def beyond(self, hosts: Mapping[str, HostUsage]) -> float:
        """How much more than usual was stolen from the host that lost most."""
        stolen = worst(hosts)[1]
        return stolen - (stolen if self.usual is None else self.usual) if hosts else 0.0


def worst(hosts: Mapping[str, HostUsage]) -> tuple[str, float]:
    """The host that lost most to steal, and the fraction; no name and 0 where there are no hosts."""
    stolen = {name: usage.steal for name, usage in hosts.items()}
    return max(stolen.items(), key=lambda item: item[1], default=("", 0.0))
