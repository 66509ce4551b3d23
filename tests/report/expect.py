"""Regenerate the expected reports of the recorded studies: ``python tests/report/expect.py``.

Review the difference before committing it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from autotune.report.status import format_status
from autotune.report.studies import open_study
from autotune.report.summary import build_summary
from autotune.report.text_report import format_report_lines
from autotune.report.view import build_study_view

os.chdir(Path(__file__).parent)  # so that printed commands need no `--studies`
for directory in sorted(Path("studies").iterdir()):
    view = build_study_view(open_study(directory))
    found, text = (
        build_summary(view),
        "".join(f"{line}\n" for line, _ in format_report_lines(view, 100)),
    )
    (directory / "expected.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (directory / "expected.txt").write_text(text)
    (directory / "expected-status.txt").write_text(format_status(view))
