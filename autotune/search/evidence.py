"""What the trials of a study say to a model: peaks with their uncertainty, failures, open questions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.search.lattice import Rows

Array = npt.NDArray[np.float64]

# Far below the best, only the order of magnitude counts: losses beyond this log distance are
# compressed, or a few disastrous configurations would set the scale for all.
NEAR = 0.3


@dataclass(frozen=True)
class Evidence:
    """``heights`` are log peaks (higher is better) and ``sds`` theirs, one per row of ``rows``.

    ``screened``: the height is known to be at most this. ``failed`` rows could not be used;
    ``pending`` ones are being measured elsewhere. ``moves`` are advised for each of ``rows``
    (`search.advice`), if anything is.
    """

    rows: Rows
    heights: Array
    sds: Array
    screened: npt.NDArray[np.bool_]
    failed: Rows
    pending: Rows
    moves: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.rows) + len(self.failed)

    @property
    def tried(self) -> Rows:
        return np.vstack([self.rows, self.failed, self.pending])


def compressed(heights: Array, sds: Array) -> tuple[Array, Array]:
    """Heights relative to the best, large losses compressed (logarithmically beyond ``NEAR``)."""
    loss = heights.max() - heights
    return -squeezed(loss), sds * NEAR / np.maximum(loss, NEAR)


def squeezed(loss: Array) -> Array:
    """Log distances below the best, compressed where they are large."""
    far = np.maximum(loss, NEAR)
    return np.where(loss > NEAR, NEAR * (1.0 + np.log(far / NEAR)), loss)


def stretched(heights: Array) -> Array:
    """The inverse of ``compressed``, for heights alone: zero for what is believed above the best."""
    loss = np.maximum(-heights, 0.0)
    return -np.where(loss > NEAR, NEAR * np.exp(loss / NEAR - 1.0), -heights)
