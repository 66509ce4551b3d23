"""The memory that a winner's changes need: modelled by the memory rules, and measured on the hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.parameter_name import ParameterName
from autotune.report.conclusion import Conclusion
from autotune.report.load_curve import average_host_usage
from autotune.report.parameters import SettingChange
from autotune.report.studies import Study
from autotune.services.base import Settings
from autotune.space.dimension import is_deployment_choice
from autotune.space.quantity_text import format_bytes
from autotune.space.space import SearchSpace
from autotune.study.reading_records import RecordedReading
from autotune.study.recorded_environment import rebuild_environment
from autotune.target.model import Target

MIN_SHOWN_BYTES = 1_000_000  # smaller changes are shown as zero


@dataclass(frozen=True)
class MemoryCosts:
    """Changes in memory use in bytes, summed over all hosts. A change that is ``None`` or missing is
    unknown.

    - ``modelled``: the change of the maximum use that the memory rules allow, from baseline to best.
      The rules use the process sizes that the study measured, if any.
    - ``by_change``: the modelled memory that each single change adds to the best configuration without
      this change.
    - ``measured``: the change of the memory in use at capacity, from baseline to best.
    """

    modelled: float | None = None
    by_change: Mapping[str, float] = field(default_factory=dict)
    measured: float | None = None

    @property
    def has_memory_changes(self) -> bool:
        """True if any change needs more or less memory."""
        return any(abs(change) >= MIN_SHOWN_BYTES for change in self.by_change.values())

    @property
    def text(self) -> str:
        """Return the costs of all changes as text: ``about +1.9 GB (modelled)``; empty if unknown."""
        costs_by_source = {"modelled": self.modelled, "measured at capacity": self.measured}
        cost_texts = [
            f"about {format_memory_change(byte_change)} ({source})"
            for source, byte_change in costs_by_source.items()
            if byte_change is not None
        ]
        return ", ".join(cost_texts)


NO_MEMORY_COSTS = MemoryCosts()


def format_memory_change(byte_change: float | None) -> str:
    """Return a change in bytes as text, ``+1.9 GB``; a dash if it is unknown."""
    if byte_change is None:
        return "–"
    if abs(byte_change) < MIN_SHOWN_BYTES:
        return "±0 MB"
    return f"{'+' if byte_change > 0 else '-'}{format_bytes(abs(byte_change))}"


def compute_memory_costs(
    study: Study,
    conclusion: Conclusion,
    changes: Sequence[SettingChange],
    readings: Mapping[str, Sequence[RecordedReading]],
) -> MemoryCosts:
    """Return the memory that ``changes`` need. ``readings`` belong to ``baseline`` and ``best``."""
    baseline, best_side = conclusion.baseline, conclusion.best
    if baseline is None or best_side is None or not changes or study.target.command is not None:
        return NO_MEMORY_COSTS
    baseline_settings, best_settings = (
        baseline.trial.effective_settings,
        best_side.trial.effective_settings,
    )
    modelled_cost, cost_by_change = None, {}
    # An old study may lack host facts or parameters that today's memory rules need.
    with suppress(AutotuneError, LookupError):
        recorded_environment = rebuild_environment(
            study.directory, study.records, study.state.trials
        )
        space = recorded_environment.space.with_measured_memory(study.state.rss)
        model = MemoryModel(space, study.target)
        modelled_cost = model.compute_change(
            baseline_settings, best_settings, [change.name for change in changes]
        )
        cost_by_change = dict(_model_single_changes(model, changes, best_settings))
    return MemoryCosts(modelled_cost, cost_by_change, _measure_memory_change(study, readings))


@dataclass(frozen=True)
class MemoryModel:
    """The memory rules of a study's hosts."""

    space: SearchSpace
    target: Target

    def compute_change(
        self, before: Settings, after: Settings, parameter_names: Iterable[str]
    ) -> float | None:
        """Return the change of the maximum memory use in bytes, on the hosts of the parameters
        ``parameter_names``.

        The result is ``None`` unless memory rules cover all of these hosts, before and after the change.
        """
        tiers = {ParameterName.parse(parameter_name).tier for parameter_name in parameter_names}
        hosts = {host for tier_name in tiers for host in self.target.tiers[tier_name].hosts}
        old_bytes, new_bytes = (
            {
                host_memory.host: host_memory.needed
                for host_memory in self.space.compute_memory_use(settings)
            }
            for settings in (before, after)
        )
        if not hosts <= old_bytes.keys() & new_bytes.keys():
            return None
        return sum(new_bytes[host] - old_bytes[host] for host in hosts)


def _model_single_changes(
    model: MemoryModel, changes: Sequence[SettingChange], best_settings: Settings
) -> Iterator[tuple[str, float]]:
    for change in changes:
        if change.before is None or is_deployment_choice(change.name):
            continue
        reverted_settings = {**best_settings, change.name: change.before}
        cost = model.compute_change(reverted_settings, best_settings, [change.name])
        if cost is not None:
            yield change.name, cost


def _measure_memory_change(
    study: Study, readings: Mapping[str, Sequence[RecordedReading]]
) -> float | None:
    """Return the change of the memory in use at capacity.

    The result is ``None`` unless all hosts recorded it. Usage is recorded as a fraction of a machine's
    memory. Hosts must therefore be separate machines, and the target must not limit their memory.
    """
    facts, slo = study.first_record.facts, study.target.slo.objective
    hosts = [host for name, host in study.target.hosts.items() if name in facts]
    addresses = {host.address for host in hosts}
    has_limits = any(host.memory for host in hosts)
    if study.target.simulated is not None or has_limits or len(addresses) < len(hosts):
        return None
    memory_by_side = []
    for side_name in ("baseline", "best"):
        usage_by_host = average_host_usage(readings.get(side_name, ()), slo)
        memory_sizes = {host: facts[host].memory for host in usage_by_host if host in facts}
        if not usage_by_host or len(memory_sizes) < len(facts) or not all(memory_sizes.values()):
            return None
        memory_by_side.append(
            sum(
                usage_by_host[host]["memory"] * (memory_size or 0.0)
                for host, memory_size in memory_sizes.items()
            )
        )
    return memory_by_side[1] - memory_by_side[0]
