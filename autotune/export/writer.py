"""Write exports of a trial: its files, the changes to the baseline, and the evidence for the gain."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from autotune import foreign_files
from autotune.deploy.backup import SYSCTL_FILE
from autotune.errors import AutotuneError, UsageError
from autotune.export.ansible import export_ansible, format_backup_directory
from autotune.export.escaping import escape_line, fill_template
from autotune.export.host_files import (
    MODEL_NOTICE,
    SAFETY_NOTICE,
    ExportedHosts,
    list_changed_hosts,
    read_baseline,
)
from autotune.export.manifest import build_manifest
from autotune.export.record_checks import check_trial
from autotune.export.scripts import export_patch, export_shell, has_masked_edits
from autotune.report.conclusion import find_conclusion
from autotune.report.diff import find_trial, read_rendered_files
from autotune.report.parameters import (
    SettingChange,
    find_declared_parameters,
    find_parameter,
    list_active_parameters,
    list_setting_changes,
)
from autotune.report.studies import Study
from autotune.report.view import build_study_view
from autotune.services.base import Settings, Value
from autotune.study.study_state import Trial
from autotune.target.messages import is_same_value, suggest_name
from autotune.target.read_target import TARGET_FILE_NAME
from autotune.unified_diff import FileContents, format_file_diff


def write_export(
    study: Study,
    output_directory: Path,
    format_name: str = "files",
    trial: str | None = None,
    *,
    include_unchanged: bool = False,
    allow_simulated: bool = False,
) -> tuple[Path, ...]:
    """Write a trial's export to ``output_directory`` atomically, and return the written paths.

    Formats: ``files`` (as rendered), ``ansible`` (a role), ``shell`` (a script per host), ``patch``
    (a diff per host), ``yaml`` and ``json`` (settings). An export contains the trial's changes or,
    with ``include_unchanged``, the whole configuration. ``README.md``, ``manifest.json``,
    ``target.yaml`` and ``changes.diff`` are always written. Without ``trial``, the winner is
    exported.

    Raises AutotuneError if the study has no winner, or if it measured a simulated stack and
    ``allow_simulated`` is false. Raises AutotuneError also for an unknown format or a directory
    that is not empty.
    """
    _check_format(format_name)
    if output_directory.exists() and not (
        output_directory.is_dir() and not any(output_directory.iterdir())
    ):
        problem = "is not empty" if output_directory.is_dir() else "is a file"
        raise UsageError(f"{output_directory} {problem}", hint="use an empty or new directory")
    _check_origin(study, format_name, allow_simulated=allow_simulated)
    exported_files = build_export(
        study, select_trial(study, trial), format_name, include_unchanged=include_unchanged
    )
    _write_atomically(exported_files, output_directory)
    return tuple(Path(path) for path in sorted(exported_files))


def _check_format(format_name: str) -> None:
    """Raise UsageError for an unknown format, or for several formats."""
    if "," in format_name:
        raise UsageError(
            f"--format {format_name}: several formats",
            hint="name one format, and repeat the command with another --out for the next format",
        )
    if format_name not in ALL_FORMATS:
        raise UsageError(
            f"unknown format {format_name!r}", hint=suggest_name(format_name, ALL_FORMATS)
        )


def _check_origin(study: Study, format_name: str, *, allow_simulated: bool) -> None:
    """Raise UsageError or AutotuneError if what the study measured does not fit the options."""
    if study.target.simulated and not allow_simulated:
        raise AutotuneError(
            f"study {study.name!r} measured a model, so its gain is not proven on real hosts",
            hint="--of-a-model exports the study, with a notice in the exported files",
        )
    if study.target.command and format_name in HOST_FORMATS:
        raise UsageError(
            f"--format {format_name} needs hosts, and study {study.name} tuned a command",
            hint="write `--format json`, `--format yaml` or `--format files`",
        )


def select_trial(study: Study, trial_name: str | None) -> Trial:
    """Return the trial to export: the trial called ``trial_name``, or the proven winner. Raises
    AutotuneError.
    """
    if trial_name is not None:
        return find_trial(study.state, trial_name)
    conclusion = find_conclusion(study.state)
    if conclusion.verdict != "improved" or conclusion.best is None:
        if study.state.purpose:
            raise AutotuneError(
                f"study {study.name!r} only {study.state.purpose} a configuration, so it has no winner",
                hint="use `--trial` with a trial's number to export that configuration",
            )
        study_status = (
            "is not finished" if study.state.verdict is None else f"ended {conclusion.verdict!r}"
        )
        raise AutotuneError(
            f"study {study.name!r} {study_status} and has no proven winner",
            hint="use `--trial best` or a trial's number to export without claiming a gain",
        )
    return conclusion.best.trial


def find_minimal_trial(study: Study) -> str:
    """Return the name of the trial that contains only the changes that cause the gain. Raises
    AutotuneError.
    """
    minimal = study.state.minimal_changes
    if minimal is None or minimal.trial is None:
        raise AutotuneError(
            f"study {study.name!r} did not measure which changes cause its gain",
            hint=f"run `autotune explain {study.argument} --measure`, then repeat the export",
        )
    return str(minimal.trial)


def build_export(
    study: Study, trial: Trial, format_name: str = "files", *, include_unchanged: bool = False
) -> dict[str, bytes]:
    """Return an export's file contents by relative path. The contents are identical on every call."""
    baseline = find_conclusion(study.state).baseline
    check_trial(study, trial)
    if baseline:
        check_trial(study, baseline.trial)
    files = read_rendered_files(study.directory, trial)
    baseline_and_files = read_baseline(study)
    baseline_files = baseline_and_files[1] if baseline_and_files else {}
    hosts = None
    if format_name in SETTINGS_FORMATS:
        baseline_settings = (
            {} if include_unchanged or not baseline else baseline.trial.effective_settings
        )
        exported_files = SETTINGS_FORMATS[format_name](study, trial, baseline_settings)
    elif format_name in HOST_FORMATS:
        hosts = _list_changing_hosts(study, trial, include_unchanged=include_unchanged)
        exported_files = HOST_FORMATS[format_name](study, trial, hosts)
    else:
        exported_files = {
            f"files/{path}": content_bytes
            for path, content_bytes in files.items()
            if include_unchanged or baseline_files.get(path) != content_bytes
        }
    diff = format_file_diff(baseline_files, files, "baseline", "files")
    notice = f"{MODEL_NOTICE}\n" if diff and study.target.simulated else ""
    exported_files["changes.diff"] = f"{notice}{diff}".encode("utf-8", "surrogateescape")
    exported_files["target.yaml"] = foreign_files.read_bytes(
        study.directory, TARGET_FILE_NAME, foreign_files.MAX_TARGET_BYTES
    )
    exported_files["README.md"] = _build_readme(
        study, trial, format_name, hosts, include_unchanged=include_unchanged
    )
    exported_files["manifest.json"] = _encode_json(
        build_manifest(study, trial, exported_files, hosts)
    )
    return exported_files


def list_changes(study: Study, trial_name: str) -> tuple[SettingChange, ...]:
    """Return the settings of a trial that have an effect and differ from the baseline."""
    baseline = find_conclusion(study.state).baseline
    return list_setting_changes(
        baseline.trial.effective_settings if baseline else {},
        select_trial(study, trial_name).effective_settings,
        find_declared_parameters(study.target),
    )


def _list_changing_hosts(study: Study, trial: Trial, *, include_unchanged: bool) -> ExportedHosts:
    hosts = list_changed_hosts(study, trial, include_unchanged=include_unchanged)
    if not hosts.units:
        raise AutotuneError(
            f"trial {trial.number} of study {study.name!r} changes nothing on its hosts",
            hint="--all exports the trial's complete deployment",
        )
    return hosts


def _build_readme(
    study: Study,
    trial: Trial,
    format_name: str,
    hosts: ExportedHosts | None,
    *,
    include_unchanged: bool,
) -> bytes:
    view = build_study_view(study)
    sides = view.conclusion.sides
    baseline, best_side = sides.get("baseline"), sides.get("best")
    is_best_trial = best_side is not None and best_side.trial == trial
    declared_parameters = find_declared_parameters(study.target)
    return fill_template(
        "readme.md.j2",
        study=study.name,
        trial=trial.number,
        format=format_name,
        is_command=study.target.command is not None,
        is_private=not all(tier.installed for tier in study.target.tiers.values()),
        notice=MODEL_NOTICE if study.target.simulated else None,
        proof=view.headline.text
        if is_best_trial
        else "This trial is not the proven winner, so no gain is claimed.",
        changes=list_setting_changes(
            baseline.trial.effective_settings, trial.effective_settings, declared_parameters
        )
        if baseline
        else (),
        differences=trial.differences,
        everything=include_unchanged,
        hosts=hosts,
        backup=format_backup_directory(study, trial),
        safety=SAFETY_NOTICE,
        kernel_file=SYSCTL_FILE,
        has_patch_scripts=hosts is not None
        and any(has_masked_edits(hosts, host) for host in hosts.units),
    ).encode()


def _select_settings(
    study: Study, trial: Trial, baseline_settings: Settings
) -> Iterator[tuple[str, Value]]:
    """Yield the settings that have an effect and differ from ``baseline_settings``, or all settings
    if ``baseline_settings`` is empty.
    """
    active_names = list_active_parameters(
        trial.effective_settings, find_declared_parameters(study.target)
    )
    for name, value in sorted(trial.effective_settings.items()):
        if not baseline_settings or (
            name in active_names and not is_same_value(baseline_settings.get(name), value)
        ):
            yield name, value


def _format_json_settings(
    study: Study, trial: Trial, baseline_settings: Settings
) -> dict[str, bytes]:
    # A command receives only settings with an effect. The files of a stack contain all settings.
    declared_parameters = find_declared_parameters(study.target)
    active_names = (
        list_active_parameters(trial.effective_settings, declared_parameters)
        if declared_parameters.rules
        else trial.effective_settings
    )
    parameters = {
        name: value
        for name, value in _select_settings(study, trial, baseline_settings)
        if name in active_names
    }
    model_key = {"simulated": True} if study.target.simulated else {}
    return {"settings.json": _encode_json({**model_key, "parameters": parameters})}


def _format_yaml_settings(
    study: Study, trial: Trial, baseline_settings: Settings
) -> dict[str, bytes]:
    """Return the ``parameters:`` section of a target, with values pinned. JSON scalars are valid
    YAML.
    """
    declared_parameters = find_declared_parameters(study.target)
    active_names = list_active_parameters(trial.effective_settings, declared_parameters)
    lines = [f"# {MODEL_NOTICE}"] if study.target.simulated else []
    lines += [f"# Settings of trial {trial.number}.", "parameters:"]
    for name, value in _select_settings(study, trial, baseline_settings):
        parameter = find_parameter(name, trial.effective_settings, declared_parameters)
        unit = f"[{parameter.unit}] " if parameter and parameter.unit else ""
        remark = parameter.meaning if parameter else ""
        remark = remark if name in active_names else f"no effect here. {remark}"
        # Some parsers of YAML end a comment at U+2028, and the meaning may come from someone else.
        comment = f"  # {escape_line(unit)}{escape_line(remark)}" if unit or remark else ""
        lines.append(f"  {name}: {{fixed: {json.dumps(value)}}}{comment}")
    return {"settings.yaml": "\n".join([*lines, ""]).encode()}


SETTINGS_FORMATS: dict[str, Callable[[Study, Trial, Settings], dict[str, bytes]]] = {
    "yaml": _format_yaml_settings,
    "json": _format_json_settings,
}
HOST_FORMATS: dict[str, Callable[[Study, Trial, ExportedHosts], dict[str, bytes]]] = {
    "ansible": export_ansible,
    "shell": export_shell,
    "patch": export_patch,
}
ALL_FORMATS = ("files", *HOST_FORMATS, *SETTINGS_FORMATS)


def _encode_json(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _write_atomically(exported_files: FileContents, output_directory: Path) -> None:
    """Write to a temporary directory next to ``output_directory``, then rename the directory, so
    that no export is incomplete.
    """
    try:
        output_directory.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(
            tempfile.mkdtemp(prefix=f".{output_directory.name}.", dir=output_directory.parent)
        )
    except OSError as error:
        raise _build_write_error(output_directory, error) from error
    try:
        for path, file_content in exported_files.items():
            destination = staging / path
            destination.parent.mkdir(parents=True, exist_ok=True)
            destination.write_bytes(file_content)
        staging.chmod(0o755)  # other accounts may read an export, but mkdtemp sets mode 0700
        staging.replace(output_directory)
    except OSError as error:
        raise _build_write_error(output_directory, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _build_write_error(output_directory: Path, error: OSError) -> AutotuneError:
    return AutotuneError(
        f"{output_directory} cannot be written: {error.strerror}",
        hint="name a directory on a writable disk with free space: --out DIR",
    )
