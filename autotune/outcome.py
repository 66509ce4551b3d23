"""How the program ends: a message, a hint and an exit code for everything that can happen."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

from typer import Abort, Exit
from typer.exceptions import TyperException

from autotune import errors
from autotune.errors import AutotuneError


class Interrupted(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends a command just as Ctrl-C does, with everything put back."""


def end(act: Callable[[], Any], *, as_json: bool) -> int:  # noqa: PLR0911  # a line per ending
    """Run a command; its exit code. Tells the user what went wrong, never with a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        result = act()
    except AutotuneError as error:
        return _say(error.message, error.hint, error.exit_code, as_json=as_json)
    except (KeyboardInterrupt, Abort) as error:
        message = str(error) or "interrupted"
        return _say(message, None, errors.INTERRUPTED, as_json=as_json)
    except Exit as error:
        return int(error.exit_code)
    except TyperException as error:
        # A command line that makes no sense; Typer words it, with the usage, better than we could.
        error.show()  # type: ignore[attr-defined]  # every one that reaches here has it
        return errors.USAGE
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing more can be said to them.
        sys.stderr.close()
        return 0
    except Exception:  # noqa: BLE001  # the last line of defence: a bug is reported as one
        return _say_bug(as_json=as_json)
    return result if isinstance(result, int) else 0


def _interrupt(*_: object) -> None:
    raise Interrupted


def _say(message: str, hint: str | None, code: int, *, as_json: bool) -> int:
    print(f"autotune: {message}", file=sys.stderr)
    if hint:
        print(f"  hint: {hint}", file=sys.stderr)
    if as_json:
        print(json.dumps({"schema": 1, "error": {"message": message, "hint": hint, "code": code}}))
    return code


def _say_bug(*, as_json: bool) -> int:
    with tempfile.NamedTemporaryFile(
        "w", prefix="autotune-bug-", suffix=".log", delete=False
    ) as log:
        traceback.print_exc(file=log)
    last = traceback.format_exc().strip().splitlines()[-1]
    hint = f"please report it with {log.name}"
    return _say(f"this is a bug in autotune: {last}", hint, errors.BUG, as_json=as_json)
