"""What a record keeps of a reading."""

from __future__ import annotations

from autotune.measure.reading import Reading
from autotune.study.reading_records import record_reading


def test_a_record_keeps_each_response() -> None:
    """Edges of bins are recorded with six digits, in milliseconds."""
    histogram = {1.2345671: 300, 1.2345674: 600, 2.0: 100}
    reading = Reading(100.0, 10.0, 1000, 1000, histogram=histogram)
    record = record_reading(0, "2026-01-01T00:00:00.000+00:00", "peak", reading, {})
    assert record.histogram == {"1234.57": 900, "2000": 100}
    assert record.reading.percentile(0.99) == 2.0
