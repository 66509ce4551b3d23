"""A study of a stack that is a formula; all other code is real.

``study`` starts or continues a study, so that a test can kill its process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from autotune.deploy.deploy_result import DeployFailed, DeployResult, Fleet
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.load_session import LoadSession
from autotune.estimate import InstanceCapacity
from autotune.measure.capacity import SearchLimits
from autotune.measure.reading import Reading
from autotune.monitor.host_watch import Observations
from autotune.optimize.searcher import Searcher
from autotune.optimize.storage import open_sqlite
from autotune.services.base import Action, Settings
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.study.directory import StudyLock
from autotune.study.study_loop import run_study_loop
from autotune.study.study_store import StudyStore
from autotune.study.trial_context import TrialContext, read_history
from autotune.study.verdict import Verdict
from autotune.target.model import Budget
from autotune.target.read_target import read_target
from autotune.target.slo import Slo

LOCAL = Path(__file__).parents[2] / "targets" / "local.yaml"
Peaks = Callable[[Settings], float]


def climbing(settings: Settings) -> float:
    """Return a peak with an optimum number of FPM children, and a small gain from persistent
    upstream connections.
    """
    children = float(settings["web.php_fpm.max_children"])
    kept = 1.1 if settings["lb.nginx.upstream_keepalive"] else 1.0
    return 2000.0 * kept * np.exp(-0.25 * np.log(children / 20.0) ** 2)


def flat(settings: Settings) -> float:
    return 1000.0


class Silent:
    """A progress reporter that shows nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class FormulaFleet(Fleet):
    """A fleet that deploys into memory, and refuses settings for which ``broken`` returns a reason."""

    def __init__(self, broken: Callable[[Settings], bool] = lambda _: False) -> None:
        self.settings: Settings = {}
        self.restored = False
        self._broken = broken

    def deploy(self, settings: Settings) -> DeployResult:
        if self._broken(settings):
            raise DeployFailed("it does not start: out of luck")
        self.settings = settings
        return DeployResult({"web/nginx.conf": b"\n"}, {"web": Action.RELOAD})

    def restore(self) -> None:
        self.restored = True


def space() -> SearchSpace:
    return build_space(
        read_target(LOCAL), {"here": HostFacts(cpus=2, memory=8 * 2**30, nofile=65_536)}
    )


class FormulaMeter:
    """A meter for a stack whose peak is a formula. Each reading takes ``pace`` real seconds."""

    def __init__(self, peaks: Peaks, fleet: FormulaFleet, *, seed: int, pace: float) -> None:
        self._peaks, self._fleet, self._pace = peaks, fleet, pace
        self._rng = np.random.default_rng(seed)

    def take_reading(self, rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        time.sleep(self._pace)
        load = rate / (self._peaks(self._fleet.settings) * np.exp(self._rng.normal(0, 0.03)))
        fraction = min(1.0, 0.01 * np.exp(min(25 * (load - 1), 10)))
        intended = max(1, round(rate * seconds))
        late = int(self._rng.binomial(intended, fraction))
        reading = Reading(rate, seconds, intended, late, {}, {0.01: intended - late, 0.2: late})
        return WatchedReading(reading, Observations())

    def find_bottleneck(self, settings: Settings, watched: object) -> None:
        return None

    def estimate_capacities(
        self, settings: Settings, watched: object
    ) -> dict[str, InstanceCapacity]:
        return {"all.cpu": InstanceCapacity(7.0, 0.1, ("web",))}

    def begin_measurement(self, *, is_deployed: bool) -> tuple[()]:
        return ()

    def end_warm_up(self, windows: int) -> None:
        """Discard nothing, because a formula sends no responses."""

    def count_cache_lookups(self) -> None:
        return None

    def probe_latency(self) -> None:
        """Return ``None``, because a formula serves no single requests."""

    def wait_until_drained(self) -> None:
        """Return immediately, because a formula has no backlog."""


def context(
    store: StudyStore,
    peaks: Peaks,
    fleet: FormulaFleet,
    *,
    seed: int,
    pace: float,
    today: float | None = None,
    progress: Any = None,
) -> TrialContext:
    """Return a trial context whose readings come from ``peaks``."""
    meter = FormulaMeter(peaks, fleet, seed=seed, pace=pace)
    session = LoadSession(fleet, meter, Slo(), SearchLimits(max_rate=8000.0), read_history(store))
    reporter = progress or Silent()  # accepts every call
    return TrialContext(space(), session, store, reporter, today_rate=today)


def study(
    directory: Path,
    peaks: Peaks = climbing,
    *,
    budget: Budget | None = None,
    fleet: FormulaFleet | None = None,
    seed: int = 1,
    pace: float = 0.0,
    today: float | None = None,
    progress: Any = None,
) -> tuple[Verdict, StudyStore]:
    """Start or continue the study in ``directory``."""
    with StudyLock(directory / "lock"), closing(StudyStore(directory)) as store:
        if store.state.started is None:
            store.record_study_start(directory.name, LOCAL.read_text(), source=str(LOCAL), facts={})
        made = context(
            store,
            peaks,
            fleet or FormulaFleet(),
            seed=seed,
            pace=pace,
            today=today,
            progress=progress,
        )
        allowed: dict[str, Any] = {"trials": 8, "time": "10m"}
        with open_sqlite(directory / "study.db") as storage:
            searcher = Searcher(storage, "s", made.space, "tpe", seed)
            return run_study_loop(made, searcher, budget or Budget(**allowed)), store
