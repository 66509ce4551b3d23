"""A sweep request from options or a sweep file, and the grid that it defines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from autotune.deploy import adopted_files
from autotune.environments.stack_files import find_template_overrides
from autotune.errors import AutotuneError, UsageError
from autotune.loads.load_commands import find_excess_rate
from autotune.report import format as fmt
from autotune.services.base import Value
from autotune.space.dimension import Dimension
from autotune.space.space import SearchSpace
from autotune.strict_parsing import parse_decimal, parse_uint
from autotune.sweep.plan import SERVICE_AXIS, AxisValue, SweepAxis, SweepPlan
from autotune.target.messages import format_count, format_value, suggest_name
from autotune.target.quantities import (
    convert_to_unit,
    format_duration,
    parse_duration,
    parse_rate,
)
from autotune.target.read_target import TargetFile, load_document, read_target
from autotune.target.yaml_document import YamlDocument, load_yaml

SWEEP_FILE_KEYS = ("title", "target", "over", "hosts", "with", "rates", "repeat", "seconds")
ENTRY_EXAMPLES = {
    "over": "over: {web.php_fpm.max_children: [5, 10, 20]}",
    "hosts": "hosts: {web: [1, 2, 3]}",
    "with": "with: {web.php_fpm.pm: static}",
}
OPTIONS_BY_KEY = {"over": "--over", "hosts": "--hosts", "with": "--set"}
RANGE_HINT = "write a range `LOW:HIGH:STEP`, or values such as `5,10,20`"
MAX_RATE_HINT = "lower the rate, or raise `load: {max_rate: …}` in the target"
MAX_AXIS_VALUES = 1000
MAX_POINTS = 10_000  # a measurement takes at least 10 s, so more points would take more than a day
MAX_READING_SECONDS = 3600.0
SWITCH_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
T = TypeVar("T")


@dataclass(frozen=True)
class SweepRequest:
    """A sweep as the user wrote it, before values are converted to parameter values.

    ``rates`` are in requests/s; without rates the sweep measures capacities. ``seconds`` is the length
    of one reading. ``document`` is the sweep file, if there is one. ``option_locations`` are the entries
    that options override.
    """

    title: str = ""
    over: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    hosts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    repeat: int = 3
    seconds: float = 5.0
    document: YamlDocument | None = None
    option_locations: frozenset[tuple[str, str]] = frozenset()

    @contextmanager
    def locate_errors(self, key: str, name: str) -> Iterator[None]:
        """Add the option, or the place in the sweep file, to errors about an entry. ``key`` is `over`,
        `hosts` or `with`.
        """
        try:
            yield
        except UsageError as error:
            if self.document is None or (key, name) in self.option_locations:
                option = OPTIONS_BY_KEY[key]
                is_named = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", error.message)
                place = option if is_named else f"{option} {name}"
                raise UsageError(f"{place}: {error.message}", hint=error.hint) from None
            raise self.document.build_error([key, name], error.message, hint=error.hint) from None


def read_sweep_file(path: Path) -> tuple[TargetFile, SweepRequest | None]:
    """Return a sweep file's target and request, or a plain target and ``None``. Raises TargetError."""
    document = load_document(path)
    if "target" not in document.root:
        return read_target(path), None
    for key in document.root:
        if key not in SWEEP_FILE_KEYS:
            raise document.unknown_name_error([key], "key", SWEEP_FILE_KEYS)
    if not isinstance(document.root["target"], str):
        message = f"target: {format_value(document.root['target'])} is not the path of a target"
        raise document.build_error(["target"], message, hint="such as `target: shop.yaml`")
    target = read_target((path.parent / document.root["target"]).resolve())
    return target, _parse_request(document)


def _parse_request(document: YamlDocument) -> SweepRequest:
    def read_sweep_entries(key: str) -> dict[str, Any]:
        entry_mapping = document.root.get(key, {})
        if not isinstance(entry_mapping, dict):
            message = f"{key}: must be a mapping, not {format_value(entry_mapping)}"
            raise document.build_error([key], message, hint=f"such as `{ENTRY_EXAMPLES[key]}`")
        return entry_mapping

    def parse_sweep_entry(key: str, parse: Callable[[Any], T], default: object) -> T:
        try:
            return parse(document.root.get(key, default))
        except ValueError as error:
            raise document.build_error([key], f"{key}: {error}") from None

    axis_entries = read_sweep_entries("over")
    return SweepRequest(
        title=str(document.root.get("title") or document.path.stem),
        over={name: _parse_values(document, name, text) for name, text in axis_entries.items()},
        hosts={
            tier: _parse_counts(document, tier, host_counts)
            for tier, host_counts in read_sweep_entries("hosts").items()
        },
        settings=read_sweep_entries("with"),
        rates=parse_sweep_entry("rates", _parse_rates, []),
        repeat=parse_sweep_entry("repeat", _parse_repeat, 3),
        seconds=parse_sweep_entry("seconds", _parse_reading_seconds, "5s"),
        document=document,
    )


def _wrap_in_list(scalar_or_list: Any) -> list[Any]:
    return scalar_or_list if isinstance(scalar_or_list, list) else [scalar_or_list]


def _parse_values(document: YamlDocument, axis_name: str, values: object) -> tuple[object, ...]:
    value_items = values if isinstance(values, list) else [values]
    if invalid_items := [
        item for item in value_items if item is None or isinstance(item, list | dict)
    ]:
        message = f"{axis_name}: {format_value(invalid_items[0])} is not a valid value"
        hint = f"such as `{ENTRY_EXAMPLES['over']}`"
        raise document.build_error(["over", axis_name], message, hint=hint)
    try:
        return tuple(values) if isinstance(values, list) else tuple(expand_values(str(values)))
    except AutotuneError as error:
        raise document.build_error(["over", axis_name], error.message, hint=error.hint) from None


def _parse_counts(document: YamlDocument, tier: str, written_counts: object) -> tuple[int, ...]:
    host_counts = _wrap_in_list(written_counts)
    if any(isinstance(count, bool) or not isinstance(count, int) for count in host_counts):
        raise document.build_error(
            ["hosts", tier], f"{tier}: expected host counts, such as [1, 2, 3]"
        )
    return tuple(host_counts)


def _parse_rates(written_rates: object) -> tuple[float, ...]:
    rates = tuple(map(parse_rate, _wrap_in_list(written_rates)))
    if 0 in rates:
        raise ValueError("must be above 0")
    if len({*rates}) < len(rates):
        raise ValueError("must list each rate once")
    return rates


def _parse_reading_seconds(duration_text: object) -> float:
    seconds = parse_duration(duration_text)
    if not seconds:
        raise ValueError("must be above 0")
    if seconds > MAX_READING_SECONDS:
        raise ValueError(f"must be at most {format_duration(MAX_READING_SECONDS)}")
    return seconds


def _parse_repeat(repeat: object) -> int:
    if isinstance(repeat, bool) or not isinstance(repeat, int) or not 1 <= repeat <= 100:
        raise ValueError("expected a whole number from 1 to 100")
    return repeat


def build_request(
    path: Path,
    over: Sequence[str] | None,
    hosts: Sequence[str] | None,
    fixed_settings: Sequence[str] | None,
    rates: Sequence[float] | None,
    repeat: int | None,
    *,
    peak: bool,
) -> tuple[TargetFile, SweepRequest]:
    """Return the target and the request; options override entries of the same name in the file.

    Raises TargetError for an invalid file and UsageError for invalid options.
    """
    if peak and rates:
        raise UsageError(
            "--rate and --peak cannot be combined",
            hint="omit --peak to measure latency at the rate, or --rate to search for the capacity",
        )
    target_file, file_request = read_sweep_file(path)
    _check_stack(target_file)
    request = _apply_options(file_request or SweepRequest(), over, hosts, fixed_settings)
    _check_fixed_names(request)
    if not peak and not rates and file_request is None:
        raise UsageError(
            "missing --rate or --peak",
            hint="use --rate R for a fixed rate, --peak for the capacity",
        )
    request = replace(
        request,
        rates=() if peak else tuple(rates or request.rates),
        repeat=repeat or request.repeat,
    )
    if excess_reason := explain_excess_rate(request.rates, target_file):
        if rates:
            raise UsageError(f"--rate: {excess_reason}", hint=MAX_RATE_HINT)
        raise load_yaml(path).build_error(["rates"], f"rates: {excess_reason}", hint=MAX_RATE_HINT)
    return target_file, request if request.title else replace(request, title=_build_title(request))


def _check_stack(target_file: TargetFile) -> None:
    """Raise UsageError for a target with a command, which needs no hosts and no rates."""
    if target_file.target.command is not None:
        raise UsageError(
            "a sweep needs a stack, and the target is a command",
            hint="`autotune measure TARGET --set NAME=VALUE` measures a command at one point",
        )


def _apply_options(
    request: SweepRequest,
    over: Sequence[str] | None,
    hosts: Sequence[str] | None,
    fixed_settings: Sequence[str] | None,
) -> SweepRequest:
    """Return the request with the entries of `--over`, `--hosts` and `--set`. Raises UsageError."""
    range_form = "`NAME=LOW:HIGH:STEP` or `NAME=A,B,C`"
    texts_by_name = _split_assignments("--over", over, "missing values", range_form)
    values_by_name = {n: _expand_option_values(n, text) for n, text in texts_by_name.items()}
    settings = _split_assignments("--set", fixed_settings, "missing value", "NAME=VALUE")
    texts_by_tier = _split_assignments("--hosts", hosts, "missing numbers", "TIER=1,2,3")
    counts_by_tier = {tier: _parse_host_counts(tier, text) for tier, text in texts_by_tier.items()}
    return replace(
        request,
        over={**request.over, **values_by_name},
        hosts={**request.hosts, **counts_by_tier},
        settings={**request.settings, **settings},
        option_locations=frozenset(
            (key, name)
            for key, names in (
                ("over", values_by_name),
                ("hosts", counts_by_tier),
                ("with", settings),
            )
            for name in names
        ),
    )


def explain_excess_rate(rates: Iterable[float], target_file: TargetFile) -> str | None:
    """Return an explanation if the highest of ``rates`` exceeds the target's limit; else ``None``."""
    return find_excess_rate(max(rates, default=0.0), target_file.target.load.max_rate)


def _check_fixed_names(request: SweepRequest) -> None:
    """Raise UsageError or TargetError for a setting that is both varied and fixed."""
    service_names = [name for name in request.settings if name.endswith(f".{SERVICE_AXIS}")]
    if SERVICE_AXIS in request.over and service_names:
        with request.locate_errors("over", SERVICE_AXIS):
            raise UsageError(
                f"services are varied, and {service_names[0]} is fixed",
                hint=f"omit --set {service_names[0]}, or list services instead of `all`",
            )
    for name in request.over:
        if name in request.settings:
            with request.locate_errors("over", name):
                raise UsageError(
                    "the setting is both varied and fixed",
                    hint=f"omit --set {name} to vary it, or --over {name} to fix it",
                )


def _split_assignments(
    option: str, assignment_texts: Iterable[str] | None, missing_text: str, expected_form: str
) -> dict[str, str]:
    """Return the value of each ``NAME=VALUE`` by name. Raises UsageError for a missing name or value, and
    for a name that is given twice.
    """
    values_by_name: dict[str, str] = {}
    for assignment_text in assignment_texts or ():
        name, _, value_text = (text.strip() for text in assignment_text.partition("="))
        if not name or not value_text:
            raise UsageError(
                f"{option} {assignment_text}: {missing_text if name else 'missing name'}",
                hint=f"write {expected_form}",
            )
        if name in values_by_name:
            raise UsageError(f"{option} {name} is given twice", hint=f"give {name} once")
        values_by_name[name] = value_text
    return values_by_name


def _expand_option_values(name: str, values_text: str) -> tuple[str, ...]:
    """Return the values of `--over`. Raises UsageError."""
    try:
        return tuple(expand_values(values_text))
    except UsageError as error:
        raise UsageError(f"--over {name}: {error.message}", hint=error.hint) from None


def _parse_host_counts(tier: str, counts_text: str) -> tuple[int, ...]:
    hint = f"write numbers separated by commas, such as --hosts {tier}=1,2"
    try:
        return tuple(parse_uint(number.strip()) for number in counts_text.split(","))
    except ValueError:
        raise UsageError(f"--hosts {tier}={counts_text}: expected numbers", hint=hint) from None


def _build_title(request: SweepRequest) -> str:
    varied_names = [*request.over, *(f"hosts of {tier}" for tier in request.hosts)]
    return f"{'Response time' if request.rates else 'Capacity'} over {' and '.join(varied_names)}"


def expand_values(values_text: str) -> list[str]:
    """Return the values in a range ``low:high:step`` or in a comma-separated list. Raises
    UsageError.
    """
    first_part, *further_parts = values_text.split(":")
    if not further_parts:
        listed_values = [
            value_text.strip() for value_text in values_text.split(",") if value_text.strip()
        ]
        if not listed_values:
            raise UsageError(f"{values_text!r} contains no value", hint="write the values as A,B,C")
        return listed_values
    try:
        range_start, (range_end, step) = (
            parse_decimal(first_part.strip()),
            (parse_decimal(part_text.strip()) for part_text in further_parts),
        )
    except ValueError:
        raise UsageError(f"{values_text!r} is not a range", hint=RANGE_HINT) from None
    if step <= 0 or range_end < range_start or (range_end - range_start) / step >= MAX_AXIS_VALUES:
        raise UsageError(
            f"range {values_text} must contain 1 to {MAX_AXIS_VALUES} values", hint=RANGE_HINT
        )
    value_count = int((range_end - range_start) / step + 1e-9) + 1
    return [f"{range_start + index * step:.12g}" for index in range(value_count)]


def build_plan(target_file: TargetFile, request: SweepRequest, space: SearchSpace) -> SweepPlan:
    """Return the grid of a request. Raises UsageError for names that are not in the target."""
    tiers, data_set = target_file.target.tiers, target_file.target.data
    if not request.over and not request.hosts:
        raise UsageError(
            "the sweep varies nothing",
            hint="add --over NAME=LOW:HIGH:STEP or --hosts TIER=1,2,3",
        )
    for tier, host_counts in request.hosts.items():
        with request.locate_errors("hosts", tier):
            _check_host_counts(target_file, tier, host_counts)
    # The number of keys per request is known only for the reference application.
    uses_reference_application = any(tier.app == "reference" for tier in tiers.values())
    plan = SweepPlan(
        title=request.title,
        axes=tuple(_build_axes(request, "over", request.over, space)),
        hosts=request.hosts,
        settings={
            axis.name: axis.choices[0].label
            for axis in _build_axes(
                request, "with", {n: (value,) for n, value in request.settings.items()}, space
            )
        },
        rates=request.rates,
        repeat=request.repeat,
        seconds=request.seconds,
        seed=target_file.target.search.seed,
        keys=data_set.keys_per_request if uses_reference_application else 1,
    )
    if plan.point_count > MAX_POINTS:
        raise UsageError(
            f"the sweep contains {plan.point_count:,} points, and the maximum is {MAX_POINTS:,}",
            hint="vary fewer settings, or list fewer values of each",
        )
    for axis in plan.axes:
        with request.locate_errors("over", axis.name):
            _check_effect(axis, plan, space)
    return plan


def _build_axes(
    request: SweepRequest,
    file_key: str,
    values_by_name: Mapping[str, Sequence[object]],
    space: SearchSpace,
) -> Iterator[SweepAxis]:
    for axis_name, axis_values in values_by_name.items():
        with request.locate_errors(file_key, axis_name):
            yield build_axis(axis_name, axis_values, space)


def _check_host_counts(target_file: TargetFile, tier: str, host_counts: Sequence[int]) -> None:
    """Raise UsageError for an unknown tier, and for counts that the tier's hosts do not allow."""
    tiers = target_file.target.tiers
    if tier not in tiers:
        raise UsageError(f"unknown tier {tier!r}", hint=suggest_name(tier, tiers))
    host_count = len(tiers[tier].hosts)
    if not host_counts:
        raise UsageError(f"tier {tier}: a number of hosts is missing", hint="such as [1, 2, 3]")
    if wrong_counts := [count for count in host_counts if not 1 <= count <= host_count]:
        raise UsageError(
            f"tier {tier} lists {format_count(host_count, 'host')}, not {wrong_counts[0]}",
            hint=f"use numbers from 1 to {host_count}, or list more hosts in the target",
        )
    _check_distinct(host_counts)
    if min(host_counts) < host_count:
        _check_complete_files(target_file, tier)


def _check_complete_files(target_file: TargetFile, tier: str) -> None:
    """Raise UsageError if the hosts' own files of a tier that calls ``tier`` list every host of ``tier``.

    Recorded files (`templates:`) of ``tier`` also name every host. autotune does not change servers in
    these files.
    """
    target = target_file.target
    own_files = adopted_files.read_adopted_files(find_template_overrides(target_file))
    adopted_tiers = {instance_name.partition(".")[0] for instance_name in own_files}
    for name, tier_model in target.tiers.items():
        is_recorded = name in adopted_tiers and tier_model.installed and target.simulated is None
        lists_hosts = tier in tier_model.required_tiers
        if (lists_hosts and target.edits_host_files(name)) or (
            is_recorded and (lists_hosts or name == tier)
        ):
            raise UsageError(
                f"tier {name} keeps its hosts' own files, and autotune changes no servers in them",
                hint="write `replace: true` and no `templates:`, so that autotune writes complete files",
            )


def _check_distinct(values: Sequence[Value]) -> None:
    """Raise UsageError for a value that is listed twice, because its points would be measured twice."""
    if duplicates := [value for value in values if values.count(value) > 1]:
        raise UsageError(
            f"{fmt.format_setting(duplicates[0])} is listed twice",
            hint="list each value once; --repeat measures every point several times",
        )


def _check_effect(axis: SweepAxis, plan: SweepPlan, space: SearchSpace) -> None:
    """Raise UsageError for a parameter without any effect, because its curve would be flat."""
    if axis.name != SERVICE_AXIS:
        space.check_effect(axis.name, axis.name, (point.settings for point in plan.points))


def build_axis(axis_name: str, axis_values: Sequence[object], space: SearchSpace) -> SweepAxis:
    """Return the axis of the parameter ``axis_name``; on the axis ``service``, the value ``all``
    selects all deployments.

    Raises UsageError for a name that is not in the target, and for invalid values.
    """
    if axis_name == SERVICE_AXIS:
        return SweepAxis(SERVICE_AXIS, _select_deployments(axis_values, space))
    dimensions_by_name = {dimension.name: dimension for dimension in space.dimensions}
    if axis_name not in dimensions_by_name:
        raise UsageError(
            f"the target has no parameter {axis_name!r}",
            hint=suggest_name(axis_name, dimensions_by_name),
        )
    typed_values = [parse_value(dimensions_by_name[axis_name], value) for value in axis_values]
    _check_distinct(typed_values)
    return SweepAxis(
        axis_name, tuple(AxisValue(value, {axis_name: value}) for value in typed_values)
    )


def parse_value(dimension: Dimension, written_value: object) -> Value:
    """Return ``written_value`` (text or a YAML scalar) as a parameter's value. Raises UsageError."""
    if dimension.choices:
        choices = dimension.parameter.choices or dimension.choices
        for choice in choices:
            is_switch_word = (
                isinstance(choice, bool) and SWITCH_WORDS.get(str(written_value).lower()) is choice
            )
            if is_switch_word or str(choice) == str(written_value):
                return choice
        allowed_text = f"expected one of: {', '.join(map(str, choices))}"
        raise UsageError(f"{dimension.name} cannot be {written_value}", hint=allowed_text)
    try:
        number = parse_decimal(
            str(convert_to_unit(written_value, dimension.parameter.unit)).strip()
        )
    except ValueError:
        raise UsageError(
            f"{dimension.name}: {written_value!r} is not a number", hint=RANGE_HINT
        ) from None
    try:
        return dimension.convert_value(number)
    except ValueError as error:
        hint = f"`autotune params` lists the valid values of {dimension.name}"
        raise UsageError(str(error), hint=hint) from None


def _select_deployments(
    requested_labels: Sequence[object], space: SearchSpace
) -> tuple[AxisValue, ...]:
    services_by_label = {
        ", ".join(map(str, services.values())): services for services in space.deployments
    }
    if len(services_by_label) < 2:
        raise UsageError(
            "the target offers no choice of services",
            hint="list several services in the target: `service: [nginx, apache]`",
        )
    is_all = list(requested_labels) == ["all"]
    deployment_labels = (
        list(services_by_label) if is_all else [str(v).replace("/", ", ") for v in requested_labels]
    )
    if unknown_labels := [label for label in deployment_labels if label not in services_by_label]:
        choices_text = ", ".join(label.replace(", ", "/") for label in services_by_label)
        raise UsageError(
            f"unknown service {unknown_labels[0]!r}", hint=f"expected one of: {choices_text}"
        )
    _check_distinct(deployment_labels)
    return tuple(AxisValue(label, services_by_label[label]) for label in deployment_labels)


def choose_directory_name(path: Path, target_file: TargetFile) -> str:
    """Return the name of the sweep's directory."""
    return (
        f"{target_file.target.name}-sweep"
        if path.resolve() == target_file.path.resolve()
        else path.stem
    )


def format_sweep_size(plan: SweepPlan) -> str:
    """Return a text with the number of points and measurements, to show before the sweep starts."""
    readings_text = f"{format_count(len(plan.rates), 'reading')} of {plan.seconds:g} s"
    load_text = readings_text if plan.rates else "a capacity search"
    measurement_count = plan.point_count * plan.repeat
    load_seconds = measurement_count * len(plan.rates) * plan.seconds
    points_text = format_count(len(plan.points), "point")
    duration_text = f", {fmt.format_duration(load_seconds)} under load" if load_seconds else ""
    repeats_text = format_count(plan.repeat, "time")
    measurements_text = f"each measured {repeats_text}: {measurement_count} × {load_text}"
    return f"{points_text}, {measurements_text}{duration_text}."
