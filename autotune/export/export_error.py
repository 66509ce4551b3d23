"""The error for a study that cannot be exported as a script, a role or a patch."""

from __future__ import annotations

from autotune.errors import AutotuneError
from autotune.report.studies import Study

APPLY_HINT = "`autotune export` without --format, then `autotune apply`"
RENDER_DIRECTORY = "/run/autotune"  # directory in which hosts validate configurations


class ExportError(AutotuneError):
    """A study cannot be exported, because a record contradicts its target or services.

    ``reason`` completes the sentence of the message.
    """

    def __init__(self, study: Study, reason: str, hint: str = "") -> None:
        super().__init__(
            f"study {study.name!r} is not exported: {reason}",
            hint=hint
            or "restore its events.jsonl from a copy, or start a new study with `autotune run`",
        )
