"""Discovered tiers made tunable: templates, baselines, and the parameters that are not tuned."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.config_text import readable
from autotune.discovery.tiers import DiscoveredTier
from autotune.errors import AutotuneError
from autotune.masking import masked, placeholders
from autotune.parameter_name import ParameterName, own_settings
from autotune.services.adoption import RunningService
from autotune.services.base import ConfigFile, Own, Value
from autotune.services.directives import Adopted, Edit, exchanged
from autotune.services.registry import adoptions, placed
from autotune.space.dimension import Dimension
from autotune.space.facts import smallest
from autotune.space.space import of_tier
from autotune.target.model import Tier
from autotune.target.runtimes import DEFAULT


@dataclass(frozen=True)
class AdoptedTier:
    """``templates`` are by path below their directory, ``own`` by the names of parts.

    ``values`` is the baseline, and ``left`` the reason why a parameter is not tuned. Both are by
    ``SERVICE.NAME``.
    """

    discovered: DiscoveredTier
    dimensions: tuple[Dimension, ...]
    templates: dict[str, str] = field(default_factory=dict)
    own: dict[str, Own] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def adopt(tier: DiscoveredTier, runtime: str = DEFAULT) -> AdoptedTier:
    """Put variables into the files of a tier's hosts, if all hosts have the same value."""
    hosts = tuple(instance.host.name for instance in tier.instances)
    model = Tier(hosts=hosts, service=(tier.deployment,), runtime=runtime)
    dimensions = tuple(of_tier(tier.name, model, smallest(i.host.facts for i in tier.instances)))
    adopted = AdoptedTier(tier, dimensions)
    for place in placed(tier.name, model):
        service = place.service
        if all(service.name in instance.services for instance in tier.instances):
            _add(adopted, service.name)
        elif service.per_deployment and not service.contained:
            # Units keep their own limit of open files: a drop-in would be a new file on the host.
            adopted.own.update({f"{tier.name}.{host}.{service.name}": Own() for host in hosts})
            names = (f"{service.name}.{parameter.name}" for parameter in service.parameters)
            why = (
                "its files are not at Debian's paths"
                if service.interpreter
                else "units keep their own limits"
            )
            adopted.left.update(dict.fromkeys(names, why))
    return adopted


def check(tier: AdoptedTier) -> None:
    """Raise AutotuneError if a template does not reproduce its file."""
    from autotune.deploy import templates  # Jinja2 is slow to load

    for instance in tier.discovered.instances:
        for service, config in instance.configs.items():
            own = tier.own[f"{tier.discovered.name}.{instance.host.name}.{service}"]
            values = _baseline(tier, service)
            for file in own.files:
                text = templates.of_text(tier.templates[file.template], values)
                running = instance.services[service]
                outliner = adoptions()[running.key].understood.outliner(file.path)
                if text != masked(config.texts[file.path], outliner):
                    raise AutotuneError(f"a template cannot reproduce {file.path} exactly")


def key_of(dimension: Dimension) -> str:
    """Return ``service.parameter``, the name of a value in an adopted tier."""
    return ParameterName.parse(dimension.name).within_tier


def _baseline(tier: AdoptedTier, service: str) -> Mapping[str, object]:
    """Return values by bare names; a derived value is calculated from the software's values."""
    values = own_settings(tier.values, service)
    numbers = {d.name: value * d.unit for d in tier.dimensions
             if isinstance(value := tier.values.get(key_of(d)), int | float)}  # fmt: skip
    for dimension in tier.dimensions:
        name = ParameterName.parse(dimension.name)
        if (
            name.service == service
            and dimension.derived
            and {*dimension.derived.names()} <= {*numbers}
        ):
            values.setdefault(
                name.parameter, round(dimension.derived.evaluate(numbers) / dimension.unit)
            )
    return values


def _add(adopted: AdoptedTier, service: str) -> None:
    """Add the files of one service on every host."""
    tier = adopted.discovered
    dimensions = own_settings({d.name: d for d in adopted.dimensions}, f"{tier.name}.{service}")
    per_host = _of_hosts([i.services[service] for i in tier.instances], dimensions)
    for instance, of_host in zip(tier.instances, per_host, strict=True):
        running, host = instance.services[service], instance.host
        files = []
        for path, text in _templates(running, of_host.edits).items():
            template = f"{host.name}{path}.j2"
            adopted.templates[template] = text
            mode, new = host.tree.modes.get(path, 0o644), path not in host.tree.files
            files.append(ConfigFile(path, template, mode, optional=new))
        adopted.own[f"{tier.name}.{host.name}.{service}"] = Own(
            tuple(files),
            running.listen,
            running.loses,
            running.unit,
            running.config.main if running.unit else "",
        )
    first = per_host[0]
    adopted.values.update({f"{service}.{name}": value for name, value in first.values.items()})
    for name in dict.fromkeys((*dimensions, *first.left)):
        if name in first.left or name not in first.values:
            why = first.left.get(name, "these files offer no place for it")
            adopted.left[f"{service}.{name}"] = readable(why)


def _of_hosts(
    services: Sequence[RunningService], dimensions: Mapping[str, Dimension]
) -> list[Adopted]:
    """Return the tunable values of each host; hosts of a tier share settings, so they must agree."""
    tune = adoptions()[services[0].key].adopted

    def accepts(name: str, value: Value) -> bool:
        return name in dimensions and _can_start_at(dimensions[name], value)

    first = [tune(service, accepts) for service in services]
    differing = {
        name
        for name in {name for adopted in first for name in adopted.values}
        if len({(type(a.values.get(name)), a.values.get(name)) for a in first}) > 1
    }
    left = dict.fromkeys(differing, "the hosts have different values")
    unshown = {
        name for s, adopted in zip(services, first, strict=True) for name in _unshown(s, adopted)
    }
    left |= dict.fromkeys(unshown, "the text around it is masked")
    if not left:
        return first
    again = [tune(s, lambda name, v: name not in left and accepts(name, v)) for s in services]
    for adopted in again:
        adopted.left.update(left)
    return again


def _unshown(service: RunningService, adopted: Adopted) -> set[str]:
    """Return the parameters whose edits touch masked text."""
    names = set[str]()
    for edit in adopted.edits:
        understood = adoptions()[service.key].understood
        places = placeholders(service.config.texts[edit.path], understood.outliner(edit.path))
        at = bisect_right(places, edit.start, key=lambda place: place[0]) - 1
        after = at + 1 < len(places) and places[at + 1][0] < edit.end
        if after or (at >= 0 and edit.start < places[at][1] and edit.end > places[at][0]):
            names |= {name for name in adopted.values if re.search(rf"\b{name}\b", edit.text)}
    return names


def _can_start_at(dimension: Dimension, value: Value) -> bool:
    """True if a value can be the baseline of a dimension; a range can be widened for it."""
    if choices := (*dimension.choices, *dimension.parameter.choices):
        return any(value == choice and type(value) is type(choice) for choice in choices)
    if isinstance(value, bool | str) or (dimension.log and value <= 0):
        return False
    return not dimension.integer or value == int(value)


def _templates(running: RunningService, edits: Iterable[Edit]) -> dict[str, str]:
    """Return the files with tunable values, as templates that show only understood text."""
    config, understood = running.config, adoptions()[running.key].understood
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    for edit in dict.fromkeys(edits):  # a file can be included twice
        if edit.path not in pieces:
            outliner = understood.outliner(edit.path)
            pieces[edit.path] = [*placeholders(config.texts[edit.path], outliner)]
        pieces[edit.path].append((edit.start, edit.end, edit.text))
    return {path: exchanged(config.texts[path], of_file) for path, of_file in pieces.items()}
