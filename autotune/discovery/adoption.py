"""The tiers that were found made tunable: templates, baselines, and what stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.discovery.instances import Instance
from autotune.discovery.template import exchanged
from autotune.discovery.tiers import DiscoveredTier
from autotune.services.adoption import RunningService
from autotune.services.base import ConfigFile, Own, Value
from autotune.services.config_files import Config
from autotune.services.directives import Accepts, Adopted, Edit
from autotune.services.placement import placed
from autotune.services.registry import adoptions
from autotune.space.catalogue import of_tier
from autotune.space.dimension import Dimension
from autotune.space.facts import smallest
from autotune.target.model import Tier


@dataclass(frozen=True)
class AdoptedTier:
    """``templates`` by path below their directory; ``own`` by the names of parts.

    ``values`` is the baseline and ``left`` why a parameter is not tuned, both by ``SERVICE.NAME``.
    """

    found: DiscoveredTier
    dimensions: tuple[Dimension, ...]
    templates: Mapping[str, str]
    own: Mapping[str, Own]
    values: Mapping[str, Value]
    left: Mapping[str, str]


def adopt(tier: DiscoveredTier) -> AdoptedTier:
    """Variables in the files of every host of a tier, where the hosts have the same values."""
    hosts = tuple(instance.host.name for instance in tier.instances)
    model = Tier(hosts=hosts, service=(tier.deployment,))
    facts = smallest(instance.host.facts for instance in tier.instances)
    dimensions = tuple(of_tier(tier.name, model, facts))
    templates: dict[str, str] = {}
    own: dict[str, Own] = {}
    values: dict[str, Value] = {}
    left: dict[str, str] = {}
    for place in placed(tier.name, model):
        service = place.service.name
        if place.service.per_deployment:
            # What units may open is theirs: a drop-in would be a file that was not there.
            own |= {f"{tier.name}.{host}.{service}": Own() for host in hosts}
            left |= {f"{service}.{p.name}": "units keep theirs" for p in place.service.parameters}
        if service not in tier.instances[0].configs:
            continue
        prefix = f"{tier.name}.{service}."
        known = {d.name.removeprefix(prefix): d for d in dimensions if d.name.startswith(prefix)}
        made = _of_hosts(tier.instances, service, known)
        for instance, tuned in zip(tier.instances, made, strict=True):
            texts = _templates(instance.configs[service], tuned.edits)
            named = {path: f"{instance.host.name}{path}.j2" for path in texts}
            templates |= {named[path]: text for path, text in texts.items()}
            modes = instance.host.tree.modes
            files = tuple(
                ConfigFile(path, template, modes.get(path, 0o644))
                for path, template in named.items()
            )
            part = f"{tier.name}.{instance.host.name}.{service}"
            own[part] = Own(files, instance.services[service].listen)
        values |= {f"{service}.{name}": value for name, value in made[0].values.items()}
        left |= {f"{service}.{name}": why for name, why in made[0].left.items()}
        left |= {f"{service}.{name}": "it has no place in these files" for name in known
                 if f"{service}.{name}" not in (*values, *left)}  # fmt: skip
    return AdoptedTier(tier, dimensions, templates, own, values, left)


def _of_hosts(
    instances: Iterable[Instance],
    service: str,
    known: Mapping[str, Dimension],
) -> list[Adopted]:
    """What is tuned on each host; hosts of a tier share their settings, so they must agree now."""

    def all_of(accepts: Accepts) -> list[Adopted]:
        return [_tune(instance.services[service], accepts) for instance in instances]

    accepts = _accepting(known)
    first = all_of(accepts)
    differing = {
        name
        for name in {name for made in first for name in made.values}
        if len({(type(made.values.get(name)), made.values.get(name)) for made in first}) > 1
    }
    if not differing:
        return first
    agreed = all_of(lambda name, value: name not in differing and accepts(name, value))
    for made in agreed:
        made.left.update(dict.fromkeys(differing, "the hosts have different values"))
    return agreed


def _tune(service: RunningService, accepts: Accepts) -> Adopted:
    return adoptions()[service.key].tune(service, accepts)


def _accepting(known: Mapping[str, Dimension]) -> Accepts:
    """Whether a value can be the baseline of a dimension; ranges can be widened to hold it."""

    def accepts(name: str, value: Value) -> bool:
        dimension = known.get(name)
        if dimension is None:
            return False
        if dimension.choices:
            return any(value == one and type(value) is type(one) for one in dimension.choices)
        if isinstance(value, bool | str) or (dimension.log and value <= 0):
            return False
        return not dimension.integer or value == int(value)

    return accepts


def _templates(config: Config, edits: Iterable[Edit]) -> dict[str, str]:
    """The files that have something to tune, made into templates."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    for edit in dict.fromkeys(edits):  # a file that is included twice is still one
        found.setdefault(edit.path, []).append((edit.start, edit.end, edit.text))
    return {path: exchanged(config.texts[path], pieces) for path, pieces in found.items()}
