"""Hosts under a trial, derived from the target and its services.

A study may come from someone else, and an export becomes commands for root. Its records supply the
contents of files, the settings, and what hosts had before. Paths, modes, units and commands are those
of the services; a record that disagrees with them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import product
from pathlib import PurePosixPath
from typing import Any

from autotune.deploy import manifest
from autotune.deploy import stack as stacks
from autotune.deploy.deployed import HostManifest, HostRecord, Original, host_manifest
from autotune.deploy.desired_state import DesiredState, desired_state, render
from autotune.deploy.stack import Part, Stack, StackContext
from autotune.discovery import in_place
from autotune.environments.stack import overrides
from autotune.errors import RenderError
from autotune.export.refusal import RENDERED, Refused
from autotune.report.studies import Study
from autotune.services import unit_environment, unit_files
from autotune.services.base import Own, Settings, config_files
from autotune.services.registry import adoptions, placed
from autotune.space.facts import HostFacts
from autotune.study.records import Trial
from autotune.target.beds import of_bed
from autotune.target.fields import FILE, UNIT
from autotune.target.model import Target
from autotune.target.read import read
from autotune.target.runtimes import runtime_module

PROGRAMS = ("/usr/sbin/", "/usr/bin/", "/usr/local/sbin/", "/usr/local/bin/", "/sbin/", "/bin/", "")
ACCOUNT = ("www-data", "www-data")
ANY_HOST = HostFacts(cpus=1.0, memory=2**30)  # it decides on values, not on names
# What a unit's file may hold that is not derived: limits, and variables without paths.
_WITHOUT_COMMANDS = re.compile(
    r"""|\[Service\]|[#;].*|LimitNOFILE=[0-9:]+"""
    r"""|Environment=("?)[A-Z][A-Z0-9_]*=[\w .=,+-]*\1|([A-Z][A-Z0-9_]*=[\w.=,+-]*)"""
)
_LOADER = re.compile(r"\bLD_")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class DerivedHosts:
    """``manifests`` by host; ``contents`` by tier, host and path."""

    manifests: Mapping[str, HostManifest]
    contents: Mapping[tuple[str, str, str], bytes]


def record_of(study: Study, host: str, record: Mapping[str, Any]) -> HostRecord:
    """The typed record of a host. Raises AutotuneError for any other content."""
    try:
        original = record["original"]
        _check_keys(record, HostRecord)
        _check_keys(original, Original)
        before = Original(
            {str(path): _digest(value) for path, value in original["files"].items()},
            _units(original["units"]),
            _texts(original["sysctls"]),
        )
        return HostRecord(_units(record["units"]), _texts(record["sysctls"]), before)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(study, f"its record of host {host} is invalid: {error}") from error


def _check_keys(record: Mapping[str, Any], kind: type[HostRecord | Original]) -> None:
    """Raises ValueError for a key that this kind of record does not have."""
    if unknown := sorted(record.keys() - kind.__dataclass_fields__.keys()):
        raise ValueError(f"unknown key {unknown[0]!r}")


def _digest(value: object) -> str | None:
    if value is None or (isinstance(value, str) and _DIGEST.fullmatch(value)):
        return value
    raise ValueError(f"{value!r} is not a SHA-256 digest")


def _units(units: Mapping[str, Any]) -> dict[str, bool]:
    if wrong := [name for name, runs in units.items() if not isinstance(runs, bool)]:
        raise ValueError(f"the state of unit {wrong[0]!r} is neither true nor false")
    return dict(units)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    if wrong := [name for name, value in values.items() if not isinstance(value, str)]:
        raise ValueError(f"kernel value {wrong[0]!r} is not text")
    return dict(values)


def derive(
    study: Study,
    trial: Trial,
    files: Mapping[str, bytes],
    records: Mapping[str, HostRecord],
    baseline: tuple[Trial, Mapping[str, bytes]] | None,
) -> DerivedHosts:
    """The hosts of a trial whose ``files`` are recorded by ``part/path``.

    ``baseline``: the baseline's trial and files, which decide what units need where hosts had them.
    Raises AutotuneError where a record disagrees with the target and its services.
    """
    desired = _desired(study, trial, files, records)
    for host, record in records.items():
        _agree(study, host, record, desired)
    base = _desired(study, baseline[0], baseline[1], records) if baseline else None
    manifests = {
        host: host_manifest(desired, host, _settings_before(base, host, records[host].original))
        for host in records
    }
    contents = {
        (part.site.tier, part.site.host, path): content
        for part in desired.parts
        for path, content in desired.rendered[part.name].items()
        if not desired.absent(part, path)
    }
    for part in desired.parts:
        for path, content in desired.rendered[part.name].items():
            _check_commands(study, desired, part, path, content)
    return DerivedHosts(manifests, contents)


def _agree(study: Study, host: str, record: HostRecord, desired: DesiredState) -> None:
    if host not in desired.hosts:
        raise Refused(study, f"it deployed to {host!r}, where its target runs nothing")
    state = desired.hosts[host]
    for what, recorded, derived in (
        ("unit", record.units, state.units),
        ("kernel value", record.sysctls, state.sysctls),
    ):
        for name in sorted({*recorded, *derived}):
            if recorded.get(name) != derived.get(name):
                raise Refused(
                    study,
                    f"its record says {name!r}: {recorded.get(name, 'nothing')} on {host}, and the "
                    f"services of its target say {derived.get(name, 'nothing')} for this {what}",
                )


def _settings_before(base: DesiredState | None, host: str, before: Original) -> Settings | None:
    """The baseline's settings if the host had the baseline's files before the study."""
    if base is None or host not in base.hosts:
        return None
    same = all(
        path in before.files
        and before.files[path] == (None if file.absent else sha256(file.content or b"").hexdigest())
        for path, file in base.hosts[host].files.items()
    )
    return base.settings if same else None


def _desired(
    study: Study, trial: Trial, files: Mapping[str, bytes], records: Mapping[str, HostRecord]
) -> DesiredState:
    target = _target(study, trial)
    contents = _by_part(files)
    laid = _lay_out(study, target, _own(study, trial))
    active = laid.active(trial.settings)
    if strange := sorted(contents.keys() - {part.name for part in active}):
        raise Refused(study, f"it has files of {strange[0]!r}, which its target does not run")
    # Each deployment of a choice may have a part of the same name: only the active one has files.
    chosen = [
        _installed(
            study,
            part,
            contents.get(part.name, {}) if part in active else {},
            records.get(part.site.host),
        )
        for part in laid.parts
    ]
    layout = runtime_module(_runtime(target)).RUNTIME.layout
    laid = replace(laid, parts=tuple(chosen))

    def files_of(part: Part) -> Mapping[str, bytes]:
        optional = {f.path: b"" for f in config_files(part.service, part.site) if f.optional}
        return {**optional, **contents.get(part.name, {})}

    try:
        return desired_state(trial.settings, laid, files_of, layout)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(study, f"the settings of trial {trial.number} are incomplete: {error}") from (
            error
        )


def _target(study: Study, trial: Trial) -> Target:
    bed = trial.bed
    return of_bed(study.target, bed) if bed in study.target.beds else study.target


def _runtime(target: Target) -> str:
    return next(iter(target.tiers.values())).runtime


def _by_part(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Part → path → content, of files by ``tier.host.service/path``."""
    parts: dict[str, dict[str, bytes]] = {}
    for place, content in files.items():
        part, _, path = place.partition("/")
        parts.setdefault(part, {})[f"/{path}"] = content
    return parts


def _lay_out(study: Study, target: Target, own: Mapping[str, Own]) -> Stack:
    """The stack with the first names that each program may have; no host is asked."""
    services = [p.service for name, tier in target.tiers.items() for p in placed(name, tier)]
    names = {name: paths[0] for s in services for name, paths in s.programs.items()}
    context = StackContext(
        RENDERED,
        {},
        dict.fromkeys(target.hosts, names),
        dict.fromkeys(target.hosts, ANY_HOST),
        *ACCOUNT,
        installed=True,
        own=own,
    )
    laid = stacks.build(target, context)
    for part in laid.parts:
        if part.site.own is not None:
            _check_own(study, part, part.site.own)
    return laid


def _own(study: Study, trial: Trial) -> dict[str, Own]:
    """The hosts' own files that were edited, from the target's templates and the study's record."""
    begun = study.records_of("study")[0]
    record: Any = begun.get("adopted")
    if trial.bed is not None:
        joined = {bed: entry for each in study.records_of("joined")
                  for bed, entry in (each.get("beds") or {}).items()}  # fmt: skip
        record = {**(begun.get("beds") or {}), **joined}.get(trial.bed, {}).get("adopted")
    kept = read(study.directory / "target.yaml")
    templates = overrides(replace(kept, document=replace(kept.document, path=study.source)))
    own = manifest.of(templates) if record is not None else {}
    return {**own, **in_place.of_record(record or {}).own}


# -- names that a record supplies, held to those of the service --------------------------------------


def _check_own(study: Study, part: Part, own: Own) -> None:
    """Raises AutotuneError for a unit or a file that adopting this service cannot have found."""
    adoption = adoptions().get(part.service.key)
    hint = "`autotune apply` reads what the host has"
    if own.unit and not re.fullmatch(UNIT, own.unit):
        raise Refused(study, f"{own.unit!r} is not a unit that can run {part.name}", hint)
    for file in own.files:
        is_own = re.fullmatch(FILE, file.path) and (
            any(_is_below(file.path, pattern) for pattern in (adoption.paths if adoption else ()))
            or _is_drop_in(file.path, part)
        )
        if not is_own:
            raise Refused(study, f"{part.service.title} does not read {file.path!r}", hint)
        if file.mode & ~0o777:
            raise Refused(study, f"{file.path} has the mode {file.mode:o}", hint)


def _is_below(path: str, pattern: str) -> bool:
    """True if a shell's pattern, relative to ``/``, matches the path or a directory above it."""
    words = PurePosixPath(pattern).parts
    parts = PurePosixPath(path).parts[1:]
    return len(parts) >= len(words) and all(map(fnmatchcase, parts, words))


def _is_drop_in(path: str, part: Part) -> bool:
    unit = part.service.unit(part.site)
    return unit is not None and PurePosixPath(path).parent == PurePosixPath(
        f"{unit_files.PLACES[0]}/{unit}.d"
    )


# -- which of a service's programs a host has ---------------------------------------------------------


def _installed(
    study: Study, part: Part, files: Mapping[str, bytes], record: HostRecord | None
) -> Part:
    """The part with those names of its programs that its recorded files and its unit go with.

    The version of a program is part of such names. Raises AutotuneError if none of them does.
    """
    units = record.units if record else {}
    loses = part.site.own is not None and part.site.own.loses
    matching: list[Part] = []
    for each in _with_programs(part):
        paths = {file.path for file in config_files(each.service, each.site)}
        if files.keys() <= paths:
            matching.append(each)
            unit = each.service.unit(each.site)
            if unit is None or loses or unit in units:
                return each
    if not matching:
        paths = {file.path for file in config_files(part.service, part.site)}
        strange = sorted(files.keys() - paths)[0]
        raise Refused(study, f"{part.service.title} has no file {strange!r}")
    return matching[0]


def _with_programs(part: Part) -> Iterator[Part]:
    programs = part.service.programs
    for paths in product(*programs.values()):
        names = dict(zip(programs, paths, strict=True))
        yield replace(part, site=replace(part.site, programs=names))


# -- files that hold commands for root ----------------------------------------------------------------


def _check_commands(
    study: Study, desired: DesiredState, part: Part, path: str, content: bytes
) -> None:
    """Raises AutotuneError for a file of a unit, or of its variables, that could run a command."""
    if not _holds_commands(path) or has_no_commands(content):
        return
    if part.site.own is None and _is_rendered(study, desired, part, path, content):
        return
    raise Refused(
        study,
        f"{path} of {part.site.host} sets more than limits and numbers for its unit",
        "`autotune export` without --format, then `autotune apply`",
    )


def _holds_commands(path: str) -> bool:
    return path.startswith(tuple(f"{place}/" for place in unit_files.PLACES)) or any(
        _is_below(path, pattern) for pattern in (*unit_environment.FILES, "etc/sysconfig/*")
    )


def has_no_commands(content: bytes) -> bool:
    """True if a unit's file only sets limits, and variables that name no path."""
    text = re.sub(r"\\\n[ \t]*", "", content.decode("utf-8", "replace"))
    lines = [line.strip() for line in text.split("\n")]
    return all(_WITHOUT_COMMANDS.fullmatch(line) and not _LOADER.search(line) for line in lines)


def _is_rendered(
    study: Study, desired: DesiredState, part: Part, path: str, content: bytes
) -> bool:
    """True if autotune's own template makes this content, in one of the places of its programs."""
    for directory in PROGRAMS:
        programs = {name: f"{directory}{program}" for name, program in part.site.programs.items()}
        site = replace(part.site, programs=programs)
        with suppress(RenderError):
            by_path = render(part.service, site, desired.settings, study.target.data)
            if by_path.get(path) == content:
                return True
    return False
