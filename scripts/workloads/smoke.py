"""A quick check that a workload runs, and that its capacity depends on its decisive settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.target.read_target import read_target
from scripts.workloads.catalogue import Workload
from scripts.workloads.crude_rate import measure_crude_rate


@dataclass(frozen=True)
class SmokeResult:
    """Responses per second with the stock settings, and with the decisive settings.

    ``missing`` are decisive parameters that the search cannot change.
    """

    missing: tuple[str, ...]
    stock: float
    changed: float

    def __str__(self) -> str:
        missing = f"not tunable: {', '.join(self.missing)}; " if self.missing else ""
        return f"{missing}{self.stock:.1f}/s, {self.changed:.1f}/s with the decisive settings"


def check_workload(workload: Workload) -> SmokeResult:
    """Deploy the stock settings, then the decisive settings, and roughly measure the capacity of both.

    The hosts must be running. Their original configuration is restored. Raises ``AutotuneError`` if
    responses are wrong or decisive settings have no effect.
    """
    environment = prepare(read_target(workload.target))
    environment.check()
    space = environment.space
    tunable = {dimension.name for dimension in space.tunable_dimensions}
    with (
        TemporaryDirectory(prefix="autotune-smoke-") as directory,
        environment.open_session(Path(directory, workload.name), lambda _: None,
                                 MeasurementHistory()) as session,
    ):  # fmt: skip

        def measure(settings: Settings) -> float:
            result = session.fleet.deploy(space.complete_without_repair(settings).settings)
            ignored = [str(each) for each in result.mismatches if each.parameter in settings]
            if ignored:
                raise AutotuneError(f"{workload.name}: {'; '.join(ignored)}")
            return measure_crude_rate(environment.file, workload.smoke)

        rates = [measure(settings) for settings in ({}, workload.smoke.settings)]
    missing = tuple(name for name in workload.decisive if name not in tunable)
    return SmokeResult(missing, *rates)
