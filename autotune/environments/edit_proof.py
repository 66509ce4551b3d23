"""Proof that an edit takes effect: the software itself reads files with changed values.

All parameters are changed at once, because each start of a program takes time. If the software does not
read every new value of a service, the service's parameters are changed one at a time. A parameter whose
edit has no effect, or also changes another value, is not tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.deploy.stack import ServiceInstance
from autotune.errors import AutotuneError
from autotune.parameter_name import ParameterName
from autotune.services.base import Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.space import SearchSpace

# Values with at most this difference count as equal, because programs print only two decimal places.
_TOLERANCE = 0.006
_MAX_ALTERNATIVES = 3
_ValuesByInstance = Mapping[str, Mapping[str, Value]]
Case = tuple[ServiceInstance, Settings]
ValueReader = Callable[[Sequence[Case]], Sequence[Mapping[str, Value]]]
"""Returns, for instances with settings, the values that their software reads, by bare parameter name."""


@dataclass(frozen=True)
class EditProof:
    """``proven`` lists parameters whose edits take effect. ``refuted`` contains the parameters whose
    edits have no effect, with the reasons.

    ``unproven`` lists tunable parameters whose software cannot print the values in its files.
    ``untested`` lists parameters for which the rules of the search space allow only the current value.
    """

    proven: tuple[str, ...] = ()
    refuted: Mapping[str, str] = field(default_factory=dict)
    unproven: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()

    def describe_proven(self) -> Iterator[str]:
        """Yield a line with the number of proven parameters of each service."""
        groups = _group_by_service(self.proven)
        if groups:
            counts_text = ", ".join(f"{service} {len(names)}" for service, names in groups.items())
            yield f"edits that take effect, according to the software: {counts_text}"

    def describe_unproven(self) -> Iterator[str]:
        """Yield a line for each service with parameters that are not proven."""
        for service, names in _group_by_service(self.unproven).items():
            yield f"{service}: effect of edits to {', '.join(names)} (its program does not print them)"
        for service, names in _group_by_service(self.untested).items():
            yield (
                f"{service}: effect of edits to {', '.join(names)} (the rules currently allow no other "
                "value)"
            )


NO_PROOF = EditProof()


def prove_edits(
    space: SearchSpace, instances: Iterable[ServiceInstance], read_values: ValueReader
) -> EditProof:
    """Return the parameters whose edits take effect on every host, and those whose edits do not."""
    instances_by_prefix: dict[str, list[ServiceInstance]] = {}
    for instance in instances:
        if instance.placement.adopted is not None and instance.placement.adopted.files:
            instances_by_prefix.setdefault(instance.parameter_prefix, []).append(instance)
    dimensions = {
        d.name: d
        for d in space.tunable_dimensions
        if ParameterName.parse(d.name).service_prefix in instances_by_prefix
    }
    prover = _Prover(space, instances_by_prefix, read_values)
    return prover.prove(dimensions)


@dataclass(frozen=True)
class _Prover:
    """Proves that edits take effect. ``owners`` are the instances of each service with edited
    files.
    """

    space: SearchSpace
    owners: Mapping[str, Sequence[ServiceInstance]]
    read_values: ValueReader

    def prove(self, dimensions: Mapping[str, Dimension]) -> EditProof:
        """Return the proof for the tunable parameters in ``dimensions``."""
        current_values = self._read_all_values(self.space.baseline)
        readable_names = [
            name
            for name in dimensions
            if all(
                _parse_bare_name(name) in current_values.get(i.name, {})
                for i in self._find_owners(name)
            )
        ]
        suggested_values = {
            name: alternatives[0]
            for name in readable_names
            if (alternatives := list_alternatives(dimensions[name]))
        }
        changed_settings = _build_settings(self.space, suggested_values)
        reported_values = self._read_all_values(changed_settings) if changed_settings else {}
        doubtful_services = {
            ParameterName.parse(name).service_prefix
            for name in readable_names
            if not self._takes_effect(name, changed_settings, reported_values)
        }
        pending_names = [
            n for n in readable_names if ParameterName.parse(n).service_prefix in doubtful_services
        ]
        problems_by_name = self._change_one_at_a_time(
            {name: dimensions[name] for name in pending_names}, current_values
        )
        refuted_reasons = {name: reason for name, reason in problems_by_name.items() if reason}
        untested_names = {*pending_names} - {*problems_by_name}
        return EditProof(
            tuple(sorted({*readable_names} - {*refuted_reasons} - untested_names)),
            refuted_reasons,
            tuple(sorted({*dimensions} - {*readable_names})),
            tuple(sorted(untested_names)),
        )

    def _takes_effect(
        self, parameter_name: str, settings: Settings, reported_values: _ValuesByInstance
    ) -> bool:
        """True if a parameter's value in ``settings`` differs from the baseline, and the software on
        all hosts reads the value in ``settings``.
        """
        if (
            settings.get(parameter_name, self.space.baseline[parameter_name])
            == self.space.baseline[parameter_name]
        ):
            return False
        return all(
            is_same_value(
                settings[parameter_name],
                reported_values.get(instance.name, {}).get(_parse_bare_name(parameter_name)),
            )
            for instance in self._find_owners(parameter_name)
        )

    def _change_one_at_a_time(
        self, dimensions: Mapping[str, Dimension], current_values: _ValuesByInstance
    ) -> dict[str, str]:
        """Change parameters one at a time, and return the reason why each edit has no effect. The
        reason is empty if the edit takes effect.
        """
        reasons: dict[str, str] = {}
        pending_dimensions = dict(dimensions)
        for attempt in range(_MAX_ALTERNATIVES):
            candidate_settings = {
                name: settings
                for name, dimension in pending_dimensions.items()
                if (settings := self._build_single_change(dimension, attempt))
            }
            if not candidate_settings:
                break
            cases = [
                (instance, settings)
                for name, settings in candidate_settings.items()
                for instance in self._find_owners(name)
            ]
            read_results = iter(self.read_values(cases))
            for name, settings in candidate_settings.items():
                own_values = {
                    instance.name: next(read_results) for instance in self._find_owners(name)
                }
                reasons[name] = self._find_problem(name, settings, own_values, current_values)
                if not reasons[name]:
                    del pending_dimensions[name]
        return reasons

    def _build_single_change(self, dimension: Dimension, attempt: int) -> Settings:
        """Return settings in which only one parameter has another value; empty if no other value is
        possible.
        """
        alternatives = list_alternatives(dimension)
        if attempt >= len(alternatives):
            return {}
        needed_values = {
            name: values[0]
            for name, values in dimension.conditions
            if self.space.baseline.get(name) not in values
        }
        settings = _build_settings(
            self.space, {**needed_values, dimension.name: alternatives[attempt]}
        )
        return settings if settings.get(dimension.name) != dimension.baseline else {}

    def _read_all_values(self, settings: Settings) -> _ValuesByInstance:
        instances = [
            instance
            for service_instances in self.owners.values()
            for instance in service_instances
            if instance.service.list_file_readbacks(instance.placement)
        ]
        values_by_case = self.read_values([(instance, settings) for instance in instances])
        return {
            instance.name: own_values
            for instance, own_values in zip(instances, values_by_case, strict=True)
        }

    def _find_problem(
        self,
        parameter_name: str,
        settings: Settings,
        reported: _ValuesByInstance,
        current_values: _ValuesByInstance,
    ) -> str:
        """Return the problem if an edit has no effect, or also changes another value. Otherwise, the
        result is empty.
        """
        for instance in self._find_owners(parameter_name):
            own_values, values_before = reported[instance.name], current_values[instance.name]
            if not own_values:
                return f"the software rejects {settings[parameter_name]} in its files"
            if not is_same_value(
                settings[parameter_name], own_values.get(_parse_bare_name(parameter_name))
            ):
                value = own_values.get(_parse_bare_name(parameter_name), "no value")
                return f"an edit to {settings[parameter_name]} has no effect: the software reads {value}"
            for other_name, value in own_values.items():
                full_name = f"{instance.parameter_prefix}.{other_name}"
                is_same = settings.get(full_name) == self.space.baseline.get(full_name)
                if is_same and not is_same_value(values_before.get(other_name, value), value):
                    return f"an edit also changes {other_name}"
        return ""

    def _find_owners(self, parameter_name: str) -> Sequence[ServiceInstance]:
        return self.owners[ParameterName.parse(parameter_name).service_prefix]


def is_same_value(requested: Value, reported: Value | None) -> bool:
    """True if the software reads the requested value."""
    if reported is None:
        return False
    if isinstance(requested, str | bool) or isinstance(reported, str | bool):
        return str(requested).lower() == str(reported).lower()
    return abs(requested - reported) < _TOLERANCE


def list_alternatives(dimension: Dimension) -> tuple[Value, ...]:
    """Return a few values of a parameter that differ from the baseline."""
    if dimension.choices:
        return tuple(c for c in dimension.choices if c != dimension.baseline)[:_MAX_ALTERNATIVES]
    baseline = float(dimension.baseline)
    candidates = (baseline + 1, baseline * 2, baseline / 2, baseline - 1, *dimension.bounds)
    clipped_values = dict.fromkeys(dimension.clip(candidate) for candidate in candidates)
    alternatives = tuple(value for value in clipped_values if value != dimension.baseline)
    return alternatives[:_MAX_ALTERNATIVES]


def _build_settings(space: SearchSpace, suggested_settings: Settings) -> Settings:
    """Return valid settings that contain ``suggested_settings``; empty if the rules do not allow
    them.
    """
    try:
        return (
            space.build_candidate(suggested_settings, kept_names=suggested_settings).settings
            if suggested_settings
            else {}
        )
    except AutotuneError:
        return {}


def _parse_bare_name(parameter_name: str) -> str:
    return ParameterName.parse(parameter_name).parameter


def _group_by_service(parameter_names: Iterable[str]) -> dict[str, list[str]]:
    names_by_service: dict[str, list[str]] = {}
    for name in parameter_names:
        parsed_name = ParameterName.parse(name)
        names_by_service.setdefault(parsed_name.service_prefix, []).append(parsed_name.parameter)
    return names_by_service
