"""Boot times of units and of the stack, measured during a study, and the time limits derived from
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.deploy.unit_start import (
    BOOT_FACTOR,
    MAX_START_SECONDS,
    MIN_READY_SECONDS,
    UNKNOWN_BOOT_SECONDS,
)

# After a rollback or an overload, the longest time limit is multiplied by this factor. The deployed
# configuration is known to work, so the stack only needs more time.
LATE_FACTOR = 4.0
MIN_LATE_SECONDS = 300.0
# Starting servers return these statuses. A wrong response with any other status, such as 404, is final.
STARTING_STATUSES = frozenset({502, 503, 504})


@dataclass
class BootTimes:
    """The longest measured boot time of each unit and of the whole stack, in seconds.

    ``fixed_limit`` is the target's ``ready:``. ``request_timeout`` is the target's ``timeout:``.
    ``recovery`` is the time in seconds until a load balancer uses a failed server again.
    """

    fixed_limit: float | None = None
    request_timeout: float = 0.0
    recovery: float = 0.0
    units: dict[tuple[str, str], float] = field(default_factory=dict)
    stack: float | None = None

    def record_units(self, host: str, seconds: Mapping[str, float]) -> None:
        """Record the boot times of units on a host."""
        for unit, boot_seconds in seconds.items():
            self.units[host, unit] = max(boot_seconds, self.units.get((host, unit), 0.0))

    def record_stack(self, seconds: float) -> None:
        """Record the time from the last start until the stack responded correctly."""
        self.stack = max(seconds, self.stack or 0.0)

    def unit_limit(self, host: str, unit: str) -> float:
        """Return the time limit, in seconds, for a unit to become ready."""
        return self._compute_limit(self.units.get((host, unit)))

    @property
    def stack_limit(self) -> float:
        """Return the time limit, in seconds, for a correct response after all units are ready."""
        return self._compute_limit(self.stack, self.recovery)

    @property
    def late_limit(self) -> float:
        """Return the time limit, in seconds, for a correct response after a rollback or an
        overload.
        """
        longest_limit = max((self.stack_limit, *(self.unit_limit(*key) for key in self.units)))
        return min(max(MIN_LATE_SECONDS, LATE_FACTOR * longest_limit), MAX_START_SECONDS)

    def _compute_limit(self, measured_seconds: float | None, recovery: float = 0.0) -> float:
        if self.fixed_limit is not None:
            return self.fixed_limit
        usual_seconds = (
            UNKNOWN_BOOT_SECONDS
            if measured_seconds is None
            else max(MIN_READY_SECONDS, BOOT_FACTOR * measured_seconds)
        )
        return min(usual_seconds + recovery + 2 * self.request_timeout, MAX_START_SECONDS)


def is_starting(answer: tuple[int, bytes] | str) -> bool:
    """True if a wrong response, or the reason why it is missing, may come from a stack that is still
    starting.
    """
    return isinstance(answer, str) or answer[0] in STARTING_STATUSES
