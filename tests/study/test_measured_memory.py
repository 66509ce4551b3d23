"""The search uses the memory that processes took in the study, not the assumed memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import InMemoryStorage

from autotune.optimize.searcher import Searcher
from autotune.space.space import SearchSpace
from autotune.study.state_replay import replay_records
from autotune.study.study_loop import propose_configuration
from autotune.study.study_state import State
from tests.space.targets import GB, ROOMY, fleet

MB = 2**20
CHILDREN = "web.php_fpm.max_children"
MEASURED = {"peak": 40.0, "low": 38.0, "high": 42.0, "sd": 0.03, "verdict": "measured", "p99": 0.2,
            "readings": 5, "load_seconds": 20.0, "at": "2026-01-02T00:00:00+00:00"}  # fmt: skip
BOTTLENECK = {"tier": "web", "service": "php_fpm", "host": "web1", "resource": "workers",
              "evidence": "raise max_children", "confidence": 0.9, "gain": 0.0,
              "related": []}  # fmt: skip


def replay_study(space: SearchSpace, children: list[int], rss: int) -> State:
    """Return a study that measured these numbers of children, all of them busy."""
    records: list[dict[str, Any]] = [{"event": "study", "started": "now"}]
    for number, count in enumerate(children):
        settings = {**space.baseline, "web.php_fpm.pm": "static", CHILDREN: count}
        phase = "baseline" if number == 0 else "recommended"
        records += [
            {"event": "trial", "trial": number, "phase": phase, "settings": settings, "of": None,
             "asked": None, "suggested": {}, "bindings": []},
            {"event": "bottleneck", "trial": number, **BOTTLENECK},
            {"event": "memory", "trial": number, "rss": {"web.php_fpm": rss}},
            {"event": "measured", "trial": number, **MEASURED, "peak": 10.0 * count},
        ]  # fmt: skip
    return replay_records(records)


@pytest.mark.parametrize(("rss", "most"), [(60 * MB, 9), (30 * MB, 20), (6 * MB, 104)])
def test_suggestions_follow_the_measured_memory(tmp_path: Path, rss: int, most: int) -> None:
    space = fleet(tmp_path, web2=replace(ROOMY, memory=GB))  # assumes 30 MB per child: 20 children
    state = replay_study(space, [5, 8], rss)
    searcher = Searcher(InMemoryStorage(), "s", space, "gp", 1)
    asked = propose_configuration(state, searcher, space).suggestion.values[CHILDREN]
    assert 8 < int(asked) <= most
    assert (int(asked) > 20) is (most > 20)
    assert state.limit_space(space).build_candidate({CHILDREN: 250}).settings[CHILDREN] == most
