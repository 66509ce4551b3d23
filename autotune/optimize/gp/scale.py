"""The scale that models work on: log peaks relative to the best, large losses compressed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Far below the best, only the order of magnitude counts: losses beyond this log distance are
# compressed, or a few disastrous configurations would set the scale for all.
UNCOMPRESSED_LOSS = 0.3


def compress(log_peaks: Array, sds: Array) -> tuple[Array, Array]:
    """Log peaks relative to the best, large losses compressed (logarithmically beyond
    ``UNCOMPRESSED_LOSS``)."""
    loss = log_peaks.max() - log_peaks
    return -compress_loss(loss), sds * UNCOMPRESSED_LOSS / np.maximum(loss, UNCOMPRESSED_LOSS)


def compress_shared(log_peaks: Array, shared_sds: Array | None) -> Array | None:
    """As `compress` does with sds, for sds ``[observation, source]``, if there are any."""
    return None if shared_sds is None else compress(log_peaks, shared_sds.T)[1].T


def compress_loss(loss: Array) -> Array:
    """Log distances below the best, compressed where they are large."""
    far = np.maximum(loss, UNCOMPRESSED_LOSS)
    return np.where(
        loss > UNCOMPRESSED_LOSS, UNCOMPRESSED_LOSS * (1.0 + np.log(far / UNCOMPRESSED_LOSS)), loss
    )


def decompress(compressed: Array) -> Array:
    """Log peaks relative to the best; zero for those believed to be above the best."""
    loss = np.maximum(-compressed, 0.0)
    return -np.where(
        loss > UNCOMPRESSED_LOSS,
        UNCOMPRESSED_LOSS * np.exp(loss / UNCOMPRESSED_LOSS - 1.0),
        -compressed,
    )
