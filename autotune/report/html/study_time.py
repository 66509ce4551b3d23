"""When things happened in a study: by the wall's clock, or by a model's own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any, Protocol


class Time(Protocol):
    """``axis`` says what its seconds count."""

    @property
    def axis(self) -> str: ...

    def seconds(self, at: str) -> float:
        """Seconds until the moment ``at`` (ISO 8601, as the journals have it)."""
        ...


@dataclass(frozen=True)
class LoadTime:
    """Moments as seconds of load that had been sent until then: all the time a model has.

    ``moments`` are those of its readings in order, ``loads`` the seconds up to and with each.
    """

    moments: tuple[datetime, ...]
    loads: tuple[float, ...]
    axis: str = "minutes of load, by the model's clock"

    def seconds(self, at: str) -> float:
        taken = bisect_right(self.moments, datetime.fromisoformat(at))
        return round(self.loads[taken - 1], 1) if taken else 0.0


def load_time(readings: Iterable[Mapping[str, Any]]) -> LoadTime:
    """From the readings of a study, in the order taken."""
    taken = list(readings)
    return LoadTime(
        # A wall clock may be set back meanwhile.
        tuple(accumulate((datetime.fromisoformat(reading["at"]) for reading in taken), max)),
        tuple(accumulate(float(reading["seconds"]) for reading in taken)),
    )


@dataclass(frozen=True)
class StudyTime:
    """Wall-clock moments as seconds of the study; ``pauses`` are (from, to) between sittings."""

    began: datetime
    pauses: tuple[tuple[datetime, datetime], ...] = ()
    axis: str = "minutes of study"

    def seconds(self, at: str) -> float:
        """Seconds of study until then; never negative."""
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
