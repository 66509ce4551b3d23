"""Run many commands on a host in one round trip, each with its own exit status and output."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.deploy.runtime import ApplyFailed
from autotune.errors import AutotuneError
from autotune.strict_parsing import is_uint
from autotune.transports import wait_notices
from autotune.transports.base import CommandResult, Transport


def _read_functions() -> str:
    """Return the functions of ``on_host.sh`` and ``exposed.sh``.

    The text of ``exposed.sh`` is also in ``$anchors``, for shells that ``on_host.sh`` starts.
    """
    exposed_functions = Path(__file__).with_name("exposed.sh").read_text(encoding="utf-8")
    host_functions = Path(__file__).with_name("on_host.sh").read_text(encoding="utf-8")
    return f'anchors={shlex.quote(exposed_functions)}\neval "$anchors"\n{host_functions}'


SHELL_FUNCTIONS = _read_functions()
STATE_DIRECTORY = "/var/lib/autotune"
BACKUP_FILE = f"{STATE_DIRECTORY}/originals.json"  # the backup of the host
APPLIED_BACKUP_FILE = f"{STATE_DIRECTORY}/kept.json"  # the backup of a kept deployment
# The script defines one function and calls it at the end. If the connection is lost while the
# script is sent, no command has run on the host.
_COMMAND_SCRIPT = """\
LC_ALL=C
export LC_ALL
{functions}
step() {{
    said=$("$@" 2>&1)
    status=$?
    printf '%s\\n{mark} %s\\n' "$said" "$status"
    return $status
}}
everything() {{
printf '\\n{mark} begin\\n'
{steps}
}}
{alone}
{survey}
everything </dev/null
exit 0
"""
# Commands of a killed tuner must exit before another tuner starts.
_EXCLUSIVE_STEP = "alone || exit"
# The rule allows `sh` only without arguments, because commands arrive on standard input.
SUDOERS_RULE = 'ALL=(root) NOPASSWD: /usr/bin/sh ""'
_EXCLUSIVE_WAIT_SECONDS = 100.0  # limit for the wait of `alone`
# Wait notices show the unit for these functions, and a description for all other functions.
_ACTION_COMMANDS = frozenset({"stop", "restart", "reload", "enable", "disable", "reread"})
# Commands that fail if a configuration is wrong. If any other command fails, the host is the cause.
_CONFIGURED_COMMANDS = frozenset({"stop", "restart", "reload", "up", "ready", "sysctl"})
_COMMAND_DESCRIPTIONS = {
    "look": "reading the state of files and units",
    "stage": "writing and checking new files",
    "claim": "locking the host",
    "keep": "saving originals",
}


@dataclass(frozen=True)
class Command:
    """A program, or a function in ``on_host.sh``, with its arguments.

    If a ``required`` command fails, later commands are not run.
    """

    argv: tuple[str, ...]
    required: bool = False


class CommandFailed(AutotuneError):
    """A required command failed. The message contains the host's name and the command's output."""


class ActionFailed(CommandFailed, ApplyFailed):
    """A command in ``_CONFIGURED_COMMANDS`` failed."""


def run_commands(
    transport: Transport,
    commands: Iterable[Command],
    *,
    timeout: float = 30.0,
    exclusive: bool = False,
    functions: str = "",
) -> list[CommandResult]:
    """Run commands as root, in order, up to the first required command that fails. Return the
    commands' results.

    ``stdout`` includes standard error. With ``exclusive``, no other exclusive batch of commands runs on
    the host at the same time. ``functions`` is shell code that is appended to ``on_host.sh``. Raises
    HostUnreachable, or AutotuneError if the account cannot become root.
    """
    batch = list(commands)
    if not batch:
        return []
    output_mark = f"#{secrets.token_hex(8)}"
    script = _COMMAND_SCRIPT.format(
        functions=SHELL_FUNCTIONS + functions,
        mark=output_mark,
        steps="\n".join(map(_build_shell_line, batch)),
        alone=_EXCLUSIVE_STEP if exclusive else "",
        survey=_build_survey_line(batch),
    )
    timeout += _EXCLUSIVE_WAIT_SECONDS if exclusive else 0.0
    with wait_notices.about(_name_command(batch)):
        command_result = transport.run(["sh"], input=script.encode(), timeout=timeout, sudo=True)
    command_results = _parse_results(batch, command_result.stdout, output_mark)
    has_stopped = (
        bool(command_results)
        and not command_results[-1].ok
        and batch[len(command_results) - 1].required
    )
    if len(command_results) < len(batch) and not has_stopped:
        raise _build_early_exit_error(transport.name, command_result)
    return command_results


def run_as_root(transport: Transport, argv: Sequence[str], *, timeout: float) -> CommandResult:
    """Run one command as root, without input and without functions of ``on_host.sh``.

    A nonzero exit status raises no error, even if the account cannot become root. Raises
    HostUnreachable.
    """
    # The shell reads the command from its input, because SUDOERS_RULE allows no arguments.
    words = ["timeout", "-s", "KILL", "--", f"{timeout:.3f}", *argv]
    script = f"LC_ALL=C\nexport LC_ALL\nexec {shlex.join(words)} </dev/null\n"
    return transport.run(["sh"], input=script.encode(), timeout=timeout, sudo=True)


def run_required(
    transport: Transport,
    commands: Iterable[Command],
    *,
    timeout: float = 30.0,
    exclusive: bool = False,
    functions: str = "",
) -> list[CommandResult]:
    """Run commands with ``run_commands``. Raises CommandFailed if a required command fails."""
    batch = list(commands)
    command_results = run_commands(
        transport, batch, timeout=timeout, exclusive=exclusive, functions=functions
    )
    for command, command_result in zip(batch, command_results, strict=False):
        if command.required and not command_result.ok:
            raise build_command_error(transport.name, command, command_result)
    return command_results


def build_command_error(host: str, command: Command, result: CommandResult) -> CommandFailed:
    """Return the error for a required command that failed on a host."""
    message = f"{host}: {result.error_text or ' '.join(command.argv[:2])}"
    is_configured = command.argv[0] in _CONFIGURED_COMMANDS
    return ActionFailed(message) if is_configured else CommandFailed(message)


def build_mount_command(sources: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs ``argv`` with files mounted at other paths.

    ``sources`` maps the mount paths to the files. No other process sees the mounted files.
    """
    mount_words = [word for path, source in sources.items() for word in (source, path)]
    return ("with_files", str(len(sources)), *mount_words, *argv)


def _name_command(commands: Iterable[Command]) -> str:
    """Return a description of the commands for wait notices."""
    command_words = [command.argv for command in commands]
    action_texts = [" ".join(argv[:2]) for argv in command_words if argv[0] in _ACTION_COMMANDS]
    activity_texts = {
        function: description
        for function, description in _COMMAND_DESCRIPTIONS.items()
        if any(argv[0] == function for argv in command_words)
    }
    return ", ".join(action_texts) or ", ".join(activity_texts.values()) or "running commands"


def _build_survey_line(commands: Iterable[Command]) -> str:
    """Return the shell line that classifies the directories of all files that commands use."""
    paths = dict.fromkeys(
        path for command in commands for path in _list_file_arguments(command.argv)
    )
    return f"survey {shlex.join(paths)}" if paths else ""


def _list_file_arguments(argv: Sequence[str]) -> Sequence[str]:
    """Return the configuration files that a command reads or changes."""
    match argv[0]:
        case "look" | "contents" | "unstage" | "check_places":
            return argv[1:]
        case "stage" | "stage_link" | "swap" | "remove":
            return argv[1:2]
    return ()


def _build_shell_line(command: Command) -> str:
    """Return a shell line with every word quoted, so that the shell interprets no word as code."""
    shell_line = f"    step {shlex.join(command.argv)}"
    return f"{shell_line} || return" if command.required else shell_line


def _parse_results(commands: list[Command], output: str, output_mark: str) -> list[CommandResult]:
    (_, *output_pieces) = output.split(f"\n{output_mark} ")  # sudo and shell profiles may print too
    printed_text, command_results = "", list[CommandResult]()
    if output_pieces:
        printed_text = output_pieces[0].removeprefix("begin\n")
    for command, output_piece in zip(commands, output_pieces[1:], strict=False):
        exit_status, _, remaining_output = output_piece.partition("\n")
        if not is_uint(exit_status):
            break
        command_results.append(CommandResult(command.argv, int(exit_status), printed_text, ""))
        printed_text = remaining_output
    return command_results


def _build_early_exit_error(host: str, command_result: CommandResult) -> AutotuneError:
    if "sudo" in command_result.stderr:
        return AutotuneError(
            f"{host} does not allow the account to become root: {command_result.error_text}",
            hint=f"add the line `ACCOUNT {SUDOERS_RULE}` to a file in /etc/sudoers.d on {host} "
            "(SECURITY.md), so that the account may run `sudo -n sh`; or log in as root",
        )
    return AutotuneError(f"commands on {host} stopped early: {command_result.error_text[:400]}")
