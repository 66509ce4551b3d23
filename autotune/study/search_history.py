"""Report the outcomes of trials to the search: new outcomes, outcomes that are missing after a kill,
and outcomes from other workers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotune.diagnose.diagnosis import list_recommended_changes
from autotune.estimate import InstanceCapacity
from autotune.optimize.gp.surrogate import BED_KEY, CAPACITIES_KEY, CHANGES_KEY
from autotune.optimize.searcher import Outcome, Searcher
from autotune.study.ranking import FINAL_PHASES
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial

# The model is fitted to the measurements of these phases. Repeats of the reference are included,
# because the model could dismiss a single measurement as noise. Finals and simplified winners show the
# effects of changes.
MODELLED_PHASES = (*COUNTED_PHASES, Phase.REFERENCE, *FINAL_PHASES, Phase.SIMPLIFIED, Phase.EXPLAIN)


def record_trial_outcome(searcher: Searcher, trial: Trial, state: State) -> None:
    recommended_changes = list_recommended_changes(
        state.bottlenecks.get(trial.number), trial.settings, searcher.catalogue
    )
    record_outcome(searcher, trial, recommended_changes, state.capacities.get(trial.number))


def record_outcome(
    searcher: Searcher,
    trial: Trial,
    moves: Sequence[str] = (),
    capacities: Mapping[str, InstanceCapacity] | None = None,
) -> None:
    """Report the outcome of a trial to the sampler.

    ``moves`` are the changes that the trial's bottleneck suggests, and ``capacities`` the measured
    capacities of service instances.
    """
    if trial.is_unmeasured:
        # The capacity of the configuration is still unknown, so the sampler must not learn from this
        # trial.
        searcher.discard_trial(trial.suggestion_number)
        return
    peak = trial.peak
    is_feasible = peak is not None and peak.is_feasible
    outcome_notes: dict[str, str | float | int] = {"trial": trial.number, "phase": str(trial.phase)}
    if peak is not None:
        sd = peak.upper_sd if peak.is_pruned else peak.sd
        outcome_notes |= {CHANGES_KEY: " ".join(moves)} if moves else {}
        outcome_notes |= {CAPACITIES_KEY: json.dumps(capacities)} if capacities else {}
        outcome_notes |= {BED_KEY: trial.bed} if trial.bed else {}
        outcome_notes |= {"low": peak.low, "high": peak.high, "sd": sd, "verdict": peak.verdict}
    else:
        outcome_notes["why"] = trial.failure or ""
    outcome = Outcome(peak.peak if peak is not None and is_feasible else None, outcome_notes)
    searcher.record_outcome(trial.suggestion_number, trial.learned_settings, outcome)


def catch_up_search(searcher: Searcher, state: State) -> None:
    """Report missing outcomes to the search after a kill, and discard suggestions that were not
    measured. The suggestion of an interrupted trial stays pending, because the trial is repeated.
    """
    for trial in state.list_finished_trials(*MODELLED_PHASES):
        record_trial_outcome(searcher, trial, state)
    searcher.discard_pending_suggestions(
        {trial.suggestion_number for trial in state.trials if not trial.is_finished}
    )


def sync_search(searcher: Searcher, state: State) -> None:
    """Report all recorded outcomes and running trials to a search of a shared study."""
    sync_outcomes(searcher, state)
    searcher.add_pending_suggestions(
        {t.number: t.learned_settings for t in state.list_running_trials(Phase.SEARCH)}
    )


def sync_outcomes(searcher: Searcher, state: State) -> None:
    """Add the outcomes of trials that a search does not contain yet."""
    recorded_trials = searcher.list_recorded_trials()
    for trial in state.list_finished_trials(*MODELLED_PHASES):
        if trial.number not in recorded_trials:
            record_trial_outcome(searcher, replace(trial, suggestion_number=None), state)
