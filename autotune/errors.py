"""Errors a user can do something about, and the exit code each one ends the program with."""

from __future__ import annotations

from collections.abc import Iterable

OPERATIONAL = 1
USAGE = 2
INVALID_TARGET = 3
NOT_IMPROVED = 4
LOCKED = 5
CHANGES_PRESENT = 6
BUG = 70
INTERRUPTED = 130


class AutotuneError(Exception):
    """Something went wrong that is not a bug of autotune.

    ``message`` says what happened, ``hint`` what to do about it; both are printed, without a
    traceback, and the program ends with ``exit_code``.
    """

    exit_code = OPERATIONAL

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class TargetError(AutotuneError):
    """The target file cannot be used; the message starts with ``file:line:column:``."""

    exit_code = INVALID_TARGET


class LockedError(AutotuneError):
    """Another tuner holds the study or a host."""

    exit_code = LOCKED


def joined(errors: Iterable[AutotuneError], *, after: Iterable[str] = ()) -> AutotuneError:
    """Several errors as one, each line once, below the lines of what was done ``after`` all.

    It is of their kind where they all are of one kind.
    """
    lines = list(after)
    first, *others = errors
    if not lines and not others:
        return first
    same = all(type(error) is type(first) for error in others)
    kind = type(first) if same else AutotuneError
    messages = "\n".join([*lines, first.message, *(error.message for error in others)])
    return kind("\n".join(dict.fromkeys(messages.splitlines())), hint=first.hint)
