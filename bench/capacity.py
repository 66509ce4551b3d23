"""Errors and durations of searches for the peak, with established methods and with autotune's method.

``python -m bench capacity [--runs 300] [--seed 1] [--columns NAME] [--methods NAME]``. In each column,
every method measures the same servers with the same seeds. Cells contain the median and the 90th
percentile of the absolute error in %, and the median seconds under load. The warm-up for a reading takes
one more second. A reading stops after a second if more than half of its requests have violated the SLO.
Each method starts with a guess: the true peak divided by the column's ratio, within 20 %.

autotune's search is shown twice: as part of a study, in which each search uses the ``Noise`` of the
previous search, and cold, as the first search of a study. The coverage of its 90 % intervals and its
bias in % are also shown. In columns with CPU steal in half of the readings, another row shows a search
that repeats failed readings instead of correcting them.

In columns of slow pages, a page takes most of the latency limit even without a queue. As in a study of
12 minutes, autotune's search then knows the median service time, and may end at a rough peak. The true
peak is from a formula, which is up to 1 % too high for these servers.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, log

import numpy as np

from autotune.environments.load_session import SEARCH_SD, build_search_limits
from autotune.measure import Capacity, Noise, Reading, Slo, search_peak
from bench.methods import METHODS
from bench.queues import LiveBench
from bench.servers import Bench, Server

SLO = Slo(quantile=0.99, limit=0.050, errors=0.001)
# the limits of a study of 12 minutes
SLOW_LIMITS = replace(build_search_limits(1e7), max_slow_load_seconds=60.0, rough_load_seconds=30.0)
STUDY, COLD = "ours, in a study", "ours, cold"
RETAKING = "ours, retaking failures"


@dataclass(frozen=True)
class Column:
    """A column of the table: servers, and the quality of the guess.

    ``ratio`` is the true peak divided by the guess. ``drift`` is the increase of log capacity in
    100 s of load. ``live`` servers are simulated request by request. For ``stormy`` and ``lost``, see
    `servers.Bench`. Pages are slow if the objective is not the usual one.
    """

    name: str
    server: Server = field(default_factory=Server)
    noise: float = 0.03
    ratio: float = 1.0
    drift: float = 0.0
    live: bool = False
    stormy: float = 0.0
    lost: float = 0.0
    slo: Slo = SLO

    def probe(self, seed: int, run: int) -> Bench:
        """Return a new server under test."""
        rng = np.random.default_rng([seed, run])
        kind = LiveBench if self.live else Bench
        return kind(
            self.server,
            self.slo,
            rng,
            noise=self.noise,
            drift=self.drift,
            stormy=self.stormy,
            lost=self.lost,
        )

    @property
    def peak(self) -> float:
        """Return the true peak in requests/s without drift."""
        return self.server.peak(self.slo)

    def guess(self, seed: int, run: int) -> float:
        """Return the peak in requests/s that a method expects before its search."""
        jitter = np.random.default_rng([seed, run, 1]).uniform(-0.2, 0.2)
        return self.peak / self.ratio * exp(jitter)

    def truth(self, probe: Bench) -> float:
        """Return the true peak in requests/s, with drift in the middle of the search."""
        return self.peak * exp(self.drift * probe.spent / 200.0)

    def search(
        self, probe: Callable[[float, float], Reading], guess: float, noise: Noise
    ) -> Capacity:
        """Search the peak with autotune's method. Slow pages are read as in a study."""
        if self.slo == SLO:
            return search_peak(probe, SLO, guess, noise=noise)
        return search_peak(
            probe,
            self.slo,
            guess,
            noise=noise,
            target_sd=SEARCH_SD,
            limits=SLOW_LIMITS,
            base_latency=float(np.median(self.server.services)),
        )


def slow_pages(name: str, server: Server, *, limit: float) -> tuple[Column, Column]:
    """Return columns of slow pages with a latency limit in seconds, for a right guess and a low one."""
    slo = replace(SLO, limit=limit)
    return (
        Column(f"slow pages, {name}", server, live=True, slo=slo),
        Column(f"slow pages, {name}, 2 x prior", server, ratio=2.0, live=True, slo=slo),
    )


COLUMNS = (
    Column("3 %"),
    Column("8 %", noise=0.08),
    Column("1/3 prior, 3 %", ratio=1 / 3),
    Column("1/3 prior, 8 %", ratio=1 / 3, noise=0.08),
    Column("3 x prior, 3 %", ratio=3.0),
    Column("3 x prior, 5 %", ratio=3.0, noise=0.05),
    Column("3 x prior, 8 %", ratio=3.0, noise=0.08),
    Column("c=1, 3 %", Server(workers=1)),
    Column("c=1, 8 %", Server(workers=1), noise=0.08),
    Column("c=4, 3 %", Server(workers=4)),
    Column("c=4, 8 %", Server(workers=4), noise=0.08),
    Column("c=64, 3 %", Server(workers=64)),
    Column("c=64, 8 %", Server(workers=64), noise=0.08),
    Column("heavy tail, 3 %", Server(cv=2.0)),
    Column("heavy tail, 8 %", Server(cv=2.0), noise=0.08),
    Column("abrupt, 3 %", Server(abrupt=True)),
    Column("abrupt, 8 %", Server(abrupt=True), noise=0.08),
    Column("request by request, 3 %", live=True),
    Column("request by request, 8 %", noise=0.08, live=True),
    Column("drift 4 %/100 s, 3 %", drift=0.04),
    Column("steal without effect, 3 %", live=True, stormy=0.5),
    Column("steal that takes 5 %, 3 %", live=True, stormy=0.5, lost=0.05),
    Column("c=1, request by request, 3 %", Server(workers=1), live=True),
    Column("c=4, request by request, 3 %", Server(workers=4), live=True),
    Column("c=64, request by request, 3 %", Server(workers=64), live=True),
    *slow_pages("1 s of 1.5 s, c=500", Server(500, 1.0, 0.03), limit=1.5),
    *slow_pages("1 s of 1.5 s, c=50", Server(50, 1.0, 0.1), limit=1.5),
    *slow_pages("0.25 s of 0.6 s, c=100", Server(100, 0.25, 0.1), limit=0.6),
)


@dataclass(frozen=True)
class Outcome:
    """The log errors and the seconds under load of a method's searches.

    A value of ``hits`` is true if the interval of a search contains the true peak.
    """

    errors: tuple[float, ...]
    loads: tuple[float, ...]
    hits: tuple[bool, ...] = ()

    def __str__(self) -> str:
        """Return the text of a cell, which includes coverage and bias if the method has intervals."""
        error = 100.0 * np.abs(np.expm1(self.errors))
        p90, load = np.quantile(error, 0.9), np.median(self.loads)
        cell = f"{np.median(error):6.2f} /{p90:6.2f} /{load:6.1f}"
        if not self.hits:
            return cell
        bias = 100.0 * np.mean(np.clip(self.errors, -0.5, 0.5))
        return f"{cell}   {100.0 * np.mean(self.hits):3.0f}   {bias:+5.2f}"


def peers(column: Column, name: str, runs: int, seed: int) -> Outcome:
    """Return the outcome of ``runs`` searches with the established method ``name``."""
    errors, loads = [], []
    for run in range(runs):
        probe = column.probe(seed, run)
        found = METHODS[name](probe, column.slo, column.guess(seed, run))
        errors.append(log(found / column.truth(probe)))
        loads.append(probe.spent)
    return Outcome(tuple(errors), tuple(loads))


def ours(column: Column, runs: int, seed: int, *, study: bool, retaking: bool = False) -> Outcome:
    """Return the outcome of ``runs`` searches with autotune's method.

    If ``study`` is true, each search starts with the noise that was learned in the previous search.
    """
    errors, loads, hits = [], [], []
    noise = Noise()
    for run in range(runs):
        probe = column.probe(seed, run)
        read = partial(_retaking, probe) if retaking else probe
        found = column.search(read, column.guess(seed, run), noise)
        noise = found.noise if study else noise
        truth = column.truth(probe)
        errors.append(log(max(found.peak, 1e-3) / truth))
        loads.append(probe.spent)
        hits.append(found.low <= truth <= found.high)
    return Outcome(tuple(errors), tuple(loads), tuple(hits))


def _retaking(probe: Bench, rate: float, seconds: float) -> Reading:
    """Repeat a reading until it passes or has no CPU steal, and return it without the steal."""
    reading = probe(rate, seconds)
    while reading.stolen and not SLO.is_met(reading):
        reading = probe(rate, seconds)
    return replace(reading, stolen=0.0)


@dataclass(frozen=True)
class Row:
    """A method in a column. The rows for autotune are ``STUDY``, ``COLD`` and ``RETAKING``."""

    column: Column
    method: str
    runs: int
    seed: int

    def __call__(self) -> str:
        """Return the text of the cell."""
        if self.method in METHODS:
            return str(peers(self.column, self.method, self.runs, self.seed))
        study, retaking = self.method != COLD, self.method == RETAKING
        return str(ours(self.column, self.runs, self.seed, study=study, retaking=retaking))


@dataclass(frozen=True)
class Screening:
    """Searches of configurations whose capacity is ``low`` to ``high`` times that of the incumbent."""

    noise: float
    low: float
    high: float
    runs: int
    seed: int
    study: bool = False

    def __call__(self) -> str:
        """Return a text with the share of configurations that are screened out, and the median seconds
        under load.
        """
        column, noise = Column("screening", noise=self.noise), Noise()
        costs = []
        for run in range(self.runs):
            rng = np.random.default_rng([self.seed, run, 2])
            incumbent = column.peak / exp(rng.uniform(log(self.low), log(self.high)))
            probe = column.probe(self.seed, run)
            found = search_peak(probe, SLO, incumbent, incumbent=incumbent, noise=noise)
            noise = found.noise if self.study else noise
            if found.verdict == "screened":
                costs.append(probe.spent)
        cost = f"{np.median(costs):5.1f}" if costs else "    -"
        return f"{100.0 * len(costs) / self.runs:6.1f}  {cost}"


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Peak search against the methods of the field.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes to share it")
    parser.add_argument("--ours", action="store_true", help="leave the peers out")
    parser.add_argument("--columns", default="", help="only columns whose name contains this")
    parser.add_argument("--methods", default="", help="only methods whose name contains this")
    options = parser.parse_args(arguments)
    methods = [STUDY, COLD] if options.ours else [*METHODS, STUDY, COLD]
    if not options.ours and importlib.util.find_spec("MLRsearch") is None:
        print("MLRsearch is not installed: its row is left out")
        methods.remove("MLRsearch, sum 15 s")
    columns = [column for column in COLUMNS if options.columns in column.name]
    methods = [method for method in methods if options.methods in method]
    rows = [
        Row(column, method, options.runs, options.seed)
        for column in columns
        for method in (*methods, *([RETAKING] if column.stormy else []))
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        cells = pool.map(_made, rows)
        cases = [] if options.columns else screenings(options.runs, options.seed)
        screened = pool.map(_made, cases)
        columns_are = "median / p90 error in % / median load-seconds; coverage and bias in %"
        print(f"{columns_are}; {options.runs} runs")
        for row in rows:
            if row.method == methods[0]:
                print(f"\n{row.column.name}  (true peak {row.column.peak:.0f}/s)")
            print(f"  {row.method:31s}{next(cells)}", flush=True)
        if cases:
            print("\nscreening: part screened out in %, median load-seconds of those")
        for case in cases:
            kind = STUDY if case.study else COLD
            label = f"{100 * case.noise:.0f} % noise, {case.low:.2f} to {case.high:.2f} x incumbent"
            print(f"  {label}, {kind:17s}{next(screened)}", flush=True)


def screenings(runs: int, seed: int) -> list[Screening]:
    """Return cases whose configurations are bad, slightly worse, slightly better or clearly better."""
    return [
        Screening(noise, low, high, runs, seed, study=study)
        for noise in (0.03, 0.08)
        for low, high in ((0.3, 0.8), (0.8, 0.97), (1.03, 1.031), (1.03, 1.5))
        for study in (True, False)
    ]


def _made(row: Row | Screening) -> str:
    return row()
