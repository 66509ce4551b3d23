"""Run commands on staged files of instances, such as the software's own validation."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.deploy.host_commands import (
    Command,
    build_command_error,
    build_mount_command,
    run_commands,
)
from autotune.deploy.host_files import CurrentFile, read_files
from autotune.deploy.host_state import FileState
from autotune.deploy.runtime import ValidationCases
from autotune.deploy.stack import ServiceInstance
from autotune.deploy.staging import (
    TRIAL_TIMEOUT,
    format_owner_and_mode,
    needs_mounts,
    replace_paths,
)
from autotune.masking import find_secret_words, has_placeholder, remove_words, restore_secrets
from autotune.services.base import TrialStart, resolve_config_files
from autotune.services.registry import find_outliner
from autotune.transports.base import CommandResult, Transport

# After a lost connection, the remaining commands still remove staged files.
IGNORE_BROKEN_PIPE = "trap : PIPE\n"


def validate_cases(transport: Transport, validation_cases: ValidationCases) -> list[str | None]:
    """Return the software's message about the files of each instance, or ``None`` for accepted files.

    All instances must be on the transport's host. Raises HostUnreachable, or AutotuneError if no
    validation is possible.
    """

    def build_check(staged: StagedCase) -> list[Command]:
        check_command = _build_check(staged.instance, staged.files, staged.directory)
        return [] if check_command is None else [Command(check_command)]

    return [
        _find_refusal(staged_case, answers)
        for staged_case, answers in run_on_staged_files(
            transport, validation_cases, "validated", build_check
        )
    ]


def _find_refusal(staged_case: StagedCase, answers: Sequence[CommandResult]) -> str | None:
    """Return the software's message about the files of a case, or ``None`` for accepted files."""
    message = next((answer.error_text for answer in answers if not answer.ok), None)
    if message is None:
        return None
    return (
        mask_message(message, staged_case.instance, staged_case.files) or "the software refused it"
    )


def mask_message(message: str, instance: ServiceInstance, files: Mapping[str, bytes]) -> str:
    """Return the software's message about an instance's files without the values that are masked in
    these files.
    """
    is_adopted = instance.placement.adopted is not None
    words_by_file = (
        find_secret_words(content, find_outliner(instance.service, path) if is_adopted else None)
        for path, content in files.items()
    )
    return remove_words(message, frozenset[str]().union(*words_by_file))


@dataclass(frozen=True)
class StagedCase:
    """An instance, and the contents of the files staged for it below ``directory``, by their real
    paths.
    """

    instance: ServiceInstance
    files: Mapping[str, bytes]
    directory: str

    @property
    def staged_paths(self) -> dict[str, str]:
        """Return the path of each staged file, by its real path."""
        return {path: f"{self.directory}{path}" for path in self.files}

    @property
    def modes(self) -> dict[str, int]:
        """Return the modes of the instance's files, by their real paths."""
        config_files = resolve_config_files(self.instance.service, self.instance.placement)
        return {file.path: file.mode for file in config_files}


def run_on_staged_files(
    transport: Transport,
    validation_cases: ValidationCases,
    purpose: str,
    build_commands: Callable[[StagedCase], Sequence[Command]],
) -> list[tuple[StagedCase, Sequence[CommandResult]]]:
    """Stage the files of each case, run the commands of the case, and remove the files.

    Returns each case with the results of its commands. ``purpose`` is part of the staging directory's
    name. Raises HostUnreachable, or AutotuneError if a file cannot be staged.
    """
    staging_name = (
        f"{purpose}-{secrets.token_hex(8)}"  # random, because another tuner may stage files too
    )
    originals = _read_masked_files(transport, validation_cases)
    commands: list[Command] = []
    answer_slices: list[tuple[StagedCase, slice]] = []
    for case_number, (instance, files) in enumerate(_insert_secrets(validation_cases, originals)):
        staged_case = StagedCase(
            instance, files, f"{instance.placement.directory}.{staging_name}/{case_number}"
        )
        commands += [_build_write_command(staged_case, path, originals.get(path)) for path in files]
        own_commands = build_commands(staged_case)
        case_slice = slice(len(commands), len(commands) + len(own_commands))
        answer_slices.append((staged_case, case_slice))
        commands += own_commands
    directories = sorted(
        {f"{instance.placement.directory}.{staging_name}" for instance, _ in validation_cases}
    )
    commands.append(Command(("discard_staged", *directories)))
    command_results = run_commands(
        transport,
        commands,
        timeout=60.0 + 10.0 * len(validation_cases),
        functions=IGNORE_BROKEN_PIPE,
    )
    # These commands are not required: after a failure, the staged files must still be removed.
    for command, command_result in zip(commands, command_results, strict=True):
        if command.argv[0] == "stage" and not command_result.ok:
            raise build_command_error(transport.name, command, command_result)
    return [(staged_case, command_results[case_slice]) for staged_case, case_slice in answer_slices]


def _read_masked_files(
    transport: Transport, validation_cases: ValidationCases
) -> dict[str, CurrentFile]:
    """Return the host's current version of each file that contains placeholders for secrets."""
    paths = sorted(
        {path for _, files in validation_cases for path in files if has_placeholder(files[path])}
    )
    return read_files(transport, paths) if paths else {}


def _insert_secrets(
    validation_cases: ValidationCases, original_files: Mapping[str, CurrentFile]
) -> ValidationCases:
    """Return the cases with each placeholder replaced by the secret in the host's own file."""
    if not original_files:
        return validation_cases
    contents = {path: file.content for path, file in original_files.items()}
    return [
        (instance, fill_secrets(instance, files, contents)) for instance, files in validation_cases
    ]


def fill_secrets(
    instance: ServiceInstance,
    masked_files: Mapping[str, bytes],
    originals: Mapping[str, bytes | None],
) -> dict[str, bytes]:
    """Return files with each placeholder replaced by the text from the host's own file.

    Raises AutotuneError if a host's file contains secrets that differ from the masked secrets.
    """
    return {
        path: restore_secrets(
            content,
            originals.get(path),
            f"{instance.placement.host}: {path}",
            find_outliner(instance.service, path),
        )
        for path, content in masked_files.items()
    }


def _build_write_command(
    staged_case: StagedCase, path: str, existing: CurrentFile | None
) -> Command:
    """Return the command that writes the staged file for ``path``.

    If ``existing`` is given, the staged file contains the secrets of the existing file, and therefore
    gets the mode and owner of the existing file. A new file gets the mode that its service declares.
    """
    owner_and_mode: tuple[str, ...] = ("", "")
    if existing and existing.observed.kind == "file":
        owner_and_mode = format_owner_and_mode(
            FileState(mode=existing.observed.mode, owner=existing.observed.owner)
        )
    mode = f"{staged_case.modes.get(path, 0o644):04o}"
    content = base64.b64encode(staged_case.files[path]).decode()
    arguments = (path, staged_case.staged_paths[path], mode, "-", content, "")
    return Command(("stage", *arguments, *owner_and_mode))


def _build_check(
    instance: ServiceInstance, files: Mapping[str, bytes], case_directory: str
) -> tuple[str, ...] | None:
    """Return the command that validates the files below ``case_directory`` in place of the real files."""
    validation = instance.service.build_validation(instance.placement, files)
    if validation is None:
        return None
    argv = validation.argv if isinstance(validation, TrialStart) else validation
    staged_paths = {path: f"{case_directory}{path}" for path in files}
    if instance.placement.adopted is not None and not isinstance(validation, TrialStart):
        # The files may include each other by their real paths, so they are mounted at these paths.
        return build_mount_command(staged_paths, argv) if files else None
    trial_directory = f"{case_directory}/trial"
    directories = {instance.placement.directory: trial_directory}
    if not isinstance(validation, TrialStart):
        return replace_paths(argv, {**staged_paths, **directories})
    words = (*TRIAL_TIMEOUT, *replace_paths(argv, directories))
    words = (
        build_mount_command(staged_paths, words)
        if needs_mounts(argv, files, files) and instance.placement.adopted is not None
        else replace_paths(words, staged_paths)
    )
    return ("trial", trial_directory, validation.socket, *words)
