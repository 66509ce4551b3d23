"""The refusal of a study whose records cannot become a script, a role or a patch."""

from __future__ import annotations

from autotune.errors import AutotuneError
from autotune.report.studies import Study

APPLY = "`autotune export` without --format, then `autotune apply`"
RENDERED = "/run/autotune"  # where software tries configurations on a host


class Refused(AutotuneError):
    """A study with a record that its target and services contradict; ``why`` is a clause about it."""

    def __init__(self, study: Study, why: str, hint: str = "") -> None:
        super().__init__(
            f"study {study.name!r} is not exported: {why}",
            hint=hint or "put its events.jsonl back from a copy, or use `autotune run` here",
        )
