"""What a shell offers for a word that is half typed: studies, trials, parameters and other names.

It is asked at every press of a key: nothing heavy is imported, and where there is nothing to offer (no
study yet, a file that is broken) nothing is printed, so that the shell completes files instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import typer

Offer = str | tuple[str, str]
"""A value, or one with its description."""

# Copied from modules that take a second to import; tests keep both equal.
FORMATS = ("files", "ansible", "shell", "patch", "yaml", "json")
SCHEMAS = (
    "study", "status", "check", "plan", "parameters", "explanation", "measurement", "ceilings",
    "sweep", "applied", "lab", "workload", "error",
)  # fmt: skip


def _quietly(
    offers: Callable[[typer.Context, str], Iterable[Offer]],
) -> Callable[[typer.Context, str], list[Offer]]:
    """Errors are for when the command runs, not while it is typed."""

    @wraps(offers)
    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        try:
            return list(offers(ctx, incomplete))
        except Exception:  # noqa: BLE001  # broken files break in many ways
            return []

    return complete


@_quietly
def studies(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Names of the studies there are."""
    from autotune.study.directory import names

    return names(_root(ctx))


@_quietly
def trials(ctx: typer.Context, incomplete: str) -> Iterable[Offer]:
    """Trials of the study on the command line, with phase and peak."""
    from autotune.study import journal
    from autotune.study.directory import EVENTS, find
    from autotune.study.records import replay

    state = replay(journal.read(find(_first(ctx, "study"), _root(ctx)) / EVENTS))
    yield from ("baseline", "best")
    for trial in state.finished():
        outcome = f"{trial.peak.peak:.5g}" if trial.peak else "failed"
        yield str(trial.number), f"{trial.phase}, {outcome}"


@_quietly
def targets(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """YAML files, and directories to look into."""
    typed = Path(incomplete)
    where = typed if incomplete.endswith("/") else typed.parent
    for path in sorted(where.iterdir()):
        hidden = path.name.startswith(".") and not typed.name.startswith(".")
        if path.is_dir() and not hidden:
            yield f"{path}/"
        elif path.suffix in (".yaml", ".yml"):
            yield str(path)


@_quietly
def targets_and_studies(ctx: typer.Context, incomplete: str) -> Iterable[Offer]:
    """What `restore` takes."""
    return [*studies(ctx, incomplete), *targets(ctx, incomplete)]


@_quietly
def parameters(ctx: typer.Context, incomplete: str) -> Iterator[Offer]:
    """Parameters of the target on the command line, with their meanings."""
    root = _target(Path(_first(ctx, "target")))
    _declare(root)
    written = root.get("parameters") or {}
    names = {name: "" for name in written if "command" in root}
    for name, tier in _tiers(root).items():
        names |= tier.parameters(name)
    yield from sorted(names.items())


@_quietly
def hosts(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Tiers of the target on the command line, each with `=` for numbers of hosts."""
    return [f"{name}=" for name in _tiers(_target(Path(_first(ctx, "target"))))]


@_quietly
def cache_tiers(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Tiers of caches that can be measured alone."""
    from autotune.loads.memcaslap import PROTOCOL
    from autotune.services.registry import speaks

    tiers = _tiers(_target(Path(_first(ctx, "target"))))
    return [name for name, tier in tiers.items() if speaks(tier.service, PROTOCOL)]


@_quietly
def references(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Named settings to compare with."""
    from autotune.space.dimension import NAMED

    return NAMED


@_quietly
def services(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Services of the catalogue."""
    from autotune.services.registry import APPS, SERVICES

    every = (*SERVICES.values(), *APPS.values())
    return sorted({service.name for service in every if service.parameters})


@_quietly
def formats(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Forms of an export."""
    return FORMATS


@_quietly
def schemas(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Objects that are printed as JSON."""
    return SCHEMAS


@_quietly
def examples(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Shipped targets."""
    from autotune.target.shipped import examples as shipped

    return shipped()


@dataclass(frozen=True)
class _Tier:
    """A tier as far as its parameters' names depend on it (`target.model.Tier` takes pydantic)."""

    service: tuple[str, ...]
    installed: bool
    isolated: bool
    app: str | None
    local_cache: bool

    def parameters(self, name: str) -> dict[str, str]:
        """Full names, with what each is for."""
        from autotune.services.registry import choice_of, placed

        names = {choice_of(name): "service to run"} if len(self.service) > 1 else {}
        for place in placed(name, self):
            for parameter in place.service.parameters:
                if parameter.roles is None or place.role in parameter.roles:
                    names[f"{name}.{place.service.name}.{parameter.name}"] = parameter.meaning
        return names


def _tiers(root: Mapping[str, Any]) -> dict[str, _Tier]:
    from autotune.target import runtimes

    tiers = {}
    for name, tier in (root.get("tiers") or {}).items():
        services, runtime = tier["service"], tier.get("runtime", runtimes.DEFAULT)
        tiers[name] = _Tier(
            (services,) if isinstance(services, str) else tuple(services),
            runtimes.is_installed(runtime),
            runtimes.is_isolated(runtime),
            tier.get("app"),
            bool(tier.get("local_cache")),
        )
    return tiers


def _declare(root: Mapping[str, Any]) -> None:
    """The services of the target itself; reading them takes pydantic."""
    if specs := root.get("services"):
        from autotune.services.registry import declare
        from autotune.target.service import ServiceSpec

        declare({name: ServiceSpec.model_validate(spec) for name, spec in specs.items()})


def _target(path: Path) -> Mapping[str, Any]:
    """The values in a target file, or in the target of a sweep file."""
    from autotune.target.document import load

    root = load(path).root
    if isinstance(root.get("target"), str):
        return load(path.parent / root["target"]).root
    return root


def _first(ctx: typer.Context, name: str) -> str:
    """The argument called ``name``, which comes before all others of its command."""
    # If an option lacks its value, parsing ends before words are assigned to arguments.
    return str(ctx.params.get(name) or ctx.args[0])


def _root(ctx: typer.Context) -> Path:
    from autotune.study.directory import ROOT

    return Path(ctx.params.get("studies") or ROOT)
