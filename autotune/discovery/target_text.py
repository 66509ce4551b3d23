"""The target file of a discovered stack, as a person would write it: every line explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.discovery.adoption import AdoptedTier
from autotune.discovery.host_reading import DiscoveredHost
from autotune.services.base import Value
from autotune.space.dimension import Dimension


@dataclass(frozen=True)
class Stack:
    """All that the file says. ``path`` is what load is sent to; ``notes`` go to its top."""

    name: str
    hosts: Sequence[DiscoveredHost]
    tiers: Sequence[AdoptedTier]
    path: str
    templates: str
    ssh_config: str | None = None
    notes: Sequence[str] = ()


def text(stack: Stack) -> str:
    """YAML with comments."""
    return "\n".join([*_top(stack), "", *_hosts(stack), "", *_tiers(stack), "",
                      *_parameters(stack), "", *_load(stack)]) + "\n"  # fmt: skip


def _top(stack: Stack) -> Iterator[str]:
    yield f"# Adopted from {', '.join(host.address for host in stack.hosts)}."
    yield f"# Their own files are templates in {stack.templates}, with variables where there is something"
    yield "# to tune: with the baseline below they come out byte for byte as they were found."
    for note in stack.notes:
        yield f"# Not adopted: {note}"
    yield f"name: {stack.name}"
    yield ""
    yield "# What has to hold while the throughput is raised: set it to what your users need."
    yield "slo: {p99: 50ms, errors: 0.1%}"


def _hosts(stack: Stack) -> Iterator[str]:
    yield "hosts:"
    for host in stack.hosts:
        size = f"{host.facts.cpus:g} CPUs, {host.facts.memory // 2**20} MB"
        keys = {"address": quoted(host.address)}
        if host.user:
            keys["user"] = quoted(host.user)
        if host.port:
            keys["port"] = str(host.port)
        yield f"  # {', '.join([size, *host.versions])}"
        yield f"  {host.name}: {_flow(keys)}"
    if stack.ssh_config:
        yield ""
        yield f"ssh: {_flow({'config': quoted(stack.ssh_config)})}"


def _tiers(stack: Stack) -> Iterator[str]:
    yield "tiers:"
    for tier in stack.tiers:
        discovered = tier.discovered
        for other in discovered.assumed:
            yield f"  # No file of {discovered.name} speaks of {other}: that it uses it is a guess."
        yield f"  {discovered.name}:"
        yield f"    hosts: [{', '.join(instance.host.name for instance in discovered.instances)}]"
        yield f"    service: {discovered.deployment}"
        yield f"    port: {discovered.port}"
        if discovered.forwards_to:
            yield f"    forwards_to: {discovered.forwards_to}"
        if discovered.uses:
            yield f"    uses: [{', '.join(discovered.uses)}]"
        yield f"    templates: {quoted(stack.templates)}"


def _parameters(stack: Stack) -> Iterator[str]:
    yield "# Each baseline (`default`) is what the files say now, or what the software takes where they"
    yield "# say nothing. Kernel settings are tuned too, from the values that the hosts have; to leave"
    yield "# a parameter alone give it `{drop: true}`. `autotune params` has the whole catalogue."
    yield "parameters:"
    for tier in stack.tiers:
        left: dict[str, list[str]] = {}
        for dimension in tier.dimensions:
            key = dimension.name.partition(".")[2]
            if dimension.derived is not None:
                continue
            if key in tier.values:
                yield _tuned(dimension, tier.values[key])
            if key in tier.left:
                left.setdefault(tier.left[key], []).append(dimension.name)
        for why, names in left.items():
            yield f"  # Not tuned, as {why}:"
            yield from (f"  {name}: {{drop: true}}" for name in names)


def _tuned(dimension: Dimension, value: Value) -> str:
    if dimension.choices:
        keys = {"choices": f"[{', '.join(map(scalar, dimension.choices))}]"}
    else:
        assert isinstance(value, int | float)
        low, high = dimension.bounds
        keys = {"range": f"[{scalar(min(low, value))}, {scalar(max(high, value))}]"}
    unit = dimension.parameter.unit
    counted = f" ({unit})" if unit else ""
    line = f"  {dimension.name}: {_flow({**keys, 'default': scalar(value)})}"
    return f"  # {dimension.parameter.meaning}{counted}\n{line}"


def _load(stack: Stack) -> Iterator[str]:
    yield "# Sent from this machine unless `hosts:` names others, and only to the first tier. `path` is"
    yield "# asked of whatever answers to the bare address there. No more than max_rate is ever offered."
    yield f"load: {{generator: httperf, path: {quoted(stack.path)}, max_rate: 5000/s}}"
    yield "budget: {trials: 40, time: 45m}"


def _flow(keys: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def scalar(value: Value) -> str:
    """A value in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else f"{value}"


def quoted(word: str) -> str:
    """Text in YAML: in quotes unless it is plainly a word."""
    plain = word.replace("_", "a").replace("-", "a").replace("+", "a")
    special = word.lower() in ("on", "off", "yes", "no", "true", "false", "null", "y", "n")
    if plain.isalnum() and word[0].isalpha() and not special:
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
