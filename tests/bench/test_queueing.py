from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from autotune.services.base import Effect
from bench import entangled, queueing
from bench.by_hand import OTHERS
from bench.queueing import KNOWN, Problem, Workload, drawn, made, presets
from bench.stacks import Stack


def plain(load: Workload) -> Problem:
    return made(load, np.random.default_rng(1), effects=False)


ROOMY = {"cache.memcached.memory": 4096}
WIDE = {"web.php_fpm.max_children": 200, "db.mariadb.max_connections": 400}


@pytest.mark.parametrize(
    ("load", "helps", "cause"),
    [
        (Workload(waits=1.0, web_memory=32_768), WIDE, "web.php_fpm.max_children+"),
        (Workload(dataset=3000, on_miss=40, query=0.001), ROOMY, "cache.memcached.memory+"),
        (
            Workload(rss=200, web_memory=4096, waits=0.05),
            {"web.php_fpm.max_children": 14},
            "web.php_fpm.max_children-",
        ),
        (
            Workload(always=15, query=0.001, temporary=100),
            {"db.mariadb.tmp_table_size": 256, "db.mariadb.max_heap_table_size": 256},
            "db.mariadb.tmp_table_size+",
        ),
    ],
)
def test_the_cause_is_named_and_removing_it_helps(
    load: Workload, helps: dict[str, int], cause: str
) -> None:
    at = plain(load)
    preset = at.space.preset_settings("recommended")
    assert cause in at.advise(preset, 0.0)
    assert (at.peak({**preset, **helps}) or 0.0) > 1.2 * (at.peak(preset) or inf)
    assert set(at.parts(preset)) == set(queueing.SEEN)


def test_what_does_not_fit_into_memory_fails() -> None:
    at = plain(Workload(rss=250, web_memory=4096))
    assert at.peak({**at.space.baseline, **WIDE}) is None
    assert at.advise({**at.space.baseline, **WIDE}, 0.0) == ()


@pytest.mark.parametrize("kind", ["tls", "small-cache"])
def test_presets_are_wrong_by_construction(kind: str) -> None:
    at = queueing.problem(kind, 1)
    low, high = queueing.LACKING
    assert low <= queueing._lacking(at) <= high
    assert queueing.problem(kind, 2).load != at.load
    assert all(name.rpartition(".")[2] not in KNOWN for name in at.effects)


@pytest.mark.parametrize("kind", queueing.KINDS)
def test_a_seed_has_one_workload(kind: str) -> None:
    first, again, other = (drawn(kind, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_wrong_classes_are_those_of_what_decides_and_nothing_else_differs() -> None:
    at = plain(Workload(waits=1.0, web_memory=32_768))
    few = replace(at, space=replace(at.space, dimensions=tuple(
        d for d in at.space.dimensions if d.name in WIDE or d.name.startswith("web.php_fpm.")
        or d.is_fixed
    )))  # fmt: skip
    at = replace(at, space=replace(at.space, dimensions=tuple(
        d if d in few.space.dimensions else d.fix_at_value(d.baseline) for d in at.space.dimensions
    )))  # fmt: skip
    space = queueing.misled(at, 3)
    changed = {d.name for d, other in zip(at.space.dimensions, space.dimensions, strict=True)
               if d != other}  # fmt: skip
    assert "web.php_fpm.max_children" in changed
    assert len(changed) <= queueing.DECISIVE
    classes = {d.parameter.effect for d in space.dimensions if d.name in changed}
    assert Effect.CAPACITY not in classes


@pytest.mark.parametrize("kind", entangled.KINDS)
def test_entangled_tiers_have_an_optimum_that_presets_miss(kind: str) -> None:
    at = entangled.problem(kind, 1)
    top = at.peak(entangled._optimal(at))
    assert top
    for preset in presets(at.space):
        assert (at.peak(preset) or 0.0) < 0.62 * top
        assert set(at.parts(preset)) == {f"{tier}.cpu" for tier in entangled.TIERS}
    stack = entangled.stack(kind, 1)
    advised = at.advise(presets(at.space)[1], 0.0)
    assert all(move[:-1] in stack.active for move in advised)


@pytest.mark.parametrize("kind", ["engineer", "ofat", "near"])
def test_others_suggest_what_can_be_measured(kind: str) -> None:
    stack = Stack("s", (at := plain(Workload(waits=1.0))).space, at.peak, frozenset(), at.advise)
    suggest, tried = OTHERS[kind](stack, 1), list(presets(at.space))
    peaks = [at.peak(settings) for settings in tried]
    for _ in range(6):
        tried.append(suggest(tried, peaks))
        peaks.append(at.peak(tried[-1]))
        assert all(d.allows(tried[-1][d.name]) for d in at.space.tunable_dimensions)
    gained = max(p or 0.0 for p in peaks) / max(p or 0.0 for p in peaks[:4])
    assert gained > (1.2 if kind == "engineer" else 0.99)
