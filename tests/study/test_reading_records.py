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


def test_a_record_contains_no_secret_in_a_kind_of_errors() -> None:
    """The kinds of a user's generator may be its messages, such as the failed request."""
    errors = {"refused: password=S3cret99": 3, "refused: password=S3cret11": 4, "5xx": 2}
    reading = Reading(100.0, 10.0, 1000, 9, errors)
    record = record_reading(0, "2026-01-01T00:00:00.000+00:00", "peak", reading, {})
    assert "S3cret" not in str(record)
    assert sum(record.errors.values()) == 9
    assert record.errors["5xx"] == 2
