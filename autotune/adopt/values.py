"""How values are written in configuration files, read and written again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from autotune.services.base import Value

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DIGITS = re.compile(r"[0-9]+")
_AMOUNT = re.compile(r"([0-9]+)([A-Za-z]*)")


@dataclass(frozen=True)
class Kind:
    """``read`` says what is meant, ``None`` for what this is no exact value of; ``write`` is an
    expression of templates for the value of a variable."""

    read: Callable[[str], Value | None]
    write: Callable[[str], str]

    def expression(self, variable: str, written: str, value: Value) -> tuple[int, str]:
        """How many characters of ``written`` to replace by what, so that at ``value`` the result is
        as it was written."""
        digits = _DIGITS.match(written)
        if digits and digits[0] == str(value) and _unit_stays(written[digits.end() :]):
            return digits.end(), f"{{{{ {variable} }}}}"
        if isinstance(value, str) and value == written:
            return len(written), f"{{{{ {variable} }}}}"
        now = f'"{written}" if {variable} == {literal(value)}'
        return len(written), f"{{{{ {now} else {self.write(variable)} }}}}"


def literal(value: Value) -> str:
    """A value in an expression of a template."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _unit_stays(rest: str) -> bool:
    return rest in ("", "s", "k", "K", ".0")


def _number(text: str) -> Value | None:
    return int(text) if _DIGITS.fullmatch(text) else None


def _real(text: str) -> Value | None:
    return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else None


def _seconds(text: str) -> Value | None:
    amount = _AMOUNT.fullmatch(text)
    return int(amount[1]) * _SECONDS[amount[2]] if amount and amount[2] in _SECONDS else None


def _kilobytes(text: str) -> Value | None:
    amount = _AMOUNT.fullmatch(text)
    if amount is None or amount[2].lower() not in ("k", "m", ""):
        return None
    size = int(amount[1]) * {"": 1, "k": 1024, "m": 1024**2}[amount[2].lower()]
    return size // 1024 if size % 1024 == 0 else None


def switch(on: str, off: str) -> Kind:
    """Two words, in capitals or not."""
    known = {on: True, off: False}
    return Kind(
        lambda text: known.get(text.lower()),
        lambda name: f'("{on}" if {name} else "{off}")',
    )


NUMBER = Kind(_number, lambda name: name)
REAL = Kind(_real, lambda name: name)
SECONDS = Kind(_seconds, lambda name: name)
SECONDS_S = Kind(_seconds, lambda name: f'{name} ~ "s"')
KILOBYTES = Kind(_kilobytes, lambda name: f'{name} ~ "k"')
WORD = Kind(lambda text: text, lambda name: name)
ON_OFF = switch("on", "off")
CAPITAL_ON_OFF = Kind(ON_OFF.read, lambda name: f'("On" if {name} else "Off")')
YES_NO = switch("yes", "no")


def automatic(value: int) -> Kind:
    """A number, or ``auto`` where that comes to ``value``."""
    return Kind(lambda text: value if text == "auto" else _number(text), lambda name: name)
