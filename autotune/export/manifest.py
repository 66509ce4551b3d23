"""Where exported settings come from, and what their gain is claimed on.

``manifest.json``, schema 1. ``kind`` is always ``autotune-export``.

- ``parameters`` are the exported trial's, ``baseline`` those they are compared with, each with its
  effective value; ``changes`` are those that differ and have an effect, with their unit and the action
  they need.
- ``rss`` is the largest process of each service that the study saw, in bytes.
- ``effective`` was read back from the software, ``differences`` are where it is not as requested.
- ``claim`` is what the study says of the trial (verdict, gain, peaks; only the best has one),
  ``readings`` are those of the confirmation that it rests on, oldest first.
- ``hosts``, where they are configured: by host the SHA-256 of each file before (or ``absent``; null:
  not recorded) and after, the units that run then or do not, and kernel values.
- ``files`` are this export's own, with their SHA-256; ``verify`` is to be run in their directory.

Peaks and rates are in requests/s, times in seconds, dates in UTC. Nothing depends on when it is
exported: two exports of one trial are the same, byte for byte.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from autotune.export.host_files import Hosts
from autotune.report.parameters import Declared, changes, declared
from autotune.report.studies import Study
from autotune.report.summary import slo
from autotune.report.trials import WARM_UP
from autotune.report.view import StudyView, study_view
from autotune.services.base import Settings
from autotune.study.records import Phase, Trial
from autotune.study.store import CALL
from autotune.target.model import Target

SCHEMA = 1
VERIFY = "autotune measure target.yaml --config . --against baseline"
ANSWERS = ("seconds", "value", "sd", "why", "said")
COUNTS = ("rate", "seconds", "intended", "violations", "truncated", "limited", "disturbed")


def manifest(
    study: Study, trial: Trial, files: Mapping[str, bytes], hosts: Hosts | None = None
) -> dict[str, Any]:
    """The manifest of one trial's export; ``files`` are those exported, by their relative path."""
    view = study_view(study)
    sides = view.conclusion.sides
    is_best = "best" in sides and sides["best"].trial == trial
    side = sides.get("best" if is_best else "baseline")
    latest = side.latest if side and side.trial == trial else trial
    baseline = sides["baseline"].trial if "baseline" in sides else None
    command = study.target.command is not None
    # A command runs where its own target file is, not beside this copy of it.
    source = study.records_of("study")[0].get("source") if command else None
    return {
        "schema": SCHEMA,
        "kind": "autotune-export",
        "study": study.name,
        "trial": trial.number,
        "phase": str(trial.phase),
        **({"simulated": True} if study.target.simulated else {}),
        **study.origin,
        "slo": slo(study.target),
        **_measured_with(study.target, source),
        "claim": _claim(view) if is_best else None,
        "parameters": dict(sorted(trial.in_effect.items())),
        "baseline": baseline
        and {"trial": baseline.number, "parameters": dict(sorted(baseline.in_effect.items()))},
        "changes": _changes(baseline.in_effect if baseline else {}, trial, declared(study.target)),
        "rss": dict(sorted(study.state.rss.items())),
        "effective": dict(sorted(latest.effective.items())),
        "differences": list(latest.differences),
        "readings": list(_readings(view)) if is_best else [],
        **({"hosts": _hosts(hosts)} if hosts else {}),
        "files": [
            {"path": path, "bytes": len(content), "sha256": sha256(content).hexdigest()}
            for path, content in sorted(files.items())
        ],
        "verify": VERIFY.replace("target.yaml", shlex.quote(source)) if source else VERIFY,
    }


def _measured_with(target: Target, source: str | None) -> dict[str, Any]:
    if target.command is not None:
        return {"command": list(target.command), "source": source}
    return {
        "load": target.load.model_dump(mode="json", exclude={"hosts"}),
        "data": target.data.model_dump(mode="json"),
    }


def _claim(view: StudyView) -> dict[str, Any]:
    """What the study says of the winner; nothing else is claimed to be better."""
    baseline = view.capacities["baseline"] if "baseline" in view.conclusion.sides else None
    best = view.capacities["best"]
    return {"verdict": view.verdict, "gain": view.gain, "best": best, "baseline": baseline}


def _changes(before: Settings, trial: Trial, own: Declared) -> list[dict[str, Any]]:
    return [
        {
            "parameter": change.name,
            "from": change.before,
            "to": change.after,
            "unit": change.unit,
            "action": change.parameter.action.name.lower() if change.parameter else None,
        }
        for change in changes(before, trial.in_effect, own)
    ]


def _hosts(hosts: Hosts) -> dict[str, Any]:
    return {
        host: {
            "files": [
                {"path": file.path, "before": file.original, "after": file.digest}
                for file in hosts.of(host)
            ],
            "units": dict(units),
            "sysctls": {
                name: {"from": hosts.before[host].sysctls.get(name), "to": value}
                for name, value in hosts.sysctls[host].items()
            },
        }
        for host, units in hosts.units.items()
    }


def _readings(view: StudyView) -> Iterator[dict[str, Any]]:
    side_of = {
        trial.number: label
        for label, side in view.conclusion.sides.items()
        for trial in side.repeats
        if trial.phase is Phase.CONFIRM
    }
    for reading in (*view.study.readings, *view.study.calls):
        side = side_of.get(reading["trial"])
        origin = {"trial": reading["trial"], "side": side, "at": reading.get("at")}
        if side and reading.get("purpose") == CALL:
            yield {**origin, **{key: reading[key] for key in ANSWERS if key in reading}}
        elif side and reading.get("purpose") != WARM_UP:
            counts = {key: reading.get(key) for key in COUNTS}
            errors = dict(reading.get("errors") or {})
            yield {**origin, **counts, "errors": errors}
