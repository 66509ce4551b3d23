"""What is in effect, read back from the software itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.deploy.stack import Part
from autotune.services.base import Settings, Value
from autotune.transports.base import Transport


@dataclass(frozen=True)
class Difference:
    """A setting that took effect otherwise than it was asked for."""

    parameter: str
    asked: Value
    effective: Value

    def __str__(self) -> str:
        return f"{self.parameter}: asked {self.asked}, in effect {self.effective}"


def read_back(parts: Iterable[Part], transport: Transport) -> dict[str, Value]:
    """Full parameter name → value in effect, for all that can be read back."""
    found: dict[str, Value] = {}
    for part in parts:
        for readback in part.service.effective(part.site):
            done = transport.run(readback.argv, cwd=part.site.directory, timeout=10.0)
            values = readback.parse(f"{done.stdout}\n{done.stderr}")
            prefix = f"{part.site.tier}.{part.service.name}."
            found.update({prefix + name: value for name, value in values.items()})
    return found


def differences(
    asked: Settings, effective: Settings, active: frozenset[str]
) -> tuple[Difference, ...]:
    """Where the two disagree, among the parameters that matter under ``asked``."""
    return tuple(
        Difference(name, asked[name], value)
        for name, value in sorted(effective.items())
        if name in asked and name in active and not _same(asked[name], value)
    )


def _same(asked: Value, effective: Value) -> bool:
    if isinstance(asked, str) or isinstance(effective, str):
        return str(asked) == str(effective)
    # Servers print fractions with two digits.
    return abs(float(asked) - float(effective)) < 0.006
