"""Read and validate target files. Each error contains the position of the mistake in the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from autotune.errors import TargetError, TargetErrorCollector
from autotune.target.beds import build_bed_target
from autotune.target.consistency_checks import find_mistakes
from autotune.target.declared_service import ServiceSpec, find_user_files
from autotune.target.field_types import (
    ADDRESS_PATTERN,
    PATTERN_DESCRIPTIONS,
    USER_PATTERN,
    TargetModel,
)
from autotune.target.key_hints import (
    compute_similarity,
    find_key_hint,
    find_other_key_hint,
    list_keys_at,
)
from autotune.target.messages import find_nearest_name, format_value
from autotune.target.model import Bed, Host, Load, Ssh, Target, Tier
from autotune.target.other_files import reject_other_file
from autotune.target.overrides import Override, apply_overrides
from autotune.target.path_hints import find_format_hint
from autotune.target.runtimes import DEFAULT_RUNTIME, RUNTIME_NAMES
from autotune.target.split_numbers import find_split_numbers, suggest_joined_numbers
from autotune.target.value_hints import (
    LOGIN_HINT,
    NAME_EXAMPLE,
    find_last_key,
    select_hint,
)
from autotune.target.yaml_document import Location, YamlDocument, load_yaml

SECRET_KEY_PATTERN = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|credential|identity|^(api_?|private_?|ssh_?)?key(_?file)?$"
)
MISSING_KEY_EXAMPLES = {
    "requests": "requests: [{path: /}]",
    "path": "path: /",
    "name": NAME_EXAMPLE,
    "hosts": "hosts: web1",
    "service": "service: nginx",
    "meaning": "meaning: Concurrent connections.",
    "default": "default: 100",
    "role": "role: proxy",
    "port": "port: 8080",
    "unit": "unit: shop.service",
    "files": "files: {/etc/shop.conf: {}}",
    "project.files": "files: /srv/shop/compose.yaml",
    "parameters": "parameters: {threads: {meaning: …, default: 4, range: [1, 16]}}",
    "command": "command: [shopctl, stats]",
    "values": "values: {threads: '^threads: ([0-9]+)$'}",
}
# Keys that occur only in entries of a section.
ENTRY_KEYS: Mapping[str, Set[str]] = {
    "tiers": {"service"},
    "hosts": {"address"},
    "parameters": {"range", "choices", "fixed", "drop"},
}
# Pattern in an unknown key, hint. The first match is used.
NAME_HINTS = (
    ("\xa0", r"replace the no-break space (\xa0) with a plain space"),
    (":", "add a space after the ':'"),
    ("^x-", "define an anchor at its first use: `web1: &common {…}`, then `<<: *common`"),
)

# Messages by type of error. {got} is the received value.
ERROR_TYPE_TEXTS = {
    "int_type": "{got} is not a whole number",
    "int_from_float": "{got} is not a whole number",
    "float_type": "{got} is not a number",
    "finite_number": "{got} is not a usable number",
    "bool_type": "must be true or false, not {got}",
    "string_type": "{got} is not text",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "too_long": "needs {max_length} values, not {actual_length}",
    "literal_error": "must be {expected}, not {got}",
    "greater_than": "must be above {gt}, not {got}",
    "greater_than_equal": "must be at least {ge}, not {got}",
    "less_than": "must be below {lt}, not {got}",
    "less_than_equal": "must be at most {le}, not {got}",
    "dict_type": "must be a mapping, not {got}",
    "model_type": "must be a mapping, not {got}",
    "tuple_type": "must be a list, not {got}",
    "missing": "is missing",
    "finding": "{message}",
}


TARGET_FILE_NAME = "target.yaml"  # name of the target file in a study's directory
Kind = TypeVar("Kind", bound=TargetModel)


@dataclass(frozen=True)
class TargetFile:
    """A valid target with its document, which contains the positions for later errors."""

    target: Target
    document: YamlDocument
    overrides: tuple[Override, ...] = ()
    """Options of a run that override values in the file."""
    adopted: Mapping[str, Any] | None = None
    """Values read from the hosts' files at the start of the study. Default: read them now."""
    idle_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hosts of each tier that a sweep does not use at the moment. ``target`` does not contain them."""

    @property
    def path(self) -> Path:
        return self.document.path

    @property
    def directory(self) -> Path:
        """Directory of the files that the target names. A link to a target is followed, because studies
        record the path of the file itself.
        """
        return self.path.resolve().parent

    def for_bed(self, bed_name: str) -> TargetFile:
        """Return the target file with the hosts of a test bed. Errors still refer to this file."""
        return replace(self, target=build_bed_target(self.target, bed_name))


def read_target(path: Path, overrides: Iterable[Override] = ()) -> TargetFile:
    """Read and check a target file, with overrides from options.

    Raises TargetError with ``file:line:column`` for the first mistake; its ``others`` are all other
    mistakes. If a name is misspelt, the hint contains the nearest known name.
    """
    overrides, document = tuple(overrides), load_document(path)
    reject_other_file(document)
    return _check_target(apply_overrides(document, overrides), overrides)


def load_document(path: Path, *, foreign: bool = False) -> YamlDocument:
    """Return the content of a target or of a sweep file. Raises TargetError, whose hint names the command
    for files of other known formats. For ``foreign``, see ``load_yaml``.
    """
    try:
        return load_yaml(path, foreign=foreign)
    except TargetError as error:
        # Path.is_file raises an error for a name that is too long.
        if os.path.isfile(path):  # noqa: PTH113
            error.hint = find_format_hint(path) or error.hint
        raise


def _check_target(document: YamlDocument, overrides: tuple[Override, ...]) -> TargetFile:
    target = _add_user_services(validate_document(document, Target))
    mistakes = TargetErrorCollector()
    for mistake in (*find_mistakes(target), *find_split_numbers(document)):
        with mistakes.collect():
            raise document.build_error(mistake.location, mistake.message, hint=mistake.hint)
    mistakes.raise_all()
    return TargetFile(target, document, overrides)


def read_recorded_target(study: Path) -> TargetFile:
    """Return the target that a study recorded in its directory ``study``. Other users may have
    written the file.

    Raises the errors of ``read_target``, or ForeignFileError if the target is not a regular file in
    ``study``.
    """
    try:
        return _check_target(load_yaml(study / TARGET_FILE_NAME, foreign=True), ())
    except TargetError as error:
        error.hint = error.hint or "the study is damaged: restore its target.yaml from a copy"
        raise


def _add_user_services(target: Target) -> Target:
    """Return the target with the services from the user's files that its tiers use. Raises
    TargetError.
    """
    service_names = {name for tier in target.tiers.values() for name in tier.service} - {
        *target.services
    }
    paths_by_service = {
        name: path for name, path in find_user_files().items() if name in service_names
    }
    user_services = {
        name: validate_document(load_yaml(path), ServiceSpec)
        for name, path in paths_by_service.items()
    }
    return (
        target.model_copy(update={"services": {**target.services, **user_services}})
        if user_services
        else target
    )


def read_user_services() -> dict[str, ServiceSpec]:
    """Return every service declared in the user's own files. Raises TargetError."""
    return {
        name: validate_document(load_yaml(path), ServiceSpec)
        for name, path in find_user_files().items()
    }


def read_addresses(path: Path, *, foreign: bool = False) -> TargetFile:
    """Return a target with the keys that are needed to reach its hosts. All other keys may be invalid.

    Raises the errors of ``read_target`` if needed keys are invalid. For ``foreign``, see
    ``load_yaml``.
    """
    document = load_document(path, foreign=foreign)
    reject_other_file(document)
    try:
        return _check_target(document, ())
    except TargetError as error:
        try:
            return TargetFile(_build_address_target(document.root), document)
        # pydantic's ValidationError is a ValueError.
        except (AttributeError, KeyError, TypeError, ValueError):
            raise error from None


def _build_address_target(root: Mapping[str, Any]) -> Target:
    def parse_known_keys(model: type[TargetModel], keys: Mapping[str, Any]) -> Any:
        return model.model_validate({k: keys[k] for k in keys if k in model.model_fields})

    def build_tier(keys: Mapping[str, Any]) -> Tier:
        runtime_name = keys.get("runtime", DEFAULT_RUNTIME)
        runtime = runtime_name if runtime_name in RUNTIME_NAMES else DEFAULT_RUNTIME
        return Tier.model_construct(hosts=_as_tuple(keys["hosts"]), runtime=runtime)

    tiers = {} if "simulated" in root else root.get("tiers", {})
    hosts = {name: parse_known_keys(Host, keys) for name, keys in root.get("hosts", {}).items()}
    beds = {
        name: Bed.model_construct(
            hosts={h: parse_known_keys(Host, k) for h, k in bed.get("hosts", {}).items()}
        )
        for name, bed in root.get("beds", {}).items()
    }
    load_hosts = [
        host for host in _as_tuple(root.get("load", {}).get("hosts", [])) if host in hosts
    ]
    return Target.model_construct(
        name=str(root["name"]),
        hosts=hosts,
        ssh=parse_known_keys(Ssh, root.get("ssh", {})),
        tiers={name: build_tier(keys) for name, keys in tiers.items()},
        load=Load.model_construct(hosts=tuple(load_hosts)),
        beds=beds,
    )


def _as_tuple(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def validate_document(document: YamlDocument, model: type[Kind]) -> Kind:
    """Return the validated values of a document. Raises TargetError with all mistakes."""
    try:
        return model.model_validate(document.root)
    except ValidationError as error:
        mistakes = TargetErrorCollector()
        for problem in _select_distinct_problems(document, error.errors()):
            with mistakes.collect():
                raise _build_error(document, problem, model) from None
        mistakes.raise_all()
        raise


def _select_distinct_problems(
    document: YamlDocument, problems: list[ErrorDetails]
) -> Iterable[ErrorDetails]:
    """Return one problem per position.

    A missing key may be present under a misspelt name. Only the misspelt name is then reported.
    """
    misspelt_locations = {p["loc"][:-1] for p in problems if p["type"] == "extra_forbidden"}
    distinct_problems = [
        p for p in problems if p["type"] != "missing" or p["loc"][:-1] not in misspelt_locations
    ]
    return {document.find_position(p["loc"]): p for p in reversed(distinct_problems)}.values()


def _build_error(
    document: YamlDocument, problem: ErrorDetails, model: type[TargetModel]
) -> TargetError:
    location = _find_location(document, problem)
    if problem["type"] == "extra_forbidden":
        return _build_unknown_key_error(document, location, model)
    if problem["type"] == "missing":
        return _build_missing_key_error(document, location)
    message, key = _format_problem(problem), find_last_key(location)
    if key and not message.startswith((f"{key}:", f"{key} ", f"'{key}'")):
        message = f"{key}: {message}"
    hint = _find_comma_hint(document, location) or select_hint(problem, location, model)
    return document.build_error(location, message, hint=hint)


def _find_comma_hint(document: YamlDocument, location: Location) -> str | None:
    """Return the hint for a list with commas in its numbers, which cause the problem at ``location``."""
    *parents, last_step = location or [""]
    if isinstance(last_step, int):
        return suggest_joined_numbers(document, parents)
    key = "choices" if last_step == "default" else last_step
    return suggest_joined_numbers(document, [*parents, key])


def _find_location(document: YamlDocument, problem: ErrorDetails) -> list[str | int]:
    """Return the location of a problem in the document, without pydantic's additional steps."""
    *location_steps, last_step = [step for step in problem["loc"] if step != "[key]"] or [""]
    location: list[str | int] = []
    value: Any = document.root
    for step in location_steps:
        if _contains_step(value, step):
            value = value[step]
            location.append(step)
    is_named = problem["type"] in ("missing", "extra_forbidden")
    return [*location, last_step] if is_named or _contains_step(value, last_step) else location


def _contains_step(value: Any, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value


def _build_unknown_key_error(
    document: YamlDocument, location: Location, model: type[TargetModel]
) -> TargetError:
    unknown_key = str(location[-1])
    is_known_elsewhere = find_other_key_hint(location) is not None
    if SECRET_KEY_PATTERN.search(unknown_key.lower()) and not is_known_elsewhere:
        return document.build_error(
            location, f"{unknown_key!r} does not belong in a target", hint=LOGIN_HINT
        )
    valid_keys = list_keys_at(location[:-1], model)
    if hint := _find_key_hint(document, location, unknown_key, valid_keys):
        return document.build_error(location, f"unknown key {unknown_key!r}", hint=hint)
    return document.unknown_name_error(location, "key", valid_keys)


def _find_key_hint(
    document: YamlDocument, location: Location, name: str, valid_keys: list[str]
) -> str | None:
    """Return the hint for an unknown key; ``None`` if the nearest valid key is the best hint."""
    for pattern, hint in NAME_HINTS:
        if re.search(pattern, name):
            return hint
    located_value = document.get_value(location)
    if located_value is None and " " in name:
        written_key, _, text_after_key = name.partition(" ")
        return f"write a colon after the key, `{written_key}: {text_after_key.strip()}`"
    entry_hint = _find_section_hint(location, located_value) or find_other_key_hint(location)
    if entry_hint is not None:
        return entry_hint
    is_near = find_nearest_name(name, valid_keys) is not None
    is_misspelt = (
        is_near and compute_similarity(name, str(find_nearest_name(name, valid_keys))) > 0.8
    )
    if (
        not is_misspelt
        and located_value is None
        and document.find_text_before(location)[-1:] == ","
    ):
        return "a ',' ends a value: write numbers without it, and lists in brackets, `[a, b]`"
    if not is_near and location[0] == "parameters" and isinstance(located_value, dict):
        return f"a parameter's name is one word: `{location[1]}.{name}.PARAMETER: {{fixed: VALUE}}`"
    return find_key_hint(location, valid_keys)


def _find_section_hint(location: Location, located_value: object) -> str | None:
    """Return the hint for a top-level key that is probably an entry of a section."""
    if len(location) == 1 and isinstance(located_value, dict):
        for section, entry_keys in ENTRY_KEYS.items():
            if entry_keys & located_value.keys():
                return f"if it belongs to `{section}:`, indent it below that key"
    return None


def _build_missing_key_error(document: YamlDocument, location: Location) -> TargetError:
    key = location[-1]
    if isinstance(key, int):
        hint = (
            "`range: [LOWEST, HIGHEST]`, with a ',' between"
            if find_last_key(location) == "range"
            else None
        )
        return document.build_error(
            location, f"{find_last_key(location)}: a value is missing", hint=hint
        )
    example = MISSING_KEY_EXAMPLES.get(f"{location[0]}.{key}") or MISSING_KEY_EXAMPLES[key]
    return document.build_error(location[:-1], f"{key!r} is missing", hint=f"such as `{example}`")


def _format_problem(problem: ErrorDetails) -> str:
    problem_context, value = problem.get("ctx", {}), problem["input"]
    if problem["type"] == "value_error":
        return str(problem_context["error"])
    if problem["type"] == "string_pattern_mismatch":
        is_login = problem_context["pattern"] in (ADDRESS_PATTERN, USER_PATTERN)
        # A password, as in `root:hunter2@web1`, must be neither shown nor logged.
        is_secret = "@" in value or (is_login and ":" in value)
        value_text = "this" if is_secret else format_value(value)
        return f"{value_text} is not {PATTERN_DESCRIPTIONS[problem_context['pattern']]}"
    if problem["type"] == "too_short" and problem_context["min_length"] > 1:
        return f"needs at least {problem_context['min_length']} entries"
    template = ERROR_TYPE_TEXTS.get(problem["type"], "{got} is not valid here")
    written_bounds = {key: _write_whole_number(bound) for key, bound in problem_context.items()}
    return template.format(**{"got": format_value(value), **written_bounds})


def _write_whole_number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
