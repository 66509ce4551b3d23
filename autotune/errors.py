"""Errors that a user can resolve, and the exit status of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class ExitCode:
    """An exit status of the program. ``details`` are for the reference page."""

    code: int
    when: str
    details: str = ""


# Errors of code that reads a study's records or database, if someone else has written invalid content.
INVALID_CONTENT_ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
)
OPERATIONAL_EXIT_CODE = 1
USAGE_EXIT_CODE = 2
INVALID_TARGET_EXIT_CODE = 3
NOT_IMPROVED_EXIT_CODE = 4
LOCKED_EXIT_CODE = 5
CHANGES_PRESENT_EXIT_CODE = 6
BUG_EXIT_CODE = 70
INTERRUPTED_EXIT_CODE = 130

EXIT_CODES = (
    ExitCode(0, "success", "The command finished."),
    ExitCode(
        OPERATIONAL_EXIT_CODE,
        "error",
        "The message describes the failure, and the hint suggests a fix. autotune restores the hosts"
        " before it exits; the message names hosts that are not restored.",
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
        LOCKED_EXIT_CODE,
        "locked",
        "Another autotune process uses the study or a host. The message names it.",
    ),
    ExitCode(
        CHANGES_PRESENT_EXIT_CODE,
        "changes present",
        "Only with `--exit-code`, for `plan` and `diff`: the recommended settings would change a host, or"
        " the configurations differ.",
    ),
    ExitCode(BUG_EXIT_CODE, "bug", "The message names a log: attach it to your bug report."),
    ExitCode(
        INTERRUPTED_EXIT_CODE,
        "interrupted",
        "Ctrl-C, SIGTERM or SIGHUP. Hosts are restored; `resume` continues a study.",
    ),
)


class AutotuneError(Exception):
    """An error that is not a bug of autotune.

    ``message`` describes the failure, and ``hint`` suggests a fix. autotune prints message and hint
    without a traceback, and exits with ``exit_code``.
    """

    exit_code = OPERATIONAL_EXIT_CODE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AutotuneError):
    """An option has an invalid value."""

    exit_code = USAGE_EXIT_CODE


class TargetError(AutotuneError):
    """A mistake in a target file. The message starts with ``file:line:column:``.

    ``place`` is the line and column of the mistake. ``excerpt`` is the line with a caret below the
    column, or empty if the line might contain a secret. ``others`` are further mistakes in the same
    file.
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


class NotRestoredError(AutotuneError):
    """A host could not be restored, or the stack does not respond correctly after the restore."""


class TargetErrorCollector:
    """A collector of the errors in a target, so that all errors are reported together."""

    def __init__(self) -> None:
        self._errors: list[TargetError] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Collect a TargetError that the ``with`` block raises, and continue."""
        try:
            yield
        except TargetError as error:
            self._errors += [error, *error.others]

    def raise_all(self) -> None:
        """Raise the first error in the file, if any, with the other errors in its ``others``."""
        if self._errors:
            first_error, *further_errors = sorted(self._errors, key=lambda error: error.place)
            first_error.others = tuple(further_errors)
            raise first_error


class LockedError(AutotuneError):
    """Another tuner has locked the study or a host."""

    exit_code = LOCKED_EXIT_CODE


def join_errors(
    errors: Iterable[AutotuneError], *, first_lines: Iterable[str] = ()
) -> AutotuneError:
    """Return one error whose message contains ``first_lines`` and the lines of several errors, without
    duplicates.

    If all errors have the same class, the joined error has this class. Otherwise, it is an
    AutotuneError.
    """
    lines = list(first_lines)
    first_error, *further_errors = errors
    if not lines and not further_errors:
        return first_error
    is_one_class = all(type(error) is type(first_error) for error in further_errors)
    error_class = type(first_error) if is_one_class else AutotuneError
    messages = "\n".join(
        [*lines, first_error.message, *(error.message for error in further_errors)]
    )
    return error_class("\n".join(dict.fromkeys(messages.splitlines())), hint=first_error.hint)


class RenderError(AutotuneError):
    """A template is missing or broken, or uses a value that does not exist."""


def describe_invalid_content(error: Exception) -> str:
    """Return the type of one of ``INVALID_CONTENT_ERRORS``, and the start of its message."""
    return f"{type(error).__name__}: {str(error)[:200]}"
