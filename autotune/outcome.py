"""The end of the program: message, hint and exit status for every outcome."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import tempfile
import textwrap
import traceback
from collections.abc import Callable
from typing import Any

from typer import Abort, Exit
from typer.exceptions import TyperException

from autotune import errors
from autotune.errors import AutotuneError
from autotune.hints import command_hint, option_hint, room_hint
from autotune.streams import OutputFailed, abandon_output
from autotune.terminal import echo

# Errors of the system that autotune cannot resolve, with hints.
ENVIRONMENT: dict[int, str | None] = {
    errno.EACCES: "name a writable path, or use an account that may write there",
    errno.EPERM: "name a writable path, or use an account that may write there",
    errno.EROFS: "name a writable path",
    errno.ENOENT: None,
    errno.ENOTDIR: "name a directory",
    errno.EISDIR: "name a file",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EMFILE: "`ulimit -n` allows too few open files",
}


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP: stops a command as Ctrl-C does, with all hosts restored."""


def end(act: Callable[[], Any], *, as_json: bool, command: str = "") -> int:
    """Run a command and return its exit status. Prints errors, never a traceback."""
    try:
        return _end(act, as_json=as_json, command=command)
    except OutputFailed as error:
        abandon_output()
        return _say_error(error, as_json=False)
    except (BrokenPipeError, SystemExit) as error:
        return _end_of_pipe(error)


def _end(act: Callable[[], Any], *, as_json: bool, command: str) -> int:  # noqa: PLR0911  # a line per ending
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, _interrupt)
    try:
        result = act()
    except (OutputFailed, BrokenPipeError, SystemExit):
        raise
    except AutotuneError as error:
        return _say_error(error, as_json=as_json)
    except (KeyboardInterrupt, Abort) as error:
        message = str(error) or "interrupted"
        return _say(message, None, errors.INTERRUPTED, as_json=as_json)
    except Exit as error:
        return int(error.exit_code)
    except TyperException as error:
        return _say_usage(error, as_json=as_json)
    except OSError as error:
        return _say_refusal(error, command, as_json=as_json)
    except Exception:  # noqa: BLE001  # the last line of defence: a bug is reported as one
        return _say_bug(as_json=as_json)
    return result if isinstance(result, int) else 0


def _end_of_pipe(error: BaseException) -> int:
    """The reader of the output has closed the pipe: nothing more can be printed.

    Typer turns a broken pipe into `exit(1)`. Raises any other reason to exit.
    """
    if not any(isinstance(e, BrokenPipeError) for e in (error, error.__context__)):
        raise error
    abandon_output()
    return 0


def _interrupt(*_: object) -> None:
    raise Interrupted


def _say_error(error: AutotuneError, *, as_json: bool) -> int:
    """Print all mistakes of a target with their lines; as JSON, one object with the first on top."""
    mistakes = [error, *error.others] if isinstance(error, errors.TargetError) else [error]
    for mistake in mistakes:
        echo(f"autotune: {mistake.message}", err=True)
        if isinstance(mistake, errors.TargetError) and mistake.excerpt:
            echo(textwrap.indent(mistake.excerpt, "    "), err=True)
        if mistake.hint:
            echo(f"  hint: {mistake.hint}", err=True)
    if as_json:
        every = [{"message": mistake.message, "hint": mistake.hint} for mistake in mistakes]
        more = {"mistakes": every} if isinstance(error, errors.TargetError) else {}
        _print(error.message, error.hint, error.exit_code, **more)
    return error.exit_code


def _say(message: str, hint: str | None, code: int, *, as_json: bool) -> int:
    echo(f"autotune: {message}", err=True)
    if hint:
        echo(f"  hint: {hint}", err=True)
    if as_json:
        _print(message, hint, code)
    return code


def _print(message: str, hint: str | None, code: int, **more: Any) -> None:
    error = {"message": message, "hint": hint, "code": code, **more}
    echo(json.dumps({"schema": 1, "error": error}))


def _say_usage(error: TyperException, *, as_json: bool) -> int:
    """Print a usage error in the words of Typer, with a hint."""
    error.show()  # type: ignore[attr-defined]  # every one that reaches here has it
    command = re.search("No such command '(.*?)'", str(error))
    meant = command_hint(command[1]) if command else None
    if "No such option" in str(error) and (option := getattr(error, "option_name", "")):
        meant = option_hint(option, _command_of(getattr(error, "ctx", None)))
    if meant:
        echo(f"  hint: {meant}", err=True)
    hint = meant or "`--help` shows the usage"
    if as_json:
        _print(str(error), hint, errors.USAGE)
    return errors.USAGE


def _command_of(context: Any) -> str:
    """The command that was typed, without the program; "" for none."""
    names = []
    while context is not None and context.parent is not None:
        names.append(context.info_name)
        context = context.parent
    return " ".join(reversed(names))


def _say_refusal(error: OSError, command: str, *, as_json: bool) -> int:
    """Print an error of the system, with a hint."""
    hints = ENVIRONMENT | dict.fromkeys((errno.ENOSPC, errno.EDQUOT), room_hint(command))
    if error.errno not in hints:
        return _say_bug(as_json=as_json)
    message = (error.strerror or str(error)).lower()
    path = error.filename2 or error.filename
    what = message if path is None else f"{os.fsdecode(path)}: {message}"
    return _say(what, hints[error.errno], errors.OPERATIONAL, as_json=as_json)


def _say_bug(*, as_json: bool) -> int:
    with tempfile.NamedTemporaryFile(
        "w", prefix="autotune-bug-", suffix=".log", delete=False
    ) as log:
        traceback.print_exc(file=log)
    last = traceback.format_exc().strip().splitlines()[-1]
    hint = f"report it, and attach {log.name}"
    return _say(f"this is a bug in autotune: {last}", hint, errors.BUG, as_json=as_json)
