"""Where exported settings come from, and what their gain is claimed on.

``manifest.json``, schema 1. ``kind`` is always ``autotune-export``.

- ``parameters`` are the exported trial's, ``baseline`` those they are compared with, ``changes``
  those that differ and have an effect, with their unit and the action they need.
- ``rss`` is the largest process of each service that the study saw, in bytes.
- ``effective`` was read back from the software, ``differences`` where that is otherwise.
- ``claim`` is what the study says of the trial (verdict, gain, peaks; only the best has one),
  ``readings`` are those of the confirmation that it rests on, oldest first.
- ``files`` are this export's own, with their SHA-256; ``verify`` is to be run among them.

Peaks and rates are in requests/s, times in seconds, dates in UTC. Nothing depends on when it is
exported: two exports of one trial are the same, byte for byte.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from autotune.report.parameters import Declared, changes, declared
from autotune.report.studies import Study
from autotune.report.summary import slo
from autotune.report.trials import WARM_UP
from autotune.report.view import Conclusion, StudyView, study_view
from autotune.study.records import Phase, Trial
from autotune.study.store import CALL

SCHEMA = 1
VERIFY = "autotune measure target.yaml --config . --against baseline"
ANSWERS = ("seconds", "value", "sd", "why", "said")
COUNTS = ("rate", "seconds", "intended", "violations", "truncated", "limited", "disturbed")


def manifest(study: Study, trial: Trial, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest of one trial's export; ``files`` are those exported, by their relative path."""
    view = study_view(study)
    sides = view.conclusion.sides
    is_best = "best" in sides and sides["best"].trial == trial
    side = sides.get("best" if is_best else "baseline")
    latest = side.latest if side and side.trial == trial else trial
    return {
        "schema": SCHEMA,
        "kind": "autotune-export",
        "study": study.name,
        "trial": trial.number,
        "phase": str(trial.phase),
        **({"simulated": True} if study.target.simulated else {}),
        **_origin(study),
        "slo": slo(study.target),
        **_measured_with(study),
        "claim": _claim(view, trial),
        "parameters": dict(sorted(trial.settings.items())),
        "baseline": _baseline(view.conclusion),
        "changes": _changes(view.conclusion, trial, declared(study.target)),
        "rss": dict(sorted(study.state.rss.items())),
        "effective": dict(sorted(latest.effective.items())),
        "differences": list(latest.differences),
        "readings": list(_readings(view)) if is_best else [],
        "files": [
            {"path": path, "bytes": len(content), "sha256": sha256(content).hexdigest()}
            for path, content in sorted(files.items())
        ],
        "verify": _verify(study),
    }


def _measured_with(study: Study) -> dict[str, Any]:
    target = study.target
    if target.command is not None:
        begun = next((r for r in study.records if r["event"] == "study"), {})
        return {"command": list(target.command), "source": begun.get("source")}
    return {
        "load": target.load.model_dump(mode="json", exclude={"hosts"}),
        "data": target.data.model_dump(mode="json"),
    }


def _verify(study: Study) -> str:
    """A command runs where its own target file is, not beside this copy of it."""
    source = _measured_with(study).get("source")
    return VERIFY.replace("target.yaml", shlex.quote(source)) if source else VERIFY


def _origin(study: Study) -> dict[str, Any]:
    """Which autotune, which programs, when."""
    begun = next((r for r in study.records if r["event"] == "study"), {})
    sessions = [r for r in study.records if r["event"] == "session"]
    ended = [r for r in study.records if r["event"] == "verdict"]
    return {
        "autotune": begun.get("autotune"),
        "versions": dict(sorted(sessions[-1]["versions"].items())) if sessions else {},
        "started": begun.get("started"),
        "concluded": ended[-1].get("at") if ended else None,
    }


def _claim(view: StudyView, trial: Trial) -> dict[str, Any] | None:
    """What the study says of this trial; nothing but the winner is claimed to be better."""
    sides = view.conclusion.sides
    if "best" not in sides or sides["best"].trial != trial:
        return None
    return {
        "verdict": view.verdict,
        "gain": view.gain,
        "best": view.capacities["best"],
        "baseline": view.capacities["baseline"] if "baseline" in sides else None,
    }


def _baseline(conclusion: Conclusion) -> dict[str, Any] | None:
    if conclusion.baseline is None:
        return None
    trial = conclusion.baseline.trial
    return {"trial": trial.number, "parameters": dict(sorted(trial.settings.items()))}


def _changes(conclusion: Conclusion, trial: Trial, own: Declared) -> list[dict[str, Any]]:
    before = conclusion.baseline.trial.settings if conclusion.baseline else {}
    return [
        {
            "parameter": change.name,
            "from": change.before,
            "to": change.after,
            "unit": change.unit,
            "action": change.parameter.action.name.lower() if change.parameter else None,
        }
        for change in changes(before, trial.settings, own)
    ]


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
