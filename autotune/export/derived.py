"""Hosts under a trial, derived from the target and its services.

A study may come from someone else, and an export becomes commands for root. Its records supply the
contents of files, the settings, and what hosts had before. Paths, modes, units and commands are those
of the services; a record that disagrees with them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import PurePosixPath
from typing import Any

from autotune.deploy import manifest
from autotune.deploy import stack as stacks
from autotune.deploy.deployed import HostManifest, HostRecord, Original, host_manifest
from autotune.deploy.desired_state import DesiredState, desired_state
from autotune.deploy.stack import Part, Stack, StackContext
from autotune.discovery import in_place
from autotune.environments.data_loss import editable_files
from autotune.environments.stack import overrides
from autotune.export.refusal import APPLY, RENDERED, Refused
from autotune.export.setting_lines import check_lines
from autotune.export.unit_commands import check_commands, holds_commands, is_below
from autotune.report.studies import Study
from autotune.services import unit_files
from autotune.services.base import Own, Settings, config_files
from autotune.services.registry import adoptions, placed
from autotune.space.facts import HostFacts
from autotune.study.records import Trial
from autotune.target.beds import of_bed
from autotune.target.fields import FILE, UNIT
from autotune.target.model import Target
from autotune.target.read import read
from autotune.target.runtimes import runtime_module
from autotune.unified_diff import Hunk, split

ACCOUNT = ("www-data", "www-data")
ANY_HOST = HostFacts(cpus=1.0, memory=2**30)  # it decides on values, not on names


@dataclass(frozen=True)
class DerivedHosts:
    """``manifests`` by host; ``contents`` by tier, host and path; ``edits`` of hosts' own files by host
    and path."""

    manifests: Mapping[str, HostManifest]
    contents: Mapping[tuple[str, str, str], bytes]
    edits: Mapping[tuple[str, str], tuple[Hunk, ...]]


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
    edits = {(part.site.host, path): hunks for part in desired.parts
             for path in desired.rendered[part.name]
             if (hunks := _edits(part, path, records)) is not None}  # fmt: skip
    for part in desired.parts:
        for path, content in desired.rendered[part.name].items():
            hunks = edits.get((part.site.host, path))
            check_commands(study, desired, part, path, content, hunks)
            if part.site.own is not None and not holds_commands(path):
                original = records[part.site.host].original.files.get(path)
                check_lines(study, part, path, _lines_of(study, path, content, original, hunks))
    return DerivedHosts(manifests, contents, edits)


def _lines_of(
    study: Study, path: str, content: bytes, original: str | None, hunks: tuple[Hunk, ...] | None
) -> tuple[Hunk, ...]:
    """What changes in a host's own file: its edits, or the whole of one that the host did not have."""
    if hunks is not None:
        return hunks
    if original is None:
        return (Hunk(1, (), tuple(split(content))),) if content else ()
    if sha256(content).hexdigest() == original:
        return ()
    raise Refused(study, f"it does not record which lines of {path} change", APPLY)


def _edits(part: Part, path: str, records: Mapping[str, HostRecord]) -> tuple[Hunk, ...] | None:
    """The recorded edits of a file that the host had before, if its service edits the host's own."""
    record = records[part.site.host]
    if part.site.own is None or path not in record.files or record.original.files.get(path) is None:
        return None
    return record.files[path].edits


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
    """The settings that a host's files had before the study; for a model, the baseline's."""
    if before.settings is not None:
        return before.settings
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
    laid = _lay_out(study, target, editable_files(target, _own(study, trial)))
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
            any(is_below(file.path, pattern) for pattern in (adoption.paths if adoption else ()))
            or _is_drop_in(file.path, part)
        )
        if not is_own:
            raise Refused(study, f"{part.service.title} does not read {file.path!r}", hint)
        if file.mode & ~0o777:
            raise Refused(study, f"{file.path} has the mode {file.mode:o}", hint)


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
