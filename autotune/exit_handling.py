"""Print a message and a hint, and choose the exit status, for every outcome of a command."""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from typer import Abort, Exit
from typer.exceptions import TyperException

from autotune import errors
from autotune.errors import AutotuneError
from autotune.hints import (
    build_disk_full_hint,
    find_assignment_hint,
    find_command_hint,
    find_extra_argument_hint,
    find_missing_parameter_hint,
    find_near_option_hint,
    find_option_hint,
    find_other_command_hint,
    find_separate_value_hint,
    find_single_hyphen_hint,
    is_fallback,
)
from autotune.standard_streams import OutputError, discard_output
from autotune.study_argument import STUDIES_DIRECTORY
from autotune.terminal import echo, print_json

ARGUMENTS_KEY = "autotune.arguments"  # of a command, in the metadata of its context
# System errors that autotune cannot resolve, each with a hint for the user.
SYSTEM_ERROR_HINTS: dict[int, str | None] = {
    errno.EACCES: "name another path, or use an account with access to it",
    errno.EPERM: "name another path, or use an account with access to it",
    errno.EROFS: "name a writable path",
    errno.ENOENT: "check the path, and create its directory first",
    errno.EEXIST: "name another path",
    errno.EIO: "check the disk, or name another file",
    errno.ENXIO: "name a file that can be opened",
    errno.ELOOP: "name a path without a loop of links",
    errno.ENOTDIR: "name a directory",
    errno.EISDIR: "name a file",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EMFILE: "`ulimit -n` allows too few open files",
    errno.ENFILE: "too many files are open on this machine",
    errno.EFBIG: "`ulimit -f` allows only smaller files",
    errno.EAGAIN: "`ulimit -u` allows too few processes",
    errno.ENOMEM: "free memory, and run the command again",
    errno.ESTALE: "mount the network file system again",
}


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP was received. Like Ctrl-C, the signal stops a command, and hosts are restored."""


def run_command(action: Callable[[], Any], *, as_json: bool, command: str = "") -> int:
    """Run a command and return its exit status. Errors are printed without a traceback."""
    try:
        return _run_and_report(action, as_json=as_json, command=command)
    except OutputError as error:
        discard_output()
        return _report_error(error, as_json=False)
    except (BrokenPipeError, SystemExit) as error:
        return _handle_broken_pipe(error)


def _run_and_report(action: Callable[[], Any], *, as_json: bool, command: str) -> int:  # noqa: PLR0911  # one per outcome
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signal_number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
            signal.signal(signal_number, _raise_interrupted)
    try:
        result = action()
    except (OutputError, BrokenPipeError, SystemExit):
        raise
    except AutotuneError as error:
        return _report_error(error, as_json=as_json)
    except (KeyboardInterrupt, Abort) as error:
        message = str(error) or "interrupted"
        return _report_message(message, None, errors.INTERRUPTED_EXIT_CODE, as_json=as_json)
    except Exit as error:
        return int(error.exit_code)
    except TyperException as error:
        return _report_usage_error(error, as_json=as_json)
    except OSError as error:
        return _report_system_error(error, command, as_json=as_json)
    except Exception:  # noqa: BLE001 # any other exception is a bug, and is reported as one
        return _report_bug(as_json=as_json)
    return result if isinstance(result, int) else 0


def _handle_broken_pipe(error: BaseException) -> int:
    """Return exit status 0 if the program that reads the output closed the pipe. Otherwise, raise
    ``error``.

    Typer converts a broken pipe to `exit(1)`.
    """
    if not any(isinstance(e, BrokenPipeError) for e in (error, error.__context__)):
        raise error
    discard_output()
    return 0


def _raise_interrupted(*_: object) -> None:
    raise Interrupted


def _report_error(error: AutotuneError, *, as_json: bool) -> int:
    """Print an error. For a mistake in a target, also print all other mistakes, each with its line.

    JSON output is one object with the first mistake at its top level.
    """
    mistakes = [error, *error.others] if isinstance(error, errors.TargetError) else [error]
    for mistake in mistakes:
        print_mistake(mistake)
    if as_json:
        mistake_records = [
            {"message": mistake.message, "hint": mistake.hint} for mistake in mistakes
        ]
        extra_keys = {"mistakes": mistake_records} if isinstance(error, errors.TargetError) else {}
        _print_error_json(error.message, error.hint, error.exit_code, **extra_keys)
    return error.exit_code


def print_mistake(mistake: AutotuneError, mark: str = "") -> None:
    """Print an error or, with ``mark``, a warning: its message, line and hint."""
    echo(f"autotune: {mark}{mistake.message}", err=True)
    if isinstance(mistake, errors.TargetError) and mistake.excerpt:
        echo(textwrap.indent(mistake.excerpt, "    "), err=True)
    if mistake.hint:
        echo(f"  hint: {mistake.hint}", err=True)


def _report_message(message: str, hint: str | None, exit_code: int, *, as_json: bool) -> int:
    echo(f"autotune: {message}", err=True)
    if hint:
        echo(f"  hint: {hint}", err=True)
    if as_json:
        _print_error_json(message, hint, exit_code)
    return exit_code


def _print_error_json(message: str, hint: str | None, exit_code: int, **extra_keys: Any) -> None:
    error = {"message": message, "hint": hint, "code": exit_code, **extra_keys}
    try:
        print_json({"schema": 1, "error": error})
    except BrokenPipeError:  # the command has failed, even if no program reads the reason
        discard_output()


def _report_usage_error(error: TyperException, *, as_json: bool) -> int:
    """Print a usage error with Typer's message, without its jargon, and a hint."""
    if hasattr(error, "message"):
        error.message = _simplify_value_message(error.message)
    hint = _find_usage_hint(error)
    if hint and not is_fallback(hint) and hasattr(error, "possibilities"):
        error.possibilities = []  # drop Typer's own suggestions
    error.show()  # type: ignore[attr-defined]  # all of Typer's usage errors have this method
    if hint:
        echo(f"  hint: {hint}", err=True)
    if as_json:
        _print_error_json(str(error), hint or "`--help` shows the usage", errors.USAGE_EXIT_CODE)
    return errors.USAGE_EXIT_CODE


def _find_usage_hint(error: TyperException) -> str | None:
    context: Any = getattr(error, "ctx", None)
    command = _find_typed_command(context)
    option = getattr(error, "option_name", "")
    if command_match := re.search("No such command '(.*?)'", str(error)):
        return _find_command_hint(error, command_match[1], command)
    if "No such option" in str(error) and option:
        hint = _find_option_hint(option, command, context)
        if not is_fallback(hint):
            return hint
        return _find_other_command_hint(option, command, context) or hint
    if extra_match := re.search(r"unexpected extra argument.*? \((\S+)", error.format_message()):
        return _find_extra_argument_hint(extra_match[1].rstrip(")"), command, context)
    return _find_parameter_hint(error, context, option)


def _find_option_hint(option: str, command: str, context: Any) -> str:
    options = _list_options(context.command) if context else frozenset()
    words = context.meta.get(ARGUMENTS_KEY, ()) if context else sys.argv[1:]
    if hint := find_single_hyphen_hint(words, options):
        return hint
    hint = find_option_hint(option, command)
    if context is None or not is_fallback(hint):
        return hint
    if near_hint := find_near_option_hint(option, options):
        return near_hint
    argument_names = {p.metavar for p in context.command.params if p.param_type_name == "argument"}
    name = option.lstrip("-").upper()
    if len(name) > 1 and name in argument_names:
        return f"pass it as an argument, not as an option: `autotune {command} {name}`"
    return hint


def _find_other_command_hint(option: str, command: str, context: Any) -> str | None:
    if context is None:
        return None
    commands = getattr(context.find_root().command, "commands", {})
    options_by_command = {name: _list_options(c) for name, c in commands.items()}
    return find_other_command_hint(option, command, options_by_command)


def _list_options(command: Any) -> frozenset[str]:
    return frozenset(name for parameter in command.params for name in parameter.opts)


def _find_extra_argument_hint(argument: str, command: str, context: Any) -> str:
    parameters = context.command.params
    if hint := _find_split_value_hint(argument, context):
        return hint
    argument_names = [p.metavar for p in parameters if p.param_type_name == "argument"]
    studies = context.params.get("studies") or STUDIES_DIRECTORY
    # `Path.exists` raises OSError for a name that is too long.
    is_path = any(os.path.exists(path) for path in (argument, studies / argument))  # noqa: PTH110
    return find_extra_argument_hint(argument, command, argument_names, is_path=is_path)


def _find_split_value_hint(argument: str, context: Any) -> str | None:
    """Return the hint for an argument that a space separates from the value of an option, or
    ``None``.
    """
    words = context.meta.get(ARGUMENTS_KEY, ())
    for parameter in context.command.params:
        given_value = context.params.get(parameter.name)
        values = [given_value] if isinstance(given_value, str) else given_value
        is_option, metavar = parameter.param_type_name == "option", parameter.metavar or ""
        if not (is_option and values and isinstance(values, list | tuple)):
            continue
        option, last_value = parameter.opts[0], str(values[-1])
        is_assignment = "=" in metavar
        for value in values if is_assignment else ():
            if "=" not in value or value.endswith("="):
                typed_value = argument.lstrip("=") or _find_next_word(words, argument)
                return find_assignment_hint(option, value, typed_value)
        if (last_value, argument) not in itertools.pairwise(words):
            continue
        if last_value.endswith((",", ";")) or metavar.endswith(",…"):
            return find_separate_value_hint(option, [last_value], argument, ",")
        if parameter.multiple and not is_assignment:
            return find_separate_value_hint(option, [last_value], argument, "")
    return None


def _find_next_word(words: Sequence[str], word: str) -> str:
    """Return the word after ``word``, or `VALUE` if it is the last one."""
    following_words = (after for before, after in itertools.pairwise(words) if before == word)
    return next(following_words, "VALUE")


def _find_command_hint(error: TyperException, name: str, group: str) -> str | None:
    """Return the hint for an unknown command, or ``None`` if Typer's message suggests a command. A hint
    replaces Typer's suggestion.
    """
    suggestion_start = error.message.find(" Did you mean")
    if hint := find_command_hint(name, group):
        if suggestion_start >= 0:
            error.message = error.message[:suggestion_start]
        return hint
    if suggestion_start >= 0:
        return None
    if name.lower() in getattr(error.ctx.command, "commands", ()):  # type: ignore[attr-defined]
        return f"did you mean {name.lower()!r}?"
    return f"`{' '.join(filter(None, ('autotune', group)))} --help` lists the commands"


def _find_parameter_hint(error: TyperException, context: Any, option: str) -> str | None:
    """Return the hint for a missing or invalid parameter, or ``None``."""
    parameter, message = getattr(error, "param", None), error.format_message()
    if parameter is not None and message.startswith("Missing"):
        is_argument = parameter.param_type_name == "argument"
        return find_missing_parameter_hint(parameter.metavar if is_argument else parameter.opts[0])
    if parameter is not None and "not a whole number" in message:
        return f"write digits only, such as `{parameter.opts[0]} 20`"
    if "requires an argument" in message:
        parameters = context.command.params if context else ()
        metavar = next((p.metavar for p in parameters if option in p.opts), None)
        return f"write `{option} {metavar or 'VALUE'}`"
    return f"write only `{option}`" if "does not take a value" in message else None


def _simplify_value_message(message: str) -> str:
    """Reword Typer's message about the value of an option, to match autotune's own messages."""
    message = re.sub("Input should be a valid integer.*", "not a whole number", message)
    message = message.replace("Input should be greater than or equal to", "must be at least")
    return message.replace("Input should be less than or equal to", "must be at most")


def _find_typed_command(context: Any) -> str:
    """Return the typed command without the program's name; empty if no command was typed."""
    command_names = []
    while context is not None and context.parent is not None:
        command_names.append(context.info_name)
        context = context.parent
    return " ".join(reversed(command_names))


def _report_system_error(error: OSError, command: str, *, as_json: bool) -> int:
    """Print an operating system error with a hint."""
    hints_by_errno = SYSTEM_ERROR_HINTS | dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT), build_disk_full_hint(command)
    )
    if error.errno not in hints_by_errno:
        return _report_bug(as_json=as_json)
    message = (error.strerror or str(error)).lower()
    error_path = error.filename2 or error.filename
    error_text = message if error_path is None else f"{os.fsdecode(error_path)}: {message}"
    return _report_message(
        error_text, hints_by_errno[error.errno], errors.OPERATIONAL_EXIT_CODE, as_json=as_json
    )


def _report_bug(*, as_json: bool) -> int:
    bug_traceback = traceback.format_exc()
    error_summary = bug_traceback.strip().splitlines()[-1]
    try:
        hint = f"report it, and attach {_write_bug_log(bug_traceback)}"
    except OSError:  # the disk is full, or there is no directory for temporary files
        echo(bug_traceback, err=True, end="")
        hint = "report it, and attach the lines above"
    return _report_message(
        f"this is a bug in autotune: {error_summary}", hint, errors.BUG_EXIT_CODE, as_json=as_json
    )


def _write_bug_log(bug_traceback: str) -> str:
    """Write a traceback to a temporary file, and return the path of the file. Raises OSError."""
    with tempfile.NamedTemporaryFile(
        "wb", prefix="autotune-bug-", suffix=".log", delete=False
    ) as log_file:
        # Names in messages may contain bytes that are not UTF-8.
        log_file.write(bug_traceback.encode("utf-8", "backslashreplace"))
    return log_file.name
