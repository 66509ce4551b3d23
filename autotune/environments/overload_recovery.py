"""Raise the load in steps after an overload, if the stack does not recover from overloads by itself.

An overload may leave a stack with less capacity than before. For example, clients give up, so a proxy
closes its connections to the next tier, and the next requests need new TLS handshakes. If the load starts
suddenly, the CPUs only make handshakes. The stack stays overloaded at a rate that it sustained before.
Bronson et al. (HotOS 2021) describe such metastable failures. The load of users rises gradually, so
readings with a sudden load would show too low a capacity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.loads.reading_run import RUNAWAY_VIOLATION_SHARE
from autotune.measure.reading import Reading

# The stack did not recover if it is still overloaded at this share of a rate that met the SLO before. At
# higher rates, readings also fail by chance.
RECOVERED_RATE_SHARE = 0.9
# rates offered before a reading, as shares of the reading's rate, and the seconds at each rate
STEP_SHARES, STEP_SECONDS = (0.25, 0.5, 0.75), 1.0


@dataclass(frozen=True)
class OverloadRecovery:
    """The readings of a session, as far as the recovery from overloads depends on them.

    ``passed_rate`` is the highest rate that met the SLO since the last deployment. ``follows_overload``
    is true if the last reading was an overload. ``needs_steps`` is true once the stack has not recovered
    from an overload.
    """

    passed_rate: float = 0.0
    follows_overload: bool = False
    needs_steps: bool = False

    def with_deployment(self) -> OverloadRecovery:
        return replace(self, passed_rate=0.0, follows_overload=False)

    def with_reading(self, reading: Reading, *, is_met: bool) -> OverloadRecovery:
        """Return the state after a reading. ``is_met`` is true if the reading met the SLO."""
        is_overload = (
            reading.truncated or reading.violations > RUNAWAY_VIOLATION_SHARE * reading.intended
        )
        fails_again = is_overload and self.follows_overload
        has_passed_before = reading.rate <= RECOVERED_RATE_SHARE * self.passed_rate
        return OverloadRecovery(
            max(self.passed_rate, reading.rate if is_met else 0.0),
            is_overload,
            self.needs_steps or (fails_again and has_passed_before),
        )

    def list_step_rates(self, rate: float) -> tuple[float, ...]:
        """Return the rates to offer before a reading at ``rate``; empty if no steps are needed."""
        if not (self.needs_steps and self.follows_overload):
            return ()
        return tuple(share * rate for share in STEP_SHARES)
