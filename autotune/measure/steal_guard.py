"""CPU steal: readings that say more of the machine below the hosts than of the stack.

On a virtual machine others take CPU time now and then: *stolen* time, which the kernel counts. A
reading that broke the objective while much more of it was stolen than usual is no evidence against
the configuration; it is taken again, a little later. One that kept within the objective all the same
is good evidence, and stands.

What is usual is learned from the readings themselves. A machine that always loses a fifth of its
CPU time is what it is, and is measured as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.monitor.activity import HostUsage

# Of the CPU time, beyond what is usual. On a small lab of two CPUs nearly every reading at half of the
# peak broke a p99 objective with 0.15 to 0.4 stolen, near the peak most of those with 0.04 to 0.1.
MUCH = 0.03
USUAL = 0.1  # as a quantile of what was stolen in the readings so far …
REMEMBERED = 50  # … the latest of them
# Seconds before a reading is taken again; doubled each time, up to so many …
PAUSE, LONGEST = 2.0, 16.0
# … while all that costs fewer seconds than are free (what others take, they take for minutes), or
# than this part of the time so far.
FREE, SHARE = 180.0, 0.3


@dataclass(frozen=True)
class RetryBudget:
    """Seconds that disturbed readings may cost: so many in ``total``, and ``more`` of them from now
    on even if the total is spent."""

    total: float = FREE
    more: float = 0.0


@dataclass(frozen=True)
class StealGuard:
    """How much CPU time the hosts have lost to the machines below them: ``stolen`` are fractions,
    reading by reading, and ``lost`` the seconds that disturbed readings have cost, of which ``free``
    may be lost at any time; ``granted`` is what budgets allowed beyond their totals."""

    stolen: tuple[float, ...] = ()
    lost: float = 0.0
    free: float = FREE
    granted: float = 0.0

    @property
    def usual(self) -> float:
        """The fraction of CPU time that is stolen when nothing special is going on."""
        last = len(self.stolen) - 1
        return sorted(self.stolen)[int(USUAL * last)] if self.stolen else 0.0

    def disturbed(self, hosts: Mapping[str, HostUsage]) -> str | None:
        """Why a reading that took this of the hosts says nothing of the stack, if it does not."""
        name, stolen = worst(hosts)
        if stolen <= self.usual + MUCH:
            return None
        return f"{stolen:.0%} of the CPU time of {name} was taken by the machine below it"

    def after(self, hosts: Mapping[str, HostUsage], lost: float = 0.0) -> StealGuard:
        """With one more reading, which was in vain if it ``lost`` some seconds."""
        if not hosts:
            return self
        stolen = (*self.stolen, worst(hosts)[1])[-REMEMBERED:]
        return replace(self, stolen=stolen, lost=self.lost + lost)

    def within(self, budget: RetryBudget) -> StealGuard:
        """With this budget from now on; what was granted beyond a total before stays granted."""
        granted = max(self.granted, self.lost + budget.more if budget.more else 0.0)
        return replace(self, free=max(budget.total, granted), granted=granted)

    def may_retry(self, elapsed: float) -> bool:
        """Whether a study that has taken ``elapsed`` seconds can afford to repeat a reading."""
        return self.lost < max(self.free, SHARE * elapsed)


def worst(hosts: Mapping[str, HostUsage]) -> tuple[str, float]:
    """The host that most was stolen from, and the fraction; of no host nothing was."""
    stolen = {name: usage.steal for name, usage in hosts.items()}
    return max(stolen.items(), key=lambda item: item[1], default=("", 0.0))
