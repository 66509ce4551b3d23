"""What a lab intends to make, on disk before any of it exists."""

from __future__ import annotations

import json
from dataclasses import asdict
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from autotune import durable
from autotune.errors import AutotuneError
from autotune.lab.hosts import LabHost
from autotune.lab.plan import LabPlan, Names

_SCHEMA = 1


def write(plan: LabPlan) -> None:
    """Record ``plan``, durably: whoever reads it after a crash sees all of it or nothing."""
    durable.write(plan.names.journal, json.dumps(encoded(plan), indent=1).encode())


def read(names: Names) -> LabPlan | None:
    """The recorded plan, or ``None`` if there is no lab here."""
    try:
        text = names.journal.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return decoded(json.loads(text), names)
    except (ValueError, KeyError, TypeError) as error:
        raise AutotuneError(
            f"{names.journal} cannot be read: {error}",
            hint="`autotune lab down` removes the lab without it",
        ) from None


def encoded(plan: LabPlan) -> dict[str, Any]:
    """``plan`` as plain values. Names are left out: they derive from the directory."""
    return {
        "schema": _SCHEMA,
        "network": str(plan.network),
        "gateway": str(plan.gateway),
        "hosts": [asdict(host) for host in plan.hosts],
    }


def decoded(record: dict[str, Any], names: Names) -> LabPlan:
    """The plan that ``encoded`` was given; raises ``ValueError``, ``KeyError``, ``TypeError``."""
    if record["schema"] != _SCHEMA:
        raise ValueError(f"schema {record['schema']} is not {_SCHEMA}")
    return LabPlan(
        names,
        tuple(LabHost(**host) for host in record["hosts"]),
        IPv4Network(record["network"]),
        IPv4Address(record["gateway"]),
    )
