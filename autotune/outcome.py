"""How the program ends: a message, a hint and an exit code for everything that can happen."""

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
from autotune.streams import OutputFailed, abandon_output
from autotune.terminal import echo

# Errors of the system that autotune cannot resolve, with what the user can do.
ENVIRONMENT: dict[int, str | None] = {
    errno.ENOSPC: "make room, then `autotune resume` or `autotune restore` goes on",
    errno.EDQUOT: "make room, then `autotune resume` or `autotune restore` goes on",
    errno.EACCES: "name a place that you may write to, or run it as who may",
    errno.EPERM: "name a place that you may write to, or run it as who may",
    errno.EROFS: "name a place that can be written to",
    errno.ENOENT: None,
    errno.ENOTDIR: "name a directory",
    errno.EISDIR: "name a file",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.EMFILE: "`ulimit -n` allows too few open files",
}

# Options that other programs have, with what does the same here.
OPTIONS = {
    "dry-run": "`autotune plan TARGET` shows what a run would do",
    "n": "`autotune plan TARGET` shows what a run would do",
    "trials": "`autotune run TARGET --trials N`, or `budget: {trials: N}` in the target",
    "time": "`autotune run TARGET --time 15m`, or `budget: {time: 15m}` in the target",
    "q": "progress goes to standard error: `2>/dev/null` keeps the result alone",
    "quiet": "progress goes to standard error: `2>/dev/null` keeps the result alone",
    "o": "`export --out DIRECTORY`, `report --html FILE`, `init --out FILE`",
    "output": "`export --out DIRECTORY`, `report --html FILE`, `init --out FILE`",
    "format": "`autotune export STUDY --format …`; `report` has --html and --json",
    "verbose": "after the command: `autotune run TARGET --verbose`",
    "v": "after the command: `autotune run TARGET -v`; `autotune --version` is the version",
    "yes": "after the command: `autotune run TARGET --yes`",
    "json": "after the command: `autotune status --json`",
    "target": "the target file is an argument: `autotune run TARGET`",
    "t": "the target file is an argument: `autotune run TARGET`",
    "study": "the study is an argument: `autotune report STUDY`",
}

# Commands that other programs have, likewise.
COMMANDS = {
    "help": "`autotune --help`, or `autotune COMMAND --help`",
    "version": "`autotune --version`",
    "list": "`autotune status` lists the studies, `autotune params` the parameters",
    "ls": "`autotune status` lists the studies",
    "rm": "a study is a directory: `autotune restore STUDY`, then `rm -r studies/STUDY`",
    "delete": "a study is a directory: `autotune restore STUDY`, then `rm -r studies/STUDY`",
    "stop": "Ctrl-C or SIGTERM to `autotune run` stops it and restores; `autotune resume` goes on",
    "kill": "Ctrl-C or SIGTERM to `autotune run` stops it and restores; `autotune resume` goes on",
    "start": "`autotune run TARGET`",
    "tune": "`autotune run TARGET`",
    "optimize": "`autotune run TARGET`",
    "validate": "`autotune check TARGET`",
    "test": "`autotune check TARGET`",
    "preview": "`autotune plan TARGET`",
    "show": "`autotune report STUDY`",
    "bench": "`autotune measure TARGET`",
    "benchmark": "`autotune measure TARGET`",
    "deploy": "`autotune apply EXPORT TARGET`",
    "rollback": "`autotune restore STUDY`",
    "undo": "`autotune restore STUDY`",
    "revert": "`autotune restore STUDY`",
}


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends a command just as Ctrl-C does, with everything restored."""


def end(act: Callable[[], Any], *, as_json: bool) -> int:
    """Run a command; its exit code. Tells the user what went wrong, never with a traceback."""
    try:
        return _end(act, as_json=as_json)
    except OutputFailed as error:
        abandon_output()
        return _say_error(error, as_json=False)
    except (BrokenPipeError, SystemExit) as error:
        return _end_of_pipe(error)


def _end(act: Callable[[], Any], *, as_json: bool) -> int:  # noqa: PLR0911  # a line per ending
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
        return _say_refusal(error, as_json=as_json)
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
    """All mistakes of a target, each with its line; as JSON one object, which leads with the first."""
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
    """A command line that makes no sense; Typer words it, with the usage, better than we could."""
    error.show()  # type: ignore[attr-defined]  # every one that reaches here has it
    command = re.search("No such command '(.*?)'", str(error))
    of_command = COMMANDS.get(command[1]) if command else None
    meant = of_command or OPTIONS.get(getattr(error, "option_name", "").lstrip("-"))
    if meant:
        echo(f"  hint: {meant}", err=True)
    hint = meant or "--help says how it is called"
    if as_json:
        _print(str(error), hint, errors.USAGE)
    return errors.USAGE


def _say_refusal(error: OSError, *, as_json: bool) -> int:
    """What the system does not let us do, and what to do about it."""
    if error.errno not in ENVIRONMENT:
        return _say_bug(as_json=as_json)
    message = (error.strerror or str(error)).lower()
    path = error.filename2 or error.filename
    what = message if path is None else f"{os.fsdecode(path)}: {message}"
    return _say(what, ENVIRONMENT[error.errno], errors.OPERATIONAL, as_json=as_json)


def _say_bug(*, as_json: bool) -> int:
    with tempfile.NamedTemporaryFile(
        "w", prefix="autotune-bug-", suffix=".log", delete=False
    ) as log:
        traceback.print_exc(file=log)
    last = traceback.format_exc().strip().splitlines()[-1]
    hint = f"please report it with {log.name}"
    return _say(f"this is a bug in autotune: {last}", hint, errors.BUG, as_json=as_json)
