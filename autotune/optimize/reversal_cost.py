"""The cost of reverting one change of a winner, modelled or measured."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.estimate import Estimate


@dataclass(frozen=True)
class ReversalCost:
    """The log loss of capacity if one change of the winner is reverted, and the sd of that loss.

    ``is_measured`` is true if the loss comes from measurements (`explain --measure`), not from the
    model.
    """

    loss: float
    sd: float
    is_measured: bool = False

    @property
    def ratio(self) -> Estimate:
        """Return the capacity without the change, relative to the winner's capacity."""
        return Estimate(-self.loss, self.sd)

    @property
    def is_distinguishable(self) -> bool:
        """True if the 90 % interval of the loss excludes zero."""
        return self.ratio.differs_from_one
