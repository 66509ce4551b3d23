"""Errors a user can do something about, and the exit code each one ends the program with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class ExitCode:
    """A status that the program exits with; ``details`` are for the reference page."""

    code: int
    when: str
    details: str = ""


OPERATIONAL_EXIT_CODE = 1
USAGE_EXIT_CODE = 2
INVALID_TARGET_EXIT_CODE = 3
NOT_IMPROVED_EXIT_CODE = 4
LOCKED_EXIT_CODE = 5
CHANGES_PRESENT_EXIT_CODE = 6
BUG_EXIT_CODE = 70
INTERRUPTED_EXIT_CODE = 130

EXIT_CODES = (
    ExitCode(0, "success", "The command did what it was asked to do."),
    ExitCode(
        OPERATIONAL_EXIT_CODE,
        "error",
        "The message names what failed, and a hint what to do. Hosts are restored first.",
    ),
    ExitCode(
        USAGE_EXIT_CODE,
        "wrong usage",
        "An option or an argument is unknown, missing or out of range.",
    ),
    ExitCode(
        INVALID_TARGET_EXIT_CODE, "invalid target", "The message starts with file, line and column."
    ),
    ExitCode(
        NOT_IMPROVED_EXIT_CODE,
        "no proven improvement (or below `--at-least`)",
        "Only with `--exit-code`, for `run`, `resume`, `worker` and `measure`.",
    ),
    ExitCode(
        LOCKED_EXIT_CODE, "locked", "Another tuner uses the study or a host. The message names it."
    ),
    ExitCode(
        CHANGES_PRESENT_EXIT_CODE,
        "changes present",
        "Only with `plan --exit-code`: a host differs from the baseline of the target.",
    ),
    ExitCode(BUG_EXIT_CODE, "bug", "The message names a log to attach to a report."),
    ExitCode(
        INTERRUPTED_EXIT_CODE,
        "interrupted",
        "Ctrl-C, SIGTERM or SIGHUP. Hosts are restored; `resume` continues a study.",
    ),
)


class AutotuneError(Exception):
    """Something went wrong that is not a bug of autotune.

    ``message`` names the failure, ``hint`` the fix. Both are printed without a traceback, and the
    program exits with ``exit_code``.
    """

    exit_code = OPERATIONAL_EXIT_CODE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AutotuneError):
    """An option has a value that this target does not allow."""

    exit_code = USAGE_EXIT_CODE


class TargetError(AutotuneError):
    """The target file cannot be used; the message starts with ``file:line:column:``.

    ``position`` is the line and column, ``excerpt`` the line with a caret below the column, empty where
    it might show a secret. ``others`` are further mistakes of the same file.
    """

    exit_code = INVALID_TARGET_EXIT_CODE

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        position: tuple[int, int] = (1, 1),
        excerpt: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.place, self.excerpt = position, excerpt
        self.others: tuple[TargetError, ...] = ()


class TargetErrorCollector:
    """Collects the errors of a target, so that all are reported together."""

    def __init__(self) -> None:
        self._errors: list[TargetError] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Collect a TargetError that is raised within, and continue."""
        try:
            yield
        except TargetError as error:
            self._errors += [error, *error.others]

    def raise_all(self) -> None:
        """Raise the first in the file, with all others; nothing where there are none."""
        if self._errors:
            first, *others = sorted(self._errors, key=lambda error: error.place)
            first.others = tuple(others)
            raise first


class LockedError(AutotuneError):
    """Another tuner holds the study or a host."""

    exit_code = LOCKED_EXIT_CODE


def join_errors(
    errors: Iterable[AutotuneError], *, first_lines: Iterable[str] = ()
) -> AutotuneError:
    """Several errors as one, each line once. First come the lines ``first_lines``, which say what was
    done.

    If all errors have one class, the joined error has it, too. Otherwise it is an AutotuneError.
    """
    lines = list(first_lines)
    first, *others = errors
    if not lines and not others:
        return first
    same = all(type(error) is type(first) for error in others)
    kind = type(first) if same else AutotuneError
    messages = "\n".join([*lines, first.message, *(error.message for error in others)])
    return kind("\n".join(dict.fromkeys(messages.splitlines())), hint=first.hint)


class RenderError(AutotuneError):
    """A template is missing, broken, or asks for a value that does not exist."""
