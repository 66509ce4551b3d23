"""What to know before trusting a verdict: a number, its threshold, a remedy."""

from __future__ import annotations

from autotune.report import caveats_of_claim, caveats_of_search
from autotune.report.evidence import Caveat, Evidence

CHECKS = (*caveats_of_claim.CHECKS, *caveats_of_search.CHECKS)


def caveats(evidence: Evidence) -> tuple[Caveat, ...]:
    """All that apply, those that touch the claim first."""
    return tuple(caveat for check in CHECKS for caveat in check(evidence))
