"""CPU steal: what the machine below the hosts takes of them while a reading runs.

On a virtual machine others take CPU time now and then: *stolen* time, which the kernel counts. Every
reading stands, whether it kept the objective or not: taking only the failed ones again would select
for good luck, and cost time. A reading instead says by how much more was stolen in it than usual,
and the capacity search allows for it (`measure.posterior`).

What is usual is learned from the readings themselves. A machine that always loses a fifth of its
CPU time is what it is, and is measured as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.monitor.activity import HostUsage

# Of the CPU time, beyond what is usual: worth a word, and no reason to take a window of the warm-up
# for an overload.
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
        """With one more reading, which took this of the hosts."""
        return Steal((*self.stolen, worst(hosts)[1])[-REMEMBERED:]) if hosts else self

    def beyond(self, hosts: Mapping[str, HostUsage]) -> float:
        """By how much more than usual was stolen from the host that most was stolen from."""
        stolen = worst(hosts)[1]
        return stolen - (stolen if self.usual is None else self.usual) if hosts else 0.0


def worst(hosts: Mapping[str, HostUsage]) -> tuple[str, float]:
    """The host that most was stolen from, and the fraction; of no host nothing was."""
    stolen = {name: usage.steal for name, usage in hosts.items()}
    return max(stolen.items(), key=lambda item: item[1], default=("", 0.0))
