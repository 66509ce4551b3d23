"""When things happened in a study, counted without the pauses between its sittings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class StudyTime:
    """Wall-clock moments as seconds of the study; ``pauses`` are (from, to) between sittings."""

    began: datetime
    pauses: tuple[tuple[datetime, datetime], ...] = ()

    def seconds(self, at: str) -> float:
        """Seconds of study until the moment ``at`` (ISO 8601); never negative."""
        moment = datetime.fromisoformat(at)
        lost = sum(
            (min(moment, ended) - begun).total_seconds()
            for begun, ended in self.pauses
            if begun < moment
        )
        return max(0.0, round((moment - self.began).total_seconds() - lost, 1))


def study_time(
    events: Iterable[Mapping[str, Any]], readings: Iterable[Mapping[str, Any]]
) -> StudyTime:
    """From a study's journals: a sitting lasts from its record to the last thing that was dated."""
    moments = sorted(
        (datetime.fromisoformat(str(record.get("at") or record["started"])), kind)
        for kind, record in (
            *((str(event["event"]), event) for event in events),
            *(("reading", reading) for reading in readings),
        )
        if record.get("at") or record.get("started")
    )
    if not moments:
        return StudyTime(datetime.fromisoformat("1970-01-01T00:00:00+00:00"))
    pauses = [
        (before, moment) for (before, _), (moment, kind) in pairwise(moments) if kind == "session"
    ]
    return StudyTime(moments[0][0], tuple(pauses))
