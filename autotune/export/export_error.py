"""The refusal of a study whose records cannot become a script, a role or a patch."""

from __future__ import annotations

from autotune.errors import AutotuneError
from autotune.report.studies import Study

APPLY_HINT = "`autotune export` without --format, then `autotune apply`"
RENDER_DIRECTORY = "/run/autotune"  # where software tries configurations on a host


class ExportError(AutotuneError):
    """A study with a record that its target and services contradict; ``why`` is a clause about it."""

    def __init__(self, study: Study, reason: str, hint: str = "") -> None:
        super().__init__(
            f"study {study.name!r} is not exported: {reason}",
            hint=hint or "put its events.jsonl back from a copy, or use `autotune run` here",
        )
