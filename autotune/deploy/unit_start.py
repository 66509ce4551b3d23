"""Start of a unit: its rank in the start order, its readiness check, and its time limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.strict_parsing import is_uint

# Time limit for a unit whose boot time has not been measured yet
UNKNOWN_BOOT_SECONDS = 120.0
MIN_READY_SECONDS = 15.0
BOOT_FACTOR = 4.0  # time limit as a multiple of the measured boot time
MAX_START_SECONDS = 3600.0
USUAL_STOP_SECONDS = 90.0  # systemd's default for the time that a unit may take to stop
MAX_STOP_SECONDS = 3600.0


@dataclass(frozen=True)
class UnitStart:
    """The start of a unit, and how the unit shows that it is ready.

    - ``rank``: units of lower ranks are ready before this unit starts.
    - ``address``: TCP port, or path of the Unix socket, on which the unit listens.
    - ``url``: page to which a ready unit responds without a server error; empty if no page is known.
    - ``name``: Host header of the request for the page.
    - ``seconds``: longest time until the unit is ready. ``interval``: shortest time in seconds
      between two requests.
    """

    rank: int = 0
    address: str = ""
    url: str = ""
    name: str = ""
    seconds: float = UNKNOWN_BOOT_SECONDS
    interval: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= MAX_START_SECONDS or not 0 < self.interval <= MAX_START_SECONDS:
            raise ValueError(f"invalid start time of a unit: {self.seconds} s")

    def build_wait_command(self, unit: str) -> tuple[str, ...]:
        """Return the shell function, with arguments, that waits until ``unit`` is ready."""
        limit_seconds = f"{self.seconds:.0f}"
        if not self.url:
            return ("up", unit, self.address, limit_seconds)
        return (
            "ready",
            unit,
            self.address,
            limit_seconds,
            self.url,
            self.name,
            f"{self.interval:g}",
        )

    def to_record(self) -> dict[str, Any]:
        """Return the unit's start as a record of JSON values."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> UnitStart:
        """Return the start in a record from ``to_record``. Raises ValueError, KeyError or TypeError."""
        text_values = [record[name] for name in ("address", "url", "name")]
        if not all(isinstance(text, str) and text.isprintable() for text in text_values):
            raise TypeError("the record of a unit's start contains unprintable text")
        if not is_uint(str(record["rank"])):
            raise ValueError("the rank of a unit must be a whole number")
        address, url, name = text_values
        seconds, interval = float(record["seconds"]), float(record["interval"])
        return cls(int(record["rank"]), address, url, name, seconds, interval)
