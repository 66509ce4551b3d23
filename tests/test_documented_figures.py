"""Figures in the documentation are those of the code.

Generated pages are compared as a whole by tests/cli/test_reference.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune import foreign_files
from autotune.deploy import boot_times, host_lock, unit_start
from autotune.deploy.unit_start import UnitStart
from autotune.discovery.file_collection import NAMED_SIZE_LIMIT
from autotune.environments import command, load_session
from autotune.loads import answer_kind, answer_validation, base, httperf, mutilate
from autotune.measure import capacity, warm_up
from autotune.optimize import ablation, confirmation, samplers, simplify
from autotune.optimize.gp import surrogate
from autotune.optimize.gp.sampler import MIN_STOP_TRIALS
from autotune.services import config_files
from autotune.space import rules
from autotune.study import (
    alternation,
    journal,
    reversal,
    schedule,
    state_replay,
    study_database,
    study_loop,
    time_budget,
    today_rate,
    trial,
)
from autotune.study.shared_store import HeartbeatPolicy
from autotune.target import model, requests_file
from autotune.target.model import Budget, Load
from autotune.transports import ssh

ROOT = Path(__file__).parents[1]
NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
EXPOSED = (ROOT / "autotune" / "deploy" / "exposed.sh").read_text(encoding="utf-8")
(LARGEST,) = map(int, re.findall(r"(?m)^largest=([0-9]+)", EXPOSED))


def word(number: float) -> str:
    """A small whole number as a word."""
    assert number == round(number)
    return NUMBERS[round(number)]


def percent(share: float) -> str:
    return f"{100 * share:g} %"


def default(section: type[Budget | Load], key: str) -> float:
    return float(section.model_fields[key].default)


FIGURES = {
    "SECURITY": [
        f"at most {foreign_files.MAX_JOURNAL_BYTES >> 20} MiB and {journal.MAX_RECORDS:,} records",
        f"At most {state_replay.MAX_NAMES:,} test beds can join a study",
        f"files over {LARGEST >> 20} MiB are refused",
        f"only regular files of up to {NAMED_SIZE_LIMIT >> 10} MB",
        f"A command may print at most {ssh._MAX_OUTPUT_MEGABYTES} MB",
        f"may contain at most {config_files.MAX_ARCHIVE_BYTES >> 20} MB",
        f"more than {rules.MEMORY_SHARE.removesuffix('%')} % of a host's memory",
        f"stores {mutilate.RECORD_COUNT:,} objects without a rate limit",
        f"at most {answer_kind.MAX_TITLE_LENGTH} characters of an incorrect response",
    ],
    "docs/roll-back": [
        f"wait for {host_lock.LEASE_SECONDS / 60:g} minutes",
    ],
    "docs/limit-load": [
        f"| {default(Load, 'max_rate'):,.0f}/s; `init --from` writes 5,000/s |",
        f"| `budget: {{time: 30m}}` | {default(Budget, 'time') / 60:g} min |",
        f"| `budget: {{trials: 20}}` | {default(Budget, 'trials'):g} |",
        f"at least {model.DEFAULT_TIMEOUT_SECONDS:g} s",
        f"at most {word(1 / UnitStart().interval)} of them a second",
    ],
    "docs/health-checks": [
        f"at most {word(1 / UnitStart().interval)} times a second",
        f"{word(unit_start.BOOT_FACTOR)} times its measured boot time",
        f"boot time, at least {unit_start.MIN_READY_SECONDS:g} s",
        f"may take up to {unit_start.UNKNOWN_BOOT_SECONDS:g} s",
        f"no limit exceeds {word(unit_start.MAX_START_SECONDS / 3600)} hour",
        f"waits for {boot_times.MIN_LATE_SECONDS:g} s",
        f"or {word(boot_times.LATE_FACTOR)} times the longest limit",
        f"up to {warm_up.MAX_WINDOWS * warm_up.WINDOW_SECONDS:g} seconds",
        f"checks up to {answer_validation.ENOUGH_ANSWERS} complete responses",
    ],
    "docs/several-machines": [
        f"misses {word(HeartbeatPolicy().max_missed)} heartbeats",
        f"heartbeats ({HeartbeatPolicy().interval_seconds:g} s each)",
        f"wait up to {word(study_database.RETRY_TIMEOUT_SECONDS / 60)} minutes",
        f"With {study_loop.PREFETCH_MIN_BEDS} or more beds",
    ],
    "docs/several-beds": [
        f"Cochran's Q test at {percent(confirmation.DISAGREEMENT_PROBABILITY)}",
        f"at least {word(confirmation.MIN_PAIRS)} pairs",
    ],
    "docs/how-the-measurement-works": [
        f"Below {httperf.SLOW_RATE:g} requests/s and {httperf.FEW_REQUESTS} requests",
        f"at most {percent(load_session.SHORT_RAMP_INCREASE)} above the previous rate",
        f"less than {percent(base.MIN_ACHIEVED_SHARE)} of the intended requests",
        f"by large factors | {percent(load_session.ROUGH_SD)} |",
        f"otherwise | {percent(load_session.SEARCH_SD)} |",
        f"finals and proof | {percent(load_session.CLAIM_SD)} |",
        f"last {capacity._SETTLED_LIMITS:g} latency limits",
        f"allows {capacity._SETTLED_VIOLATIONS:g} violations",
        f"to allow {word(capacity._MIN_VIOLATIONS)} violations",
        f"at least {time_budget.USUAL_MEASUREMENTS} such measurements",
        f"more than {percent(study_loop.MAX_SIMPLIFICATION_LOSS)} of the winner",
        f"The {word(time_budget.MIN_FINALISTS)} to {word(schedule.MAX_FINALISTS)} leading",
        f"at most {percent(simplify.CHANGE_PRICE)} of the capacity for each change",
        f"At most {word(reversal.MAX_REVERSALS)} changes are measured",
        f"up to {word(alternation.MAX_PAIRS)} pairs",
        f"after more than {state_replay.MAX_PAIR_PAUSE_SECONDS / 60:g} minutes",
        f"up to {percent(time_budget.MAX_RESERVE_SHARE)} of `budget.time`",
        f"up to {percent(time_budget.MAX_PROOF_SHARE)} if {word(confirmation.MIN_PAIRS)} pairs",
    ],
    "docs/how-the-search-works": [
        f"at least {MIN_STOP_TRIALS} configurations were measured",
        f"is {percent(surrogate.MIN_RELEVANT_GAIN)} better exists",
        f"with a probability below {percent(study_loop.STOP_PROBABILITY)}",
        f"is at most {samplers.MAX_GP_TRIALS}, otherwise `tpe`",
    ],
    "docs/reading-a-report": [
        f'exclude "no gain" with {percent(confirmation.CLAIM_COVERAGE)} confidence',
        f"All printed intervals are {percent(confirmation.INTERVAL_COVERAGE)} intervals",
        f"the rate is {percent(today_rate.TODAY_CAPACITY_SHARE)} of the baseline's capacity",
        f"keeps {percent(ablation.KEPT_GAIN_SHARE)} of the gain",
    ],
    "docs/tune-a-program": [
        f"runs the program {word(command.REFERENCE_CALLS)} times",
        f"{word(trial.MAX_FAULTS)} configurations in succession",
    ],
    "docs/workload": [
        f"The list contains at most {requests_file.MAX_REQUESTS:,} pages",
        f"takes {load_session.MIN_TODAY_SECONDS:g} to {load_session.MAX_TODAY_SECONDS:g} s",
    ],
}


@pytest.mark.parametrize(
    ("page", "text"), [(page, text) for page, texts in FIGURES.items() for text in texts]
)
def test_a_figure_is_that_of_the_code(page: str, text: str) -> None:
    content = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    assert text in " ".join(content.split())
