"""The catalogue of parameters as a page, made from what the services declare.

``python -m scripts.parameter_reference`` writes it to ``docs/parameters.md`` of a checkout.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autotune.report import parameters
from autotune.services.registry import ALL

FILE = Path(__file__).parents[1] / "docs" / "parameters.md"
HEAD = """\
# Parameters

Made from the catalogue by `python -m scripts.parameter_reference`; a test holds it to that.
`autotune params SERVICE` prints the same, `autotune params --json` for programs, and
`autotune plan TARGET` what a study of your target would search.

`cpus`, `memory` and other words in a range are facts of the host. "Searched first" are the parameters
of `tune: core`; `tune: all` begins with the others, too.
"""


def text() -> str:
    """What ``docs/parameters.md`` contains."""
    titles = {service.name: service.title for service in reversed(ALL)}
    parts = [HEAD]
    for service, entries in parameters.catalogue().items():
        rows = "\n".join(map(_row, entries))
        heading = (
            titles[service] if titles[service] == service else f"{titles[service]}: `{service}`"
        )
        parts.append(
            f"## {heading}\n\n| Parameter | Values | Presets | Effect | Source |\n"
            f"|---|---|---|---|---|\n{rows}\n"
        )
    return "\n".join(parts)


def _row(each: parameters.Catalogued) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(each)) + " |"


def _cells(each: parameters.Catalogued) -> Iterator[str]:
    parameter = each.parameter
    conditions = [
        f"{sentence[0].upper()}{sentence[1:]}." for sentence in parameters.conditions(each)
    ]
    yield " ".join([f"`{parameter.name}` {parameter.meaning}", *conditions])
    yield parameters.values(parameter)
    yield parameters.presets(parameter)
    yield f"{parameters.effect(parameter)}; {parameters.COSTS[parameter.action]}"
    yield parameter.source


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
