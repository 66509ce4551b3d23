from __future__ import annotations

import json

from autotune.measure import Reading
from autotune.study.store import reading_of, record_of


def test_a_reading_survives_its_record() -> None:
    histogram = {0.001: 5, 0.0123: 990, 2.0: 3}
    reading = Reading(
        1000.5, 2.0, 1000, 5, {"timeout": 2}, histogram, truncated=True, limited="ports"
    )
    assert reading_of(json.loads(json.dumps(record_of(reading)))) == reading


def test_a_record_of_an_earlier_version_lacks_fields() -> None:
    record = {"rate": 100.0, "seconds": 2.0, "intended": 200, "violations": 3}
    assert reading_of(record) == Reading(100.0, 2.0, 200, 3)
