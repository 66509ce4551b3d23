"""A worker of a shared study with frequent heartbeats, which can be killed during a measurement.

python -m tests.study.worker URL STUDY TARGET BED DIRECTORY [KILLED_AT]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.environments.simulated import SimulatedEnvironment
from autotune.study.join_study import join_study, prepare_joining_beds
from autotune.study.shared_store import HeartbeatPolicy
from autotune.study.study_database import StudyDatabase
from autotune.target.read_target import read_target
from tests.study.simulated import Silent

QUICK = HeartbeatPolicy(interval_seconds=0.2, max_missed=50)


class Killed(SimulatedEnvironment):
    """A simulated environment that kills its tuner in the n-th trial."""

    at: int

    @contextmanager
    def open_session(self, directory: Path, note: Any, history: Any) -> Iterator[Any]:
        with super().open_session(directory, note, history) as session:
            evaluate, count = session.evaluate, iter(range(1000))

            def killed(*words: Any) -> Any:
                if next(count) == self.at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return evaluate(*words)

            session.evaluate = killed  # type: ignore[method-assign]
            yield session


def killed_at(environment: MultiBedEnvironment, bed: str, at: int) -> MultiBedEnvironment:
    model = environment.environments[bed]
    assert isinstance(model, SimulatedEnvironment)
    killed = Killed(**{key: getattr(model, key) for key in model.__dataclass_fields__})
    object.__setattr__(killed, "at", at)
    return replace(environment, environments={bed: killed})


def main(url: str, name: str, target: str, bed: str, directory: str, at: str | None = None) -> None:
    with closing(StudyDatabase(url)) as storage:
        study = storage.find_study(name)
        environment = prepare_joining_beds(study, storage, read_target(Path(target)), bed)
        if at is not None:
            environment = killed_at(environment, bed, int(at))
        silent: Any = Silent()
        join_study(
            environment,
            Path(directory) / name,
            silent,
            study=study,
            storage=storage,
            heartbeat=QUICK,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
