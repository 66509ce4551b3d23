"""Shell completion of the names of studies, trials, parameters and other objects.

Completion must be fast, so this module does not import slow modules. Without candidates (no study yet,
an invalid file), completion prints nothing, and the shell completes file names instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from autotune.terminal import make_printable

if TYPE_CHECKING:
    from autotune.services.registry import Catalogue

Completion = str | tuple[str, str]
"""A candidate for completion, optionally with its description."""

# Zsh evaluates descriptions in double quotes, and a backslash can cancel the escapes that Typer adds.
# Typer reads `[` as the start of Rich markup, and fails if the markup is invalid.
_UNSAFE_CHARACTER_PATTERN = re.compile(r"""[\\"`$\[]""")

# Copies of names from modules that take a second to import. A test compares the copies.
PLAIN_CHARACTERS = "@%+=:,./_-"  # as in `shlex.quote`
EXPORT_FORMATS = ("files", "ansible", "shell", "patch", "yaml", "json")
SCHEMA_NAMES = (
    "study", "status", "check", "plan", "parameters", "explanation", "measurement", "ceilings",
    "sweep", "applied", "initialized", "diff", "exported", "restored", "lab", "workload", "error",
    "target",
)  # fmt: skip


def _ignore_errors(
    complete_words: Callable[[typer.Context, str], Iterable[Completion]],
) -> Callable[[typer.Context, str], list[Completion]]:
    """Return a completion function that ignores errors, because the command reports them when it
    runs.
    """

    @wraps(complete_words)
    def complete(ctx: typer.Context, incomplete: str) -> list[Completion]:
        try:
            candidates = filter(_is_plain_word, complete_words(ctx, incomplete))
            return list(map(_clean_description, candidates))
        except Exception:  # noqa: BLE001  # damaged files raise many kinds of errors
            return []

    return complete


def _is_plain_word(completion: Completion) -> bool:
    """True if no shell would expand the word. Shells insert a completed word without quotes, and the
    names of directories may come from someone else.
    """
    word = completion if isinstance(completion, str) else completion[0]
    return not word.startswith("-") and all(c.isalnum() or c in PLAIN_CHARACTERS for c in word)


def _clean_description(completion: Completion) -> Completion:
    """Return a candidate whose description contains no characters that a shell or Typer interprets.

    Descriptions of parameters may come from someone else's target.
    """
    if isinstance(completion, str):
        return completion
    word, description = completion
    return word, make_printable(_UNSAFE_CHARACTER_PATTERN.sub("", description))


@_ignore_errors
def complete_studies(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the names of the studies."""
    from autotune.study.directory import list_study_names

    return list_study_names(_find_studies_directory(ctx))


@_ignore_errors
def complete_trials(ctx: typer.Context, incomplete: str) -> Iterable[Completion]:
    """Yield the trials of the study on the command line, with phase and peak."""
    from autotune.study import journal
    from autotune.study.directory import EVENTS_FILE, find_study
    from autotune.study.state_replay import replay_records

    state = replay_records(
        journal.read_records(
            find_study(_read_argument(ctx, "study"), _find_studies_directory(ctx)) / EVENTS_FILE
        )
    )
    yield from ("baseline", "best")
    for trial in state.list_finished_trials():
        outcome = f"{trial.peak.peak:.5g}" if trial.peak else "failed"
        yield str(trial.number), f"{trial.phase}, {outcome}"


@_ignore_errors
def complete_targets(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Yield YAML files and directories whose names complete ``incomplete``."""
    path_prefix = Path(incomplete)
    directory = path_prefix if incomplete.endswith("/") else path_prefix.parent
    for path in sorted(directory.iterdir()):
        is_hidden = path.name.startswith(".") and not path_prefix.name.startswith(".")
        if path.is_dir() and not is_hidden:
            yield f"{path}/"
        elif path.suffix in (".yaml", ".yml"):
            yield str(path)


@_ignore_errors
def complete_targets_and_studies(ctx: typer.Context, incomplete: str) -> Iterable[Completion]:
    """Return targets and studies, the possible arguments of `autotune restore`."""
    return [*complete_studies(ctx, incomplete), *complete_targets(ctx, incomplete)]


@_ignore_errors
def complete_parameters(ctx: typer.Context, incomplete: str) -> Iterator[Completion]:
    """Yield the parameters of the target on the command line, with their descriptions."""
    target_values = _read_target_values(Path(_read_argument(ctx, "target")))
    catalogue = _read_catalogue(target_values)
    rules = target_values.get("parameters") or {}
    descriptions_by_name = {tier_name: "" for tier_name in rules if "command" in target_values}
    for tier_name, tier in _parse_tiers(target_values).items():
        descriptions_by_name |= tier.list_parameters(tier_name, catalogue)
    yield from sorted(descriptions_by_name.items())


@_ignore_errors
def complete_host_tiers(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the tiers of the target on the command line, each with `=`, such as `web=`."""
    return [
        f"{name}="
        for name in _parse_tiers(_read_target_values(Path(_read_argument(ctx, "target"))))
    ]


@_ignore_errors
def complete_cache_tiers(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the cache tiers whose ceiling `measure --tier` can measure."""
    from autotune.loads.memcaslap import CACHE_PROTOCOL

    target_values = _read_target_values(Path(_read_argument(ctx, "target")))
    catalogue = _read_catalogue(target_values)
    return [
        name
        for name, tier in _parse_tiers(target_values).items()
        if catalogue.any_speaks_protocol(tier.service, CACHE_PROTOCOL)
    ]


@_ignore_errors
def complete_references(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the names of configurations with which `measure --against` can compare."""
    from autotune.space.dimension import NAMED_SETTINGS

    return NAMED_SETTINGS


@_ignore_errors
def complete_services(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the names of the services in the catalogue."""
    from autotune.services.registry import SHIPPED

    services = (*SHIPPED.deployable.values(), *SHIPPED.applications.values())
    return sorted({service.name for service in services if service.parameters})


@_ignore_errors
def complete_formats(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the formats of `autotune export`."""
    return EXPORT_FORMATS


@_ignore_errors
def complete_schemas(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the names of the JSON schemas."""
    return SCHEMA_NAMES


@_ignore_errors
def complete_examples(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Return the names of the example targets."""
    from autotune.target.shipped_files import list_examples

    return list_examples()


@dataclass(frozen=True)
class _CompletionTier:
    """The properties of a tier on which the names of its parameters depend.

    `target.model.Tier` is not used, because it would import pydantic.
    """

    service: tuple[str, ...]
    installed: bool
    isolated: bool
    app: str | None
    local_cache: bool

    def list_parameters(self, tier_name: str, catalogue: Catalogue) -> dict[str, str]:
        """Return the full names of the tier's parameters, with their descriptions."""
        from autotune.services.registry import choice_name

        descriptions_by_name = (
            {choice_name(tier_name): "service to run"} if len(self.service) > 1 else {}
        )
        for location in catalogue.list_tier_services(tier_name, self):
            for parameter in location.service.parameters:
                if parameter.roles is None or location.role in parameter.roles:
                    descriptions_by_name[
                        f"{tier_name}.{location.service.name}.{parameter.name}"
                    ] = parameter.meaning
        return descriptions_by_name


def _parse_tiers(target_values: Mapping[str, Any]) -> dict[str, _CompletionTier]:
    from autotune.target import runtimes

    tiers = {}
    for tier_name, tier in (target_values.get("tiers") or {}).items():
        services, runtime = tier["service"], tier.get("runtime", runtimes.DEFAULT_RUNTIME)
        tiers[tier_name] = _CompletionTier(
            (services,) if isinstance(services, str) else tuple(services),
            runtimes.RUNTIMES[runtime].installed,
            runtimes.RUNTIMES[runtime].isolated,
            tier.get("app"),
            bool(tier.get("local_cache")),
        )
    return tiers


def _read_catalogue(target_values: Mapping[str, Any]) -> Catalogue:
    """Return the catalogue of the target. If the target declares services, pydantic is imported."""
    from autotune.services.registry import SHIPPED, extend_catalogue

    specs = target_values.get("services")
    if not specs:
        return SHIPPED
    from autotune.target.declared_service import ServiceSpec

    return extend_catalogue(
        {name: ServiceSpec.model_validate(spec) for name, spec in specs.items()}
    )


def _read_target_values(path: Path) -> Mapping[str, Any]:
    """Return the values in a target file, or in the target of a sweep file."""
    from autotune.target.yaml_document import load_yaml

    target_values = load_yaml(path).root
    if isinstance(target_values.get("target"), str):
        return load_yaml(path.parent / target_values["target"]).root
    return target_values


def _read_argument(ctx: typer.Context, argument_name: str) -> str:
    """Return the value of the argument ``argument_name``, which must be the command's first argument."""
    # If the value of an option is missing, parsing stops before words are assigned to arguments.
    return str(ctx.params.get(argument_name) or ctx.args[0])


def _find_studies_directory(ctx: typer.Context) -> Path:
    from autotune.study_argument import STUDIES_DIRECTORY

    return Path(ctx.params.get("studies") or STUDIES_DIRECTORY)
