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

from autotune.report.claim import Claim, Side, claim
from autotune.report.parameters import Declared, changes, declared
from autotune.report.studies import Study
from autotune.report.summary import summary
from autotune.report.tally import WARM_UP
from autotune.study.records import Phase, Trial
from autotune.study.store import CALL

SCHEMA = 1
VERIFY = "autotune measure target.yaml --config . --against baseline"
ANSWERS = ("seconds", "value", "sd", "why", "said")
COUNTS = ("rate", "seconds", "intended", "violations", "truncated", "limited", "disturbed")


def manifest(study: Study, trial: Trial, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest of one trial's export; ``files`` are those exported, by their relative path."""
    found = claim(study.state)
    side = _side_of(found, trial)
    latest = side.latest if side else trial
    return {
        "schema": SCHEMA,
        "kind": "autotune-export",
        "study": study.name,
        "trial": trial.number,
        "phase": str(trial.phase),
        **({"simulated": True} if study.target.simulated else {}),
        **_origin(study),
        "slo": summary(study.name, study.target, study.state)["slo"],
        **_measured_with(study),
        "claim": _claim(study, trial, found),
        "parameters": dict(sorted(trial.settings.items())),
        "baseline": _baseline(found),
        "changes": _changes(found, trial, declared(study.target)),
        "rss": dict(sorted(study.state.rss.items())),
        "effective": dict(sorted(latest.effective.items())),
        "differences": list(latest.differences),
        "readings": list(_readings(study, found)) if side is found.best else [],
        "files": [
            {"path": path, "bytes": len(content), "sha256": sha256(content).hexdigest()}
            for path, content in sorted(files.items())
        ],
        "verify": _verify(study),
    }


def _measured_with(study: Study) -> dict[str, Any]:
    target = study.target
    if target.command is not None:
        made = next((r for r in study.records if r["event"] == "study"), {})
        return {"command": list(target.command), "source": made.get("source")}
    return {
        "load": target.load.model_dump(mode="json", exclude={"hosts"}),
        "data": target.data.model_dump(mode="json"),
    }


def _verify(study: Study) -> str:
    """A command runs where its own target file is, not beside this copy of it."""
    source = _measured_with(study).get("source")
    return VERIFY.replace("target.yaml", shlex.quote(source)) if source else VERIFY


def _side_of(found: Claim, trial: Trial) -> Side | None:
    sides = (found.best, found.baseline)
    return next((side for side in sides if side and side.trial == trial), None)


def _origin(study: Study) -> dict[str, Any]:
    """Which autotune, which programs, when."""
    made = next((r for r in study.records if r["event"] == "study"), {})
    sessions = [r for r in study.records if r["event"] == "session"]
    ended = [r for r in study.records if r["event"] == "verdict"]
    return {
        "autotune": made.get("autotune"),
        "versions": dict(sorted(sessions[-1]["versions"].items())) if sessions else {},
        "started": made.get("started"),
        "concluded": ended[-1].get("at") if ended else None,
    }


def _claim(study: Study, trial: Trial, found: Claim) -> dict[str, Any] | None:
    """What the study says of this trial; nothing but the winner is claimed to be better."""
    if found.best is None or found.best.trial != trial:
        return None
    whole = summary(study.name, study.target, study.state)
    numbers = ("peak", "low", "high")
    return {
        "verdict": whole["verdict"],
        "gain": whole["gain"],
        "best": {key: whole["best"][key] for key in numbers},
        "baseline": {key: whole["baseline"][key] for key in numbers} if found.baseline else None,
    }


def _baseline(found: Claim) -> dict[str, Any] | None:
    if found.baseline is None:
        return None
    trial = found.baseline.trial
    return {"trial": trial.number, "parameters": dict(sorted(trial.settings.items()))}


def _changes(found: Claim, trial: Trial, own: Declared) -> list[dict[str, Any]]:
    before = found.baseline.trial.settings if found.baseline else {}
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


def _readings(study: Study, found: Claim) -> Iterator[dict[str, Any]]:
    sides = {"best": found.best, "baseline": found.baseline}
    side_of = {
        trial.number: label
        for label, side in sides.items()
        if side
        for trial in side.repeats
        if trial.phase is Phase.CONFIRM
    }
    for reading in (*study.readings, *study.calls):
        side = side_of.get(reading["trial"])
        origin = {"trial": reading["trial"], "side": side, "at": reading.get("at")}
        if side and reading.get("purpose") == CALL:
            yield {**origin, **{key: reading[key] for key in ANSWERS if key in reading}}
        elif side and reading.get("purpose") != WARM_UP:
            counts = {key: reading.get(key) for key in COUNTS}
            errors = dict(reading.get("errors") or {})
            yield {**origin, **counts, "errors": errors}
