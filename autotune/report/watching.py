"""Following a study from another terminal until nobody is running it any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from autotune.report.status import render_status, status
from autotune.report.studies import open_study

EVERY = 2.0  # seconds between looks: reading a journal must not take CPU from what is measured
CLEAR = "\x1b[H\x1b[2J"


def watch(directory: Path, out: TextIO, sleep: Callable[[float], None] = time.sleep) -> None:
    """Say how the study stands whenever that has changed; on a terminal, in the same place.

    Returns when it is finished or stopped. Raises AutotuneError for a damaged study.
    """
    before = ""
    while True:
        study = open_study(directory)
        now = render_status(study)
        if now != before:
            out.write((CLEAR if out.isatty() else "\n" if before else "") + now)
            out.flush()
            before = now
        if status(study)["state"] != "running":
            return
        sleep(EVERY)
