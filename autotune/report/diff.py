"""Differences between two trials, in their rendered files or in their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePath

from autotune import foreign_files
from autotune.errors import AutotuneError, UsageError
from autotune.foreign_files import ForeignFileError
from autotune.masking import Outliner, mask_changed_lines, mask_secret_bytes, outline_unknown_syntax
from autotune.report import format as fmt
from autotune.report.conclusion import find_conclusion
from autotune.report.parameters import (
    NO_DECLARED_PARAMETERS,
    DeclaredParameters,
    find_declared_parameters,
    list_setting_changes,
)
from autotune.report.studies import Study
from autotune.services.registry import Catalogue, catalogue_of, find_outliner
from autotune.study import ownership
from autotune.study.study_state import State, Trial
from autotune.target.messages import find_nearest_name
from autotune.target.read_target import read_recorded_target
from autotune.terminal import StyledLine
from autotune.transports.parallel_hosts import run_on_all
from autotune.unified_diff import FileContents, format_file_diff

HOSTS_SIDE = "hosts"
LINE_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def format_diff(
    study: Study,
    before_name: str = "baseline",
    after_name: str = "best",
    *,
    parameters: bool = False,
) -> str:
    """Return a unified diff from ``before_name`` to ``after_name``: a trial number, ``baseline``,
    ``best`` or ``hosts``.

    ``hosts`` means the current files on the hosts. The diff compares files and can be applied with
    `patch -p1`. With ``parameters``, the diff compares the settings that have an effect. The diff is
    empty if both sides are equal. Raises AutotuneError for a trial that does not exist or was never
    deployed.
    """
    if HOSTS_SIDE in (before_name, after_name):
        trial = find_trial(study.state, after_name if before_name == HOSTS_SIDE else before_name)
        rendered_files = read_rendered_files(study.directory, trial)
        host_files = read_host_files(study, rendered_files, trial.bed)
        trial_name = f"trial-{trial.number}"
        if before_name == HOSTS_SIDE:
            return format_file_diff(host_files, rendered_files, HOSTS_SIDE, trial_name)
        return format_file_diff(rendered_files, host_files, trial_name, HOSTS_SIDE)
    before, after = find_trial(study.state, before_name), find_trial(study.state, after_name)
    if parameters:
        return format_parameter_diff(before, after, find_declared_parameters(study.target))
    compared_files = (
        read_rendered_files(study.directory, before),
        read_rendered_files(study.directory, after),
    )
    return format_file_diff(*compared_files, f"trial-{before.number}", f"trial-{after.number}")


def read_host_files(study: Study, files: FileContents, bed: str | None = None) -> dict[str, bytes]:
    """Return the current content of ``files`` on the hosts, with the same names and with secrets
    masked. With ``bed``, the hosts of this test bed are read.

    Raises HostUnreachable, and AutotuneError if the study has no hosts or belongs to another account.
    """
    if study.target.simulated or study.target.command is not None:
        action_text = "measured a model" if study.target.simulated else "tuned a command"
        raise UsageError(
            f"study {study.name} {action_text}, which has no hosts",
            hint="compare two trials instead, such as 0 and best",
        )
    if not all(t.installed for t in study.target.tiers.values()):
        raise AutotuneError(
            "this study's private servers have stopped",
            hint="compare two trials instead, such as 0 and best",
        )
    ownership.check_own_study(
        study.directory, "compare two trials instead: `autotune diff {study} baseline best`"
    )
    from autotune.deploy.host_files import read_contents
    from autotune.transports.target_hosts import create_transport

    names_by_path: dict[str, dict[str, str]] = {}
    for file_name in files:
        placement, _, path = file_name.partition("/")
        names_by_path.setdefault(placement.split(".")[1], {})[f"/{path}"] = file_name
    target = read_recorded_target(study.directory)
    target_file = replace(target, document=replace(target.document, path=study.target_path))
    if bed is not None and bed in target_file.target.beds:
        target_file = target_file.for_bed(bed)
    contents_by_host = run_on_all(
        [create_transport(target_file, host) for host in names_by_path],
        lambda t: read_contents(t, list(names_by_path[t.name])),
    ).unwrap()
    catalogue = catalogue_of(study.target)
    return {
        file_name: mask_changed_lines(
            content, files[file_name], _find_outliner(catalogue, file_name, path)
        )
        for host, contents in contents_by_host.items()
        for path, content in contents.items()
        for file_name in (names_by_path[host][path],)
    }


def _find_outliner(catalogue: Catalogue, file_name: str, path: str) -> Outliner:
    """Return the function that masks a file's secrets. The ``file_name`` of the file starts with
    ``tier.host.service``.
    """
    services = catalogue.list_by_name(file_name.partition("/")[0].rpartition(".")[2])
    return next(
        filter(None, (find_outliner(service, path) for service in services)), outline_unknown_syntax
    )


def find_trial(state: State, trial_name: str) -> Trial:
    """Return the trial that ``baseline``, ``best`` or a number refers to. Raises AutotuneError."""
    if trial_name in ("baseline", "best"):
        sides = find_conclusion(state).sides
        if trial_name not in sides:
            side_names = [side_name for side_name in ("baseline", "best") if side_name in sides]
            raise AutotuneError(
                f"this study has no {trial_name} configuration",
                hint=_format_configuration_names(state, side_names),
            )
        return sides[trial_name].trial
    for trial in state.trials:
        if str(trial.number) == trial_name.removeprefix("#"):
            return trial
    similar_name = find_nearest_name(trial_name, ("baseline", "best"))
    hint = (
        f"did you mean {similar_name!r}? {_format_configuration_names(state)}"
        if similar_name
        else _format_configuration_names(state)
    )
    raise UsageError(f"unknown trial {trial_name!r}", hint=hint)


def _format_configuration_names(
    state: State, side_names: Sequence[str] = ("baseline", "best")
) -> str:
    trial_numbers = [trial.number for trial in state.trials]
    if not trial_numbers:
        return "the study has no trials yet"
    return f"expected one of: {', '.join([*side_names, f'{min(trial_numbers)} to {max(trial_numbers)}'])}"


def read_rendered_files(directory: Path, trial: Trial) -> dict[str, bytes]:
    """Return the files of a trial as they were deployed: ``instance/path`` → content.

    A repeat shares the files of the trial that it repeats. Raises AutotuneError if the trial was not
    deployed, or if the digest of a file differs from the recorded digest.
    """
    for trial_number in (trial.number, trial.source_trial):
        config_directory = PurePath("configs", str(trial_number))
        if trial_number is not None and foreign_files.exists(directory, config_directory):
            content_by_path = _read_files_below(directory, config_directory)
            _check_digests(trial, directory / config_directory, content_by_path)
            return {path: mask_secret_bytes(content) for path, content in content_by_path.items()}
    reason = f": {trial.failure}" if trial.failure else ""
    raise AutotuneError(
        f"trial {trial.number} was not deployed{reason}",
        hint="name a deployed trial; `autotune diff STUDY A B --parameters` compares only settings",
    )


def _read_files_below(study: Path, directory: PurePath) -> dict[str, bytes]:
    """Return the files below a directory of a study. The total size of the files is limited, because
    the study may come from someone else.
    """
    content_by_path, total_size = dict[str, bytes](), 0
    for path in foreign_files.list_files_below(study, directory):
        content_by_path[path] = foreign_files.read_bytes(
            study, directory / path, foreign_files.MAX_TEMPLATE_BYTES
        )
        total_size += len(content_by_path[path])
        if total_size > foreign_files.MAX_RECORD_BYTES:
            raise ForeignFileError(
                study / directory, f"is larger than {foreign_files.MAX_RECORD_BYTES:,} bytes"
            )
    return content_by_path


def _check_digests(trial: Trial, directory: Path, content_by_path: FileContents) -> None:
    """Raise AutotuneError if a file is missing or has changed since the trial was measured."""
    for path, digest in sorted(trial.files.items()):
        if path not in content_by_path or sha256(content_by_path[path]).hexdigest() != digest:
            problem = "differs from the deployed file" if path in content_by_path else "is missing"
            raise AutotuneError(
                f"{directory / path} {problem} (trial {trial.number} recorded its digest)",
                hint="restore the study's directory from a copy. `autotune diff --parameters` and "
                "`autotune report` still work",
            )


def format_parameter_diff(
    before: Trial, after: Trial, declared_parameters: DeclaredParameters = NO_DECLARED_PARAMETERS
) -> str:
    """Return diff lines for the settings of ``after`` that have an effect and differ from ``before``."""
    diff_lines = []
    for change in list_setting_changes(
        before.effective_settings, after.effective_settings, declared_parameters
    ):
        if change.before is not None:
            diff_lines.append(f"-{change.name}: {fmt.format_setting(change.before, change.unit)}\n")
        diff_lines.append(f"+{change.name}: {fmt.format_setting(change.after, change.unit)}\n")
    if not diff_lines:
        return ""
    return f"--- trial-{before.number}\n+++ trial-{after.number}\n" + "".join(diff_lines)


def style_diff_lines(text: str) -> Iterator[StyledLine]:
    """Yield the lines of a unified diff with their terminal styles."""
    for line in text.removesuffix("\n").split("\n") if text else ():
        is_header = line.startswith(("--- ", "+++ "))
        yield line, "bold" if is_header else LINE_STYLES.get(line[:1], "")
