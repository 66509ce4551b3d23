"""The page of load generators, with their requests, arrivals and connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from autotune.loads.base import LoadGenerator
from autotune.loads.closed_load import ClosedLoopGenerator
from autotune.loads.reference import GENERATOR_REFERENCES, GeneratorReference
from autotune.loads.registry import CLOSED_LOOP_GENERATORS, LOAD_GENERATORS
from scripts.reference.markdown import listed, page, section, table

PATH = Path("docs") / "generators.md"
HEAD = """\
Load generators differ in the arrivals of requests and in their connections. Compare capacities only if
the same generator measured them. autotune compares configurations only with an open loop. A closed loop
waits for the server and hides stalls."""


def pages() -> Mapping[Path, str]:
    """Return the content of the page by its path in a checkout."""
    sections = [section(f"{each.name}", _section(each)) for each in GENERATOR_REFERENCES]
    return {PATH: page("Load generators", HEAD, *sections)}


def _section(reference: GeneratorReference) -> str:
    load = LOAD_GENERATORS.get(reference.name) or CLOSED_LOOP_GENERATORS.get(reference.name)
    rows = [
        ("Used by", reference.used),
        ("Loop", reference.loop),
        ("Arrivals", reference.arrivals),
        ("Connections", reference.connections),
        *(_facts(load) if load else ()),
    ]
    notes = "\n".join(f"- {note}" for note in reference.notes)
    return "\n\n".join(
        filter(None, (table(("", ""), [(f"**{key}**", value) for key, value in rows]), notes))
    )


def _facts(load: LoadGenerator | ClosedLoopGenerator) -> Iterator[tuple[str, str]]:
    if isinstance(load, LoadGenerator):
        yield "HTTP", "1.1 and 2" if load.http2 else "1.1"
        yield "Methods", listed(sorted(load.supported_methods)) if load.supported_methods else "any"
        limits = load.limits
        yield "One process", (f"up to {limits.max_rate:,.0f} requests/s over {limits.open_connections:,}"
                              " connections; autotune starts several if needed")  # fmt: skip
    else:
        yield "HTTP", "1.1"
        yield "Methods", "`GET`"
    if load.packages:
        yield "Debian packages", listed(load.packages)
    if elsewhere := getattr(load, "elsewhere", ""):
        yield "Other sources", elsewhere
