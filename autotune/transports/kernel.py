"""What a host's kernel has to say of its settings. Read-only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autotune.transports.base import Transport

# A line for each key: its state, its name, its value. Keys are arguments, never part of the script.
_ASK = r"""
for key; do
    path=/proc/sys/$(printf %s "$key" | tr . /)
    if [ ! -e "$path" ]; then echo "absent $key"
    elif [ ! -r "$path" ]; then echo "hidden $key"
    elif [ -w "$path" ]; then echo "writable $key $(cat "$path")"
    else echo "fixed $key $(cat "$path")"
    fi
done
"""
_WHY = {
    "absent": "this kernel does not have it",
    "hidden": "it cannot be read here",
    "fixed": "it cannot be written here",
}


@dataclass(frozen=True)
class Kernel:
    """Values by their names, and why others cannot be set, each in a few words."""

    values: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def kernel(transport: Transport, keys: Iterable[str]) -> Kernel:
    """Ask for these keys, with the rights that setting them would take."""
    argv = ["sh", "-c", _ASK, "sh", *keys]
    asked = transport.run(argv, sudo=True)
    return parse(asked.stdout if asked.ok else transport.run(argv).stdout)


def parse(said: str) -> Kernel:
    found = Kernel()
    for line in said.splitlines():
        state, _, rest = line.partition(" ")
        key, _, value = rest.partition(" ")
        if state in ("writable", "fixed"):
            found.values[key] = " ".join(value.split())
        if state in _WHY:
            found.refused[key] = _WHY[state]
    return found
