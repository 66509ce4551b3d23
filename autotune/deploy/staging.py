"""Stage new files of a host, and build the checks with which software validates them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from autotune.deploy.backup import BackupCheck
from autotune.deploy.host_commands import build_mount_command
from autotune.deploy.host_state import FileState, HostState
from autotune.deploy.runtime import ConfigurationCheck
from autotune.services.base import Argv, TrialStart

TRIAL_TIMEOUT = ("timeout", "10")  # time limit of a test start, in seconds


def staged_path(path: str) -> str:
    """Return the path at which the new file for ``path`` is staged. Its name starts with a dot, so
    include patterns such as ``*.conf`` do not match the staged file.
    """
    location = PurePosixPath(path)
    return str(location.with_name(f".{location.name}.autotune-new"))


def needs_mounts(argv: Argv, files: Collection[str], changing_paths: Iterable[str]) -> bool:
    """True if a test start reads a changing file without an argument for it, such as an included file.

    ``files`` are the paths of all files of the service. If ``argv`` contains none of them, its arguments
    come from the contents of the files, and the test start reads no file.
    """
    return bool({*files} & {*argv}) and not {*changing_paths} <= {*argv}


def build_staged_check(
    method: Argv | TrialStart,
    directory: str,
    staged_paths: Mapping[str, str],
    files: Collection[str],
) -> tuple[str, ...]:
    """Return the command that validates staged files instead of the real files. ``staged_paths``
    maps real paths to staged paths, and ``files`` are the real paths of all files of the service.

    Paths in the command's arguments are replaced by staged paths. Files that are not arguments, or
    that are staged in a separate directory, are mounted over the real files during the check.
    ``directory`` is a writable directory for a test start.
    """
    uses_other_paths = any(location != staged_path(path) for path, location in staged_paths.items())
    if isinstance(method, TrialStart):
        command_words = (*TRIAL_TIMEOUT, *method.argv)
        command_words = (
            build_mount_command(staged_paths, command_words)
            if uses_other_paths or needs_mounts(method.argv, files, staged_paths)
            else replace_paths(command_words, staged_paths)
        )
        return ("trial", directory, method.socket, *command_words)
    if all(path in method for path in staged_paths) and not uses_other_paths:
        return replace_paths(method, staged_paths)
    return build_mount_command(staged_paths, method)


def replace_paths(argv: Sequence[str], replacements: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words, each path replaced by the path that ``replacements`` maps it to."""
    return tuple(replacements.get(word, word) for word in argv)


def format_owner_and_mode(file: FileState) -> tuple[str, str]:
    """Return the owner and the octal mode of a file as text; a text is empty if its value is unknown."""
    return file.owner or "", "" if file.mode is None else f"{file.mode:04o}"


def build_backup_check(check: ConfigurationCheck, backup: HostState) -> BackupCheck | None:
    """Return the check to record for the original files, or ``None`` if no unit reads them.

    The result is also ``None`` if the check's arguments depend on file contents and a file was
    absent.
    """
    instance, validation = check.instance, check.method
    unit = instance.service.get_unit(instance.placement)
    if unit is None:
        return None
    if isinstance(validation, TrialStart) and not {*check.files} & {*validation.argv}:
        originals = {path: backup.files[path].content for path in check.files}
        contents = {path: content for path, content in originals.items() if content is not None}
        if len(contents) < len(originals):
            return None
        validation = instance.service.build_validation(instance.placement, contents) or validation
    argv = validation.argv if isinstance(validation, TrialStart) else validation
    socket = validation.socket if isinstance(validation, TrialStart) else None
    return BackupCheck(unit, argv, tuple(check.files), instance.placement.directory, socket)
