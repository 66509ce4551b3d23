"""A trial's settings to take away: its files, what they change, and where they come from."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.export.ansible import ansible
from autotune.export.host_files import shell
from autotune.export.manifest import manifest
from autotune.report.diff import Files, file_diff, rendered, trial_named
from autotune.report.parameters import Declared, active, declared, described
from autotune.report.studies import Study
from autotune.report.view import conclusion
from autotune.study.records import Trial
from autotune.target.messages import instead


def write_export(
    study: Study, out: Path, fmt: str = "files", trial: str | None = None
) -> tuple[Path, ...]:
    """Write a trial to the directory ``out``, whole or not at all; the paths written in it.

    ``fmt`` is ``files`` (as rendered, under ``files/``), ``ansible`` (a role), ``shell`` (a script
    for each host), ``yaml`` or ``json`` (the settings alone).
    ``manifest.json``, the study's ``target.yaml`` and ``changes.diff`` against the baseline's files
    are always there. Without ``trial`` it is the winner: raises AutotuneError when the study proves
    no gain, when ``out`` has anything in it, or when the format does not exist.
    """
    if fmt not in FORMATS:
        raise AutotuneError(f"there is no format {fmt!r}", hint=instead(fmt, FORMATS))
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        state = "is not empty" if out.is_dir() else "is a file"
        raise AutotuneError(f"{out} {state}", hint="name a directory that is empty or new")
    content = export_files(study, chosen(study, trial), fmt)
    _write_whole(content, out)
    return tuple(Path(path) for path in sorted(content))


def chosen(study: Study, name: str | None) -> Trial:
    """The trial to export: the proven winner unless one is named. Raises AutotuneError."""
    if name is not None:
        return trial_named(study.state, name)
    concluded = conclusion(study.state)
    if concluded.verdict != "improved" or concluded.best is None:
        ended = "is not finished" if study.state.verdict is None else f"ended {concluded.verdict!r}"
        raise AutotuneError(
            f"study {study.name!r} {ended}: there is no proven winner to export",
            hint="`--trial best`, or a trial's number, exports it without a claim",
        )
    return concluded.best.trial


def minimal_trial(study: Study) -> str:
    """The trial that has only the changes which carry the gain. Raises AutotuneError."""
    explained = study.state.explained
    if explained is None or explained["trial"] is None:
        raise AutotuneError(
            f"which changes of study {study.name!r} carry its gain has not been measured",
            hint=f"autotune explain {study.name} --measure",
        )
    return str(explained["trial"])


def export_files(study: Study, trial: Trial, fmt: str = "files") -> dict[str, bytes]:
    """Relative path → content of an export; the same bytes every time."""
    files = rendered(study.directory, trial)
    if fmt in SETTINGS:
        content = SETTINGS[fmt](trial, declared(study.target))
    elif fmt in HOSTS:
        content = HOSTS[fmt](study, trial)
    else:
        content = {f"files/{path}": data for path, data in files.items()}
    baseline = conclusion(study.state).baseline
    before = rendered(study.directory, baseline.trial) if baseline else {}
    diff = file_diff(before, files, "baseline", "files")
    content["changes.diff"] = diff.encode("utf-8", "surrogateescape")
    content["target.yaml"] = (study.directory / "target.yaml").read_bytes()
    content["manifest.json"] = _json(manifest(study, trial, content))
    return content


def _as_json(trial: Trial, own: Declared) -> dict[str, bytes]:
    # A command gets only what has an effect; a stack's files have a place for every value.
    acting = active(trial.settings, own) if own else trial.settings
    parameters = {name: value for name, value in sorted(trial.settings.items()) if name in acting}
    return {"settings.json": _json({"parameters": parameters})}


def _as_yaml(trial: Trial, own: Declared) -> dict[str, bytes]:
    """As a target's own ``parameters:`` section, every value fixed. JSON scalars are YAML's too."""
    effective = active(trial.settings, own)
    lines = [f"# Settings of trial {trial.number}.", "parameters:"]
    for name, value in sorted(trial.settings.items()):
        parameter = described(name, trial.settings, own)
        unit = f"[{parameter.unit}] " if parameter and parameter.unit else ""
        remark = parameter.meaning if parameter else ""
        remark = remark if name in effective else f"without effect here. {remark}"
        comment = f"  # {unit}{remark}" if unit or remark else ""
        lines.append(f"  {name}: {{fixed: {json.dumps(value)}}}{comment}")
    return {"settings.yaml": "\n".join([*lines, ""]).encode()}


SETTINGS: dict[str, Callable[[Trial, Declared], dict[str, bytes]]] = {
    "yaml": _as_yaml,
    "json": _as_json,
}
HOSTS: dict[str, Callable[[Study, Trial], dict[str, bytes]]] = {"ansible": ansible, "shell": shell}
FORMATS = ("files", *HOSTS, *SETTINGS)


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _write_whole(content: Files, out: Path) -> None:
    """Into a directory beside it first: an export that is there is complete."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise AutotuneError(f"{out} cannot be written: {error.strerror}") from error
    try:
        for path, data in content.items():
            place = staging / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        staging.chmod(0o755)  # unlike mkdtemp's own: an export is for others to read
        staging.replace(out)
    except OSError as error:
        raise AutotuneError(f"{out} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
