"""Warnings about a verdict, each with a figure, its threshold and advice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import log
from statistics import stdev

from autotune.environments.peak import LIMITED_VERDICT, UNMET_VERDICT
from autotune.loads.answer_validation import ENOUGH_ANSWERS
from autotune.measure.capacity import MAX_RATE_KEY
from autotune.measure.warm_up import MAX_WINDOWS
from autotune.optimize.confirmation import MIN_PAIRS
from autotune.report import format as fmt
from autotune.report.conclusion import STOPPED_VERDICT
from autotune.report.figures import StudyFigures
from autotune.report.trial_outcomes import ReadingCounts, is_unusable
from autotune.study.proof import list_proof_failures
from autotune.study.ranking import add_measurement_noise
from autotune.study.study_state import Trial
from autotune.target.messages import format_count

MAX_LOG_SCATTER = 0.05  # maximum sd of one configuration's log peaks on an idle host
MAX_DRIFT_SHARE = 0.10  # maximum relative change of the baseline's capacity during a study
MAX_IDLE_SHARE = 0.20  # maximum share of a study's time without load
MAX_FAILED_SHARE = 1 / 3  # maximum share of failed trials
MIN_TRIED_SHARE = 1 / 2  # minimum share of the budget's configurations that were tried
MAX_DISTURBED_SHARE = 1 / 10  # maximum share of readings with CPU steal
# Results of searches that ran out of time.
UNSETTLED_VERDICTS = ("unsettled", UNMET_VERDICT)


@dataclass(frozen=True)
class WarningKind:
    """A kind of warning, as listed in the reference; ``meaning`` applies to every study."""

    code: str
    meaning: str
    remedy: str


WARNING_KINDS = {
    kind.code: kind
    for kind in (
        WarningKind(
            "simulated",
            "The stack is a model. No host was measured.",
            "remove `simulated:` from the target to measure real hosts",
        ),
        WarningKind(
            "insecure",
            "Certificates were not checked, so another server may have responded.",
            "set the authority that signed the certificate: `load: {ca: FILE}`",
        ),
        WarningKind(
            "wrong-answers",
            "Responses under load differ from the expected response. Wrong responses count as errors.",
            "if these responses are correct, set `load: {expect: {body: …}}`",
        ),
        WarningKind(
            "pages-not-checked",
            "Rarely requested pages returned incorrect responses before the first trial. Responses of "
            "these pages are not compared with reference responses under load.",
            "fix these pages, or remove them from the requests",
        ),
        WarningKind(
            "few-answers",
            "Few complete responses were checked, so incorrect ones may have gone unnoticed.",
            "raise `budget.time`, or use a generator that checks every response",
        ),
        WarningKind(
            "not-remeasured",
            "The best capacity was measured once, during the search. Values that were"
            " measured once are about a tenth too high.",
            "raise `budget.time`, so that time is left for the proof",
        ),
        WarningKind(
            "few-pairs",
            "The gain is based on too few alternating pairs for a reliable interval.",
            "raise `budget.time`, or lower `budget.trials`",
        ),
        WarningKind(
            "failed-in-proof",
            "A configuration failed or missed the SLO during the proof. A winner with a"
            " higher error rate than the baseline is not proven.",
            "find the cause in the logs of the services, then repeat the study",
        ),
        WarningKind(
            "few-repeats",
            "Only a few measurements confirm that the best configuration meets the SLO.",
            "export the configuration, then run `autotune measure TARGET --config EXPORT --repeat "
            f"{MIN_PAIRS}`",
        ),
        WarningKind(
            "unsettled",
            "Some measurements behind the verdict did not converge. The interval is"
            " wider, but valid.",
            "reduce other load on the hosts",
        ),
        WarningKind(
            "noisy",
            "Repeated measurements of one configuration differ more than on an idle host.",
            "stop other work on the hosts, and run the load generator on another host",
        ),
        WarningKind(
            "drift",
            "The capacity of the baseline changed during the study. The gain is still valid;"
            " the search may have been misled.",
            "repeat the study on hosts without other work",
        ),
        WarningKind(
            "took-effect-differently",
            "An effective value differs from the requested value. The"
            " capacity was measured with the effective value.",
            "find out which limit on the host caps the setting",
        ),
        WarningKind(
            "bound-by-rule",
            "A constraint of the target limited values of the best configuration.",
            "relax the constraint if it is stricter than necessary",
        ),
        WarningKind(
            "warm-up-cut-short",
            "The warm-up ended before latencies were stable.",
            "check that the data set fits in the cache: misses lower the capacity",
        ),
        WarningKind(
            "cpu-steal",
            "The hypervisor took CPU time from the hosts during many readings.",
            "repeat the study at a quieter time, or use hosts with dedicated CPUs",
        ),
        WarningKind(
            LIMITED_VERDICT,
            "The load could not be raised up to the capacity. The true capacity is higher.",
            "raise `load.max_rate`, or add hosts to `load.hosts`",
        ),
        WarningKind(
            "slo-not-met",
            "No configuration met the SLO at any rate.",
            "raise the limits under `slo:`, or first fix the slow or failing responses",
        ),
        WarningKind(
            "many-failed",
            "Many trials failed, so the search learned little.",
            "under `parameters:`, narrow the ranges that the failures mention",
        ),
        WarningKind(
            "few-trials",
            "The time ended before half of the configurations were measured.",
            "raise `budget.time`",
        ),
        WarningKind(
            "time-not-loading",
            "Restarts and other overhead took much of the time.",
            "use `fixed:` for parameters that need a restart: restarts take most of the overhead",
        ),
    )
}


@dataclass(frozen=True)
class StudyWarning:
    """A warning about a study: ``value`` is beyond ``threshold``, and ``text`` is the consequence."""

    code: str
    value: float
    threshold: float
    text: str
    remedy: str


def _build_warning(
    code: str, value: float, threshold: float, warning_text: str, remedy: str = ""
) -> StudyWarning:
    return StudyWarning(code, value, threshold, warning_text, remedy or WARNING_KINDS[code].remedy)


def collect_warnings(view: StudyFigures) -> tuple[StudyWarning, ...]:
    """Return all warnings of a study, the most serious first."""
    checks = (
        _warn_of_simulated_stack,
        _warn_of_certificates,
        _warn_of_answers,
        _warn_of_unchecked_pages,
        _warn_of_proof,
        _warn_of_noise,
        _warn_of_drift,
        _warn_of_ineffective_settings,
        _warn_of_readings,
        _warn_of_trials,
        _warn_of_idle_time,
    )
    return tuple(warning for check in checks for warning in check(view))


def _warn_of_simulated_stack(view: StudyFigures) -> Iterator[StudyWarning]:
    if view.target.simulated is not None:
        yield _build_warning(
            "simulated",
            1,
            0,
            "the stack is a model: no host was measured, and all figures come from the model",
        )


def _warn_of_certificates(view: StudyFigures) -> Iterator[StudyWarning]:
    if view.target.load.insecure:
        yield _build_warning(
            "insecure",
            1,
            0,
            "certificates were not checked (`insecure: true`): another server may have responded",
        )


def _warn_of_answers(view: StudyFigures) -> Iterator[StudyWarning]:
    """Warn of wrong responses under load, and of trials in which few responses were checked."""
    counts_by_trial = {
        number: counts
        for number, counts in view.study.reading_counts.items()
        if counts.checked_count
    }
    checked_count = sum(counts.checked_count for counts in counts_by_trial.values())
    wrong_count = sum(counts.wrong for counts in counts_by_trial.values())
    examples = [counts.example for counts in counts_by_trial.values() if counts.example]
    if examples:
        trials = [number for number, counts in counts_by_trial.items() if counts.example]
        wrong_percent = 100 * wrong_count / checked_count
        yield _build_warning(
            "wrong-answers",
            wrong_count,
            0,
            f"{wrong_percent:.2g} % of {checked_count:,} checked responses were incorrect, in "
            f"{format_count(len(trials), 'trial')} ({fmt.format_first_numbers(trials)}). Example: "
            f"{examples[0]}",
        )
    # In an overloaded trial, the readings may end before any response is checked.
    feasible_numbers = {trial.number for trial in view.state.trials if trial.is_feasible}
    numbers = [
        number
        for number, counts in view.study.reading_counts.items()
        if counts.readings
        and counts.checked_count < ENOUGH_ANSWERS
        and (counts.checked_count or number in feasible_numbers)
    ]
    is_exact = view.state.reference_count == 0
    if numbers and not is_exact:
        min_checked = min(view.study.reading_counts[number].checked_count for number in numbers)
        unnoticed_percent = 100 * (1 - 0.05 ** (1 / min_checked)) if min_checked else 100.0
        yield _build_warning(
            "few-answers",
            min_checked,
            ENOUGH_ANSWERS,
            f"only {min_checked} responses were checked in some of "
            f"{format_count(len(numbers), 'trial')} ({fmt.format_first_numbers(numbers)}): "
            f"up to {unnoticed_percent:.2g} % incorrect responses may have gone unnoticed",
        )


def _warn_of_unchecked_pages(view: StudyFigures) -> Iterator[StudyWarning]:
    if pages := view.state.pages_without_reference:
        page_name, reason = next(iter(pages.items()))
        yield _build_warning(
            "pages-not-checked",
            len(pages),
            0,
            f"responses of {format_count(len(pages), 'rarely requested page')} were not compared, "
            f"because they were already incorrect before the first trial, for example "
            f"{page_name} ({reason})",
        )


def _warn_of_proof(view: StudyFigures) -> Iterator[StudyWarning]:
    """Warn if too few measurements after the selection of the best configuration confirm the gain."""
    best, gain, units = view.conclusion.best, view.conclusion.gain, view.units
    if best is not None and not best.repeats and best.selection_peak is not None:
        yield _build_warning(
            "not-remeasured",
            0,
            1,
            f"the {units.format_amount(units.from_peak(best.selection_peak.peak))} of trial "
            f"{best.trial.number} were measured "
            "once, during the search; such values are about a tenth too high",
            f"`autotune resume {view.study.resume_argument}` measures the trial again"
            if view.verdict == STOPPED_VERDICT
            else "",
        )
    if gain is not None and gain.pairs < MIN_PAIRS:
        yield _build_warning(
            "few-pairs",
            gain.pairs,
            MIN_PAIRS,
            f"the gain comes from {format_count(gain.pairs, 'alternating pair')}; "
            f"a reliable interval needs {MIN_PAIRS}",
        )
    yield from _warn_of_proof_failures(view)
    if gain is None and view.verdict == "improved" and best and 0 < best.repeat_count < MIN_PAIRS:
        yield _build_warning(
            "few-repeats",
            best.repeat_count,
            MIN_PAIRS,
            f"only {format_count(best.repeat_count, 'later measurement')} confirmed that the best "
            "configuration meets the SLO",
        )


def _warn_of_proof_failures(view: StudyFigures) -> Iterator[StudyWarning]:
    if failed_trials := list_proof_failures(view.state):
        best = view.conclusion.best
        best_failures = [
            t for t in failed_trials if best is not None and t.source_trial == best.trial.number
        ]
        numbers_text = fmt.format_first_numbers([trial.number for trial in failed_trials])
        yield _build_warning(
            "failed-in-proof",
            len(failed_trials),
            0,
            f"{format_count(len(failed_trials), 'measurement')} of the proof failed "
            f"(trials {numbers_text}), {len(best_failures)} with the best configuration: "
            f"{failed_trials[0].failure or 'the SLO is not met at any rate'}",
        )


def _list_verdict_trials(view: StudyFigures) -> list[Trial]:
    """Return the trials that the verdict uses."""
    conclusion_sides = view.conclusion.sides.values()
    return [trial for side in conclusion_sides for trial in (side.repeats or (side.trial,))]


def _warn_of_noise(view: StudyFigures) -> Iterator[StudyWarning]:
    """Warn of measurements behind the verdict that did not converge, or that differ from each other."""
    trials = _list_verdict_trials(view)
    unsettled_numbers = [
        trial.number for trial in trials if trial.peak and trial.peak.verdict in UNSETTLED_VERDICTS
    ]
    if unsettled_numbers:
        yield _build_warning(
            "unsettled",
            len(unsettled_numbers),
            0,
            f"{len(unsettled_numbers)} of the {len(trials)} measurements behind the verdict did "
            f"not converge (trials {fmt.format_first_numbers(unsettled_numbers)}); the interval is "
            "wider, but valid",
        )
    for side_name, side in view.conclusion.sides.items():
        repeat_peaks = [t.peak.peak for t in side.repeats if t.peak and t.meets_slo]
        log_scatter = stdev(map(log, repeat_peaks)) if len(repeat_peaks) >= MIN_PAIRS else 0.0
        if log_scatter > MAX_LOG_SCATTER:
            yield _build_warning(
                "noisy",
                round(log_scatter, 4),
                MAX_LOG_SCATTER,
                f"{len(repeat_peaks)} measurements of the {side_name} vary by {100 * log_scatter:.1f} %; "
                f"idle hosts vary by up to {100 * MAX_LOG_SCATTER:g} %",
            )


def _warn_of_drift(view: StudyFigures) -> Iterator[StudyWarning]:
    baseline_side = view.conclusion.baseline
    if (
        baseline_side is None
        or baseline_side.selection_peak is None
        or baseline_side.repeated_peak is None
        or not baseline_side.selection_peak.is_feasible
    ):
        return
    repeated_peak, first_peak = (
        add_measurement_noise(view.state, peak.estimate, measurement_count)
        for peak, measurement_count in (
            (baseline_side.repeated_peak, baseline_side.repeat_count),
            (baseline_side.selection_peak, 1),
        )
    )
    peak_ratio = repeated_peak.ratio_to(first_peak)
    drift = peak_ratio.value - 1
    if abs(drift) > MAX_DRIFT_SHARE and peak_ratio.differs_from_one:
        yield _build_warning(
            "drift",
            round(drift, 4),
            MAX_DRIFT_SHARE,
            f"drift: the baseline {'gained' if drift > 0 else 'lost'} {100 * abs(drift):.0f} % during "
            "the study. The gain is still valid (alternating pairs), but the search may have been misled",
        )


def _warn_of_ineffective_settings(view: StudyFigures) -> Iterator[StudyWarning]:
    """Warn if effective settings of the best configuration differ from the requested values."""
    best = view.conclusion.best
    if best is None:
        return
    baseline = view.conclusion.baseline
    unchanged_settings = baseline.trial.settings.items() if baseline else ()
    # A changed setting may limit an unchanged one: somaxconn limits a server's backlog. The changes
    # already list the effective value of the unchanged setting.
    differences = [
        line
        for line in best.latest_trial.differences
        if (parameter_name := line.partition(":")[0], best.trial.settings.get(parameter_name))
        not in unchanged_settings
    ]
    if differences:
        yield _build_warning(
            "took-effect-differently",
            len(differences),
            0,
            "effective value differs from the requested value for "
            f"{format_count(len(differences), 'setting')} of the best configuration: "
            + "; ".join(differences),
        )
    # Only the target's constraints are reported, because a service's own limits cannot be relaxed.
    constraints = view.target.constraints
    bindings = [text for text in best.trial.bindings if any(rule in text for rule in constraints)]
    if bindings:
        yield _build_warning(
            "bound-by-rule",
            len(bindings),
            0,
            f"a constraint limited {format_count(len(bindings), 'value')} of the best configuration: "
            + "; ".join(bindings),
        )


def _warn_of_readings(view: StudyFigures) -> Iterator[StudyWarning]:
    """Warn of unfinished warm-ups, of CPU steal, and of load that did not reach the capacity."""
    counts_by_trial = view.study.reading_counts
    # Load that rises in steps after an overload counts as warm-up, too.
    settled_trials = {number for number, warm_up in view.state.warmups.items() if warm_up.settled}
    cold_trials = [
        trial_number
        for trial_number, trial_counts in counts_by_trial.items()
        if trial_counts.warmed >= MAX_WINDOWS and trial_number not in settled_trials
    ]
    if cold_trials:
        verdict_trials = _list_verdict_trials(view) if view.verdict != STOPPED_VERDICT else ()
        affected_trials = sorted(
            {trial.number for trial in verdict_trials}.intersection(cold_trials)
        )
        yield _build_warning(
            "warm-up-cut-short",
            len(cold_trials),
            0,
            f"latencies of {format_count(len(cold_trials), 'trial')} were not stable after "
            f"{MAX_WINDOWS} windows of warm-up"
            + (
                f"; the verdict uses trial {fmt.format_first_numbers(affected_trials)}"
                if affected_trials
                else ""
            ),
        )
    yield from _warn_of_steal(counts_by_trial.values())
    yield from _warn_of_limited_load(view)


def _warn_of_limited_load(view: StudyFigures) -> Iterator[StudyWarning]:
    peaks = {trial.number: trial.peak for trial in view.state.trials}
    limited_trials = [
        trial_number for trial_number, peak in peaks.items() if peak and peak.is_load_limited
    ]
    if limited_trials:
        max_rate_text = (
            f"to {fmt.format_rate(view.target.load.max_rate)} requests/s by `{MAX_RATE_KEY}`"
        )
        load_limits = (peak.limit for peak in peaks.values() if peak and peak.is_load_limited)
        limits_text = ", and ".join(
            dict.fromkeys(
                f"by {load_limit}" if load_limit and load_limit != MAX_RATE_KEY else max_rate_text
                for load_limit in load_limits
            )
        )
        yield _build_warning(
            LIMITED_VERDICT,
            len(limited_trials),
            0,
            f"the load did not reach the capacity in {format_count(len(limited_trials), 'trial')} "
            f"({fmt.format_first_numbers(limited_trials)}), limited {limits_text}",
        )


def _warn_of_steal(reading_counts: Collection[ReadingCounts]) -> Iterator[StudyWarning]:
    disturbed_count = sum(trial_counts.stolen for trial_counts in reading_counts)
    total_count = sum(
        trial_counts.readings + trial_counts.warmed for trial_counts in reading_counts
    )
    if disturbed_count > MAX_DISTURBED_SHARE * total_count:
        yield _build_warning(
            "cpu-steal",
            disturbed_count,
            round(MAX_DISTURBED_SHARE * total_count, 1),
            f"CPU steal: {disturbed_count} of {format_count(total_count, 'reading')} corrected",
        )


def _warn_of_trials(view: StudyFigures) -> Iterator[StudyWarning]:
    finished_trials, budgeted_count = view.state.list_counted_trials(), view.target.budget.trials
    finished_count, failed_count = len(finished_trials), sum(map(is_unusable, finished_trials))
    has_met_slo = any(trial.peak and trial.peak.met_slo for trial in view.state.trials)
    if view.verdict == "unmeetable" and view.target.command_goal is None and not has_met_slo:
        yield _build_warning(
            "slo-not-met", failed_count, 0, "no configuration met the SLO at any rate"
        )
    if MAX_FAILED_SHARE * finished_count < failed_count < finished_count:
        yield _build_warning(
            "many-failed",
            failed_count,
            round(MAX_FAILED_SHARE * finished_count, 1),
            f"{failed_count} of {format_count(finished_count, 'trial')} failed, so the search learned "
            "little",
        )
    # The search may also have stopped because the model expects no further gain.
    is_short_of_time = view.verdict != STOPPED_VERDICT and not view.state.stop_reason
    if is_short_of_time and finished_count < MIN_TRIED_SHARE * budgeted_count:
        yield _build_warning(
            "few-trials",
            finished_count,
            MIN_TRIED_SHARE * budgeted_count,
            f"the time was enough for {finished_count} of "
            f"{format_count(budgeted_count, 'configuration')}; more gain is possible",
        )


def _warn_of_idle_time(view: StudyFigures) -> Iterator[StudyWarning]:
    if view.target.command_goal is not None or view.target.simulated is not None:
        return  # commands and models spend no time generating load
    total_seconds = view.state.elapsed_seconds
    idle_seconds = total_seconds - view.state.average_seconds.get("load", 0.0)
    if total_seconds and idle_seconds / total_seconds > MAX_IDLE_SHARE:
        yield _build_warning(
            "time-not-loading",
            round(idle_seconds / total_seconds, 3),
            MAX_IDLE_SHARE,
            f"{fmt.format_share(idle_seconds, total_seconds)} of wall-clock time was overhead (target ≤ "
            f"{100 * MAX_IDLE_SHARE:g} %); "
            'see "Time" in the report',
        )
