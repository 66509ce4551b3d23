"""Manifest of an export: where its settings come from, and the evidence for their gain
(``manifest.json``, schema 1).

``kind`` is always ``autotune-export``.

- ``parameters`` are the effective values in the exported trial, and ``baseline`` the effective values
  in the baseline.
- ``changes`` are the settings that have an effect and differ from the baseline, each with its unit and
  the required action.
- ``rss`` is the size of the largest process of each service during the study, in bytes.
- ``effective`` contains the values read back from the software.
- ``requested`` contains the requested values of parameters for which the software used other values.
- ``differences`` lists effective values that differ from the requested values.
- ``claim`` contains the verdict, gain and peaks. Only the best trial has a claim.
- ``readings`` are the readings from the confirmation, the oldest first.
- ``hosts`` contains files, units and kernel values by host, if the export configures hosts. For each
  file, ``hosts`` contains the SHA-256 before and after: ``absent`` means a missing file, null means not
  recorded.
- ``files`` are the files in this export, with their SHA-256.
- ``verify`` is a command that measures the gain again; it runs in the export's directory.

Peaks and rates are in requests/s, times in seconds, dates in UTC. Two exports of the same trial are
identical, byte for byte.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from autotune.export.host_files import ExportedHosts
from autotune.measure.reading import WARM_UP_PURPOSE
from autotune.report.parameters import (
    DeclaredParameters,
    find_declared_parameters,
    list_setting_changes,
)
from autotune.report.studies import Study
from autotune.report.summary import encode_gain, summarize_slo
from autotune.report.view import StudyView, build_study_view
from autotune.services.base import Settings, Value
from autotune.study.reading_records import RecordedCall, RecordedReading, describe_command_call
from autotune.study.study_state import Phase, Trial
from autotune.target.model import Target
from autotune.target.read_target import TARGET_FILE_NAME

SCHEMA_VERSION = 1
COUNT_KEYS = ("rate", "seconds", "intended", "violations", "truncated", "limited")


def build_manifest(
    study: Study, trial: Trial, files: Mapping[str, bytes], hosts: ExportedHosts | None = None
) -> dict[str, Any]:
    """Return the manifest of one trial's export. ``files`` are the exported files by relative path."""
    view = build_study_view(study)
    sides = view.conclusion.sides
    is_best = "best" in sides and sides["best"].trial == trial
    side = sides.get("best" if is_best else "baseline")
    latest_trial = side.latest_trial if side and side.trial == trial else trial
    baseline = sides["baseline"].trial if "baseline" in sides else None
    is_command = study.target.command is not None
    command_target = study.first_record.source if is_command else None
    return {
        "schema": SCHEMA_VERSION,
        "kind": "autotune-export",
        "study": study.name,
        "trial": trial.number,
        "phase": str(trial.phase),
        **({"simulated": True} if study.target.simulated else {}),
        **asdict(study.provenance),
        "slo": summarize_slo(study.target),
        **_describe_measurement(study.target, command_target),
        "claim": _build_claim(view) if is_best else None,
        "parameters": dict(sorted(trial.effective_settings.items())),
        "requested": _list_requested_values(trial),
        "baseline": _describe_baseline(baseline),
        "changes": _list_changes(
            baseline.effective_settings if baseline else {},
            trial,
            find_declared_parameters(study.target),
        ),
        "rss": dict(sorted(study.state.rss.items())),
        "effective": dict(sorted(latest_trial.effective.items())),
        "differences": list(latest_trial.differences),
        "readings": list(_list_readings(view)) if is_best else [],
        **({"hosts": _describe_hosts(hosts)} if hosts else {}),
        "files": list(_list_files(files)),
        "verify": _build_verify_command(study),
    }


def _build_verify_command(study: Study) -> str:
    """Return the command that measures the gain again.

    A command, and files next to the target, are found only from the target's own path, because the
    export contains no copies of them.
    """
    needs_original = study.target.command is not None or _refers_to_files(study.target)
    target = shlex.quote(study.first_record.source) if needs_original else TARGET_FILE_NAME
    return f"autotune measure {target} --config . --against baseline"


def _refers_to_files(target: Target) -> bool:
    """True if the target names a file or directory by a path that is relative to the target."""
    load = target.load
    generator = load.command[0] if load.command and "/" in load.command[0] else None
    templates = (tier.templates for tier in target.tiers.values())
    paths = (load.requests, load.uris, load.sessions, load.script, load.ca, target.ssh.config)
    return any(
        path is not None and not path.startswith(("/", "~"))
        for path in (*templates, *paths, generator)
    )


def _list_requested_values(trial: Trial) -> dict[str, Value]:
    """Return the requested values of parameters for which the software used other values."""
    return {name: trial.settings[name] for name in sorted(trial.clamped_parameters)}


def _describe_baseline(baseline: Trial | None) -> dict[str, Any] | None:
    if baseline is None:
        return None
    parameters = dict(sorted(baseline.effective_settings.items()))
    return {"trial": baseline.number, "parameters": parameters}


def _list_files(files: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    for path, content in sorted(files.items()):
        yield {"path": path, "bytes": len(content), "sha256": sha256(content).hexdigest()}


def _describe_measurement(target: Target, command_target: str | None) -> dict[str, Any]:
    if target.command is not None:
        return {"command": list(target.command), "source": command_target}
    return {
        "load": target.load.model_dump(mode="json", exclude={"hosts"}),
        "data": target.data.model_dump(mode="json"),
    }


def _build_claim(view: StudyView) -> dict[str, Any]:
    """Return the study's claim about its best trial: verdict, gain and peaks."""
    has_baseline = "baseline" in view.conclusion.sides
    return {
        "verdict": view.verdict,
        "gain": encode_gain(view.gain) if view.gain else None,
        "best": asdict(view.capacities["best"]),
        "baseline": asdict(view.capacities["baseline"]) if has_baseline else None,
    }


def _list_changes(
    baseline: Settings, trial: Trial, declared_parameters: DeclaredParameters
) -> list[dict[str, Any]]:
    return [
        {
            "parameter": change.name,
            "from": change.before,
            "to": change.after,
            "unit": change.unit,
            "action": change.parameter.action.name.lower() if change.parameter else None,
        }
        for change in list_setting_changes(baseline, trial.effective_settings, declared_parameters)
    ]


def _describe_hosts(hosts: ExportedHosts) -> dict[str, Any]:
    return {
        host: {
            "files": [
                {"path": file.path, "before": file.original, "after": file.digest}
                for file in hosts.list_files(host)
            ],
            "units": dict(units),
            "sysctls": {
                kernel_setting: {
                    "from": hosts.before[host].sysctls.get(kernel_setting),
                    "to": value,
                }
                for kernel_setting, value in hosts.sysctls[host].items()
            },
        }
        for host, units in hosts.units.items()
    }


def _list_readings(view: StudyView) -> Iterator[dict[str, Any]]:
    sides_by_trial = {
        trial.number: side_label
        for side_label, side in view.conclusion.sides.items()
        for trial in side.repeats
        if trial.phase is Phase.CONFIRM
    }
    records: list[RecordedReading | RecordedCall] = [
        *view.study.readings,
        *view.study.command_calls,
    ]
    for record in records:
        side = sides_by_trial.get(record.trial)
        origin_keys = {"trial": record.trial, "side": side, "at": record.at}
        if side and isinstance(record, RecordedCall):
            yield {**origin_keys, **describe_command_call(record)}
        elif side and isinstance(record, RecordedReading) and record.purpose != WARM_UP_PURPOSE:
            counts = {count_key: getattr(record, count_key) for count_key in COUNT_KEYS}
            yield {**origin_keys, **counts, "errors": dict(record.errors)}
