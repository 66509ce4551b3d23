"""Show a recorded study on the terminal of this process: ``python -m tests.report.small_terminal``.

The program stops during a trial, with the panel on the screen.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from autotune.measure.reading import WARM_UP_PURPOSE
from autotune.report.live_progress import LiveProgress
from autotune.report.studies import open_study
from tests.report.test_progress import DEPLOYED, WARMTH


def main(directory: Path, trials: int) -> None:
    """Show the first trials of a study, and the readings of the next one."""
    study = open_study(directory)
    begun = study.state.trials[: trials + 1]
    state = replace(study.state, trials=begun, verdict=None)
    panel = LiveProgress(study.target, lambda: state, sys.stdout)
    panel.__enter__()  # the test reads the screen before the panel is closed
    for trial in begun:
        panel.on_trial_start(trial)
        panel.on_deployed(trial, DEPLOYED)
        records = [record for record in study.readings if record.trial == trial.number]
        for record in records:
            if record.purpose == WARM_UP_PURPOSE:
                panel.on_reading(trial, record.reading, record.purpose)
        panel.on_warm_up(trial, WARMTH)
        for record in records:
            if record.purpose != WARM_UP_PURPOSE:
                panel.on_reading(trial, record.reading, record.purpose)
        if trial is not begun[-1]:
            panel.on_trial_end(trial)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
