"""A trial's settings to take away: its files, what they change, and where they come from."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from autotune import foreign_files
from autotune.errors import AutotuneError
from autotune.export.ansible import ansible, backup_of
from autotune.export.checks import check_trial
from autotune.export.host_files import MODEL, SAFETY, Hosts, hosts_of
from autotune.export.manifest import manifest
from autotune.export.scripts import patch, shell
from autotune.export.texts import filled
from autotune.report.diff import rendered, trial_named
from autotune.report.parameters import active, changes, declared, described
from autotune.report.studies import Study
from autotune.report.text import headline
from autotune.report.view import conclusion, study_view
from autotune.services.base import Settings, Value
from autotune.study.records import Trial
from autotune.target.messages import instead, same
from autotune.target.read import TARGET
from autotune.unified_diff import Files, file_diff


def write_export(
    study: Study,
    out: Path,
    fmt: str = "files",
    trial: str | None = None,
    *,
    everything: bool = False,
    of_a_model: bool = False,
) -> tuple[Path, ...]:
    """Write a trial to the directory ``out``, whole or not at all; returns the paths written in it.

    ``fmt`` is ``files`` (as rendered, under ``files/``), ``ansible`` (a role), ``shell`` (a script
    for each host), ``patch`` (a diff for each host), ``yaml`` or ``json`` (the settings alone): what
    the trial changes, or all it has with ``everything``.
    ``README.md``, ``manifest.json``, the study's ``target.yaml`` and ``changes.diff`` against the
    baseline's files are always there. Without ``trial`` it is the winner: raises AutotuneError when
    the study proves no gain. Also raises it for a study of a model unless ``of_a_model`` is set, when
    ``out`` has anything in it, and when the format does not exist.
    """
    if fmt not in FORMATS:
        raise AutotuneError(f"there is no format {fmt!r}", hint=instead(fmt, FORMATS))
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        state = "is not empty" if out.is_dir() else "is a file"
        raise AutotuneError(f"{out} {state}", hint="name a directory that is empty or new")
    if study.target.simulated and not of_a_model:
        raise AutotuneError(
            f"study {study.name!r} is of a model: nothing it says is proven of any host",
            hint="--of-a-model exports it, and says so in what it writes",
        )
    content = export_files(study, chosen(study, trial), fmt, everything=everything)
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


def export_files(
    study: Study, trial: Trial, fmt: str = "files", *, everything: bool = False
) -> dict[str, bytes]:
    """Relative path → content of an export; the same bytes every time."""
    baseline = conclusion(study.state).baseline
    check_trial(study, trial)
    if baseline:
        check_trial(study, baseline.trial)
    files = rendered(study.directory, trial)
    before = rendered(study.directory, baseline.trial) if baseline else {}
    hosts = None
    if fmt in SETTINGS:
        unchanged = {} if everything or not baseline else baseline.trial.in_effect
        content = SETTINGS[fmt](study, trial, unchanged)
    elif fmt in HOSTS:
        hosts = _changing_hosts(study, trial, everything=everything)
        content = HOSTS[fmt](study, trial, hosts)
    else:
        content = {f"files/{path}": data for path, data in files.items()
                   if everything or before.get(path) != data}  # fmt: skip
    diff = file_diff(before, files, "baseline", "files")
    notice = f"{MODEL}\n" if diff and study.target.simulated else ""
    content["changes.diff"] = f"{notice}{diff}".encode("utf-8", "surrogateescape")
    content["target.yaml"] = foreign_files.read_bytes(study.directory, TARGET, foreign_files.TARGET)
    content["README.md"] = _read_me(study, trial, fmt, hosts, everything=everything)
    content["manifest.json"] = _json(manifest(study, trial, content, hosts))
    return content


def _changing_hosts(study: Study, trial: Trial, *, everything: bool) -> Hosts:
    hosts = hosts_of(study, trial, everything=everything)
    if not hosts.units:
        raise AutotuneError(
            f"trial {trial.number} of study {study.name!r} changes nothing on its hosts",
            hint="--all exports everything that it deployed there",
        )
    return hosts


def _read_me(
    study: Study, trial: Trial, fmt: str, hosts: Hosts | None, *, everything: bool
) -> bytes:
    view = study_view(study)
    sides = view.conclusion.sides
    baseline, best = sides.get("baseline"), sides.get("best")
    proven = best is not None and best.trial == trial
    own = declared(study.target)
    return filled(
        "readme.md.j2",
        study=study.name,
        trial=trial.number,
        format=fmt,
        notice=MODEL if study.target.simulated else None,
        proof=headline(view)
        if proven
        else "Nothing is claimed of this trial: it is not the one proven.",
        changes=changes(baseline.trial.in_effect, trial.in_effect, own) if baseline else (),
        differences=trial.differences,
        everything=everything,
        hosts=hosts,
        backup=backup_of(study, trial),
        safety=SAFETY,
    ).encode()


def _exported_settings(
    study: Study, trial: Trial, unchanged: Settings
) -> Iterator[tuple[str, Value]]:
    """Those with an effect that are not as in ``unchanged``, by name; all if ``unchanged`` is empty."""
    acting = active(trial.in_effect, declared(study.target))
    for name, value in sorted(trial.in_effect.items()):
        if not unchanged or (name in acting and not same(unchanged.get(name), value)):
            yield name, value


def _as_json(study: Study, trial: Trial, unchanged: Settings) -> dict[str, bytes]:
    # A command gets only what has an effect; a stack's files have a place for every value.
    own = declared(study.target)
    acting = active(trial.in_effect, own) if own else trial.in_effect
    parameters = {name: value for name, value in _exported_settings(study, trial, unchanged)
                  if name in acting}  # fmt: skip
    model = {"simulated": True} if study.target.simulated else {}
    return {"settings.json": _json({**model, "parameters": parameters})}


def _as_yaml(study: Study, trial: Trial, unchanged: Settings) -> dict[str, bytes]:
    """As a target's own ``parameters:`` section, every value fixed. JSON scalars are YAML's too."""
    own = declared(study.target)
    effective = active(trial.in_effect, own)
    lines = [f"# {MODEL}"] if study.target.simulated else []
    lines += [f"# Settings of trial {trial.number}.", "parameters:"]
    for name, value in _exported_settings(study, trial, unchanged):
        parameter = described(name, trial.in_effect, own)
        unit = f"[{parameter.unit}] " if parameter and parameter.unit else ""
        remark = parameter.meaning if parameter else ""
        remark = remark if name in effective else f"without effect here. {remark}"
        comment = f"  # {unit}{remark}" if unit or remark else ""
        lines.append(f"  {name}: {{fixed: {json.dumps(value)}}}{comment}")
    return {"settings.yaml": "\n".join([*lines, ""]).encode()}


SETTINGS: dict[str, Callable[[Study, Trial, Settings], dict[str, bytes]]] = {
    "yaml": _as_yaml,
    "json": _as_json,
}
HOSTS: dict[str, Callable[[Study, Trial, Hosts], dict[str, bytes]]] = {
    "ansible": ansible,
    "shell": shell,
    "patch": patch,
}
FORMATS = ("files", *HOSTS, *SETTINGS)


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _write_whole(content: Files, out: Path) -> None:
    """Write to a directory beside ``out`` first, so that an export that exists is complete."""
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
