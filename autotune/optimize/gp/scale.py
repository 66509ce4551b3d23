"""The scale of the models: log peaks relative to the best peak, with large losses compressed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Far below the best peak, only the order of magnitude matters. Losses beyond this log distance are
# compressed, because a few very bad configurations would otherwise dominate the fit.
UNCOMPRESSED_LOSS = 0.3


def compress_observations(log_peaks: Array, sds: Array) -> tuple[Array, Array]:
    """Return log peaks relative to the highest log peak, and their sds. Losses beyond
    ``UNCOMPRESSED_LOSS`` are compressed logarithmically.
    """
    loss = log_peaks.max() - log_peaks
    return -compress_loss(loss), sds * UNCOMPRESSED_LOSS / np.maximum(loss, UNCOMPRESSED_LOSS)


def compress_shared_sds(log_peaks: Array, shared_sds: Array | None) -> Array | None:
    """Return shared sds, ``[observation, source]``, on the scale of `compress_observations`."""
    return None if shared_sds is None else compress_observations(log_peaks, shared_sds.T)[1].T


def compress_loss(loss: Array) -> Array:
    """Return log distances below the best peak, with large distances compressed."""
    clipped_loss = np.maximum(loss, UNCOMPRESSED_LOSS)
    return np.where(
        loss > UNCOMPRESSED_LOSS,
        UNCOMPRESSED_LOSS * (1.0 + np.log(clipped_loss / UNCOMPRESSED_LOSS)),
        loss,
    )


def decompress_log_peaks(compressed_log_peaks: Array) -> Array:
    """Return log peaks relative to the highest log peak, as the inverse of `compress_observations`.

    Values above the highest log peak are not compressed.
    """
    loss = np.maximum(-compressed_log_peaks, 0.0)
    return -np.where(
        loss > UNCOMPRESSED_LOSS,
        UNCOMPRESSED_LOSS * np.exp(loss / UNCOMPRESSED_LOSS - 1.0),
        -compressed_log_peaks,
    )
