"""Estimates of the cost of reverting each change of a winner, from the search model."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from autotune.optimize.ablation import MODEL_SD_FACTOR
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.optimize.reversal_cost import ReversalCost
from autotune.optimize.simplify import draw_log_peaks
from autotune.services.base import Settings


def estimate_reversal_costs(
    surrogate: SurrogateModel, winner: Settings, baseline: Settings, changed_names: Collection[str]
) -> dict[str, ReversalCost]:
    """Return the model's cost of reverting each of the parameters ``changed_names``, the largest cost
    first.

    A search has few trials near the winner, so the model's sd of the loss is widened as in an ablation.
    """
    sorted_names = sorted(changed_names)
    if not sorted_names:
        return {}
    reverted_settings = [{**winner, name: baseline[name]} for name in sorted_names]
    log_peaks = draw_log_peaks(surrogate, [winner, *reverted_settings])
    losses = log_peaks[:, :1] - log_peaks[:, 1:]
    mean_losses, loss_sds = losses.mean(axis=0), MODEL_SD_FACTOR * np.std(losses, axis=0)
    costs = {
        name: ReversalCost(float(mean_loss), float(loss_sd))
        for name, mean_loss, loss_sd in zip(sorted_names, mean_losses, loss_sds, strict=True)
    }
    return dict(sorted(costs.items(), key=lambda item: -item[1].loss))
