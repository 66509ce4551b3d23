"""A study in words, for a terminal or a mail: the verdict first, then what to do with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.report import sections
from autotune.report.colour import paint
from autotune.report.headline import headline
from autotune.report.sections import Summary, Tallies
from autotune.report.summary import NO_READINGS
from autotune.study.records import State
from autotune.target.model import Target

MARKS = {"improved": ("✓", "good"), "unmeetable": ("✗", "bad"), "stopped": ("…", "doubt")}
UNDECIDED = ("=", "doubt")


def render_text(
    summary: Summary,
    target: Target,
    state: State,
    tallies: Tallies = NO_READINGS,
    *,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """The report of a study, finished or not; ``summary`` is that of ``report.summary``.

    ``width`` in columns shortens what parameters mean; without it, they are said in full.
    """
    mark, style = MARKS.get(summary["verdict"], UNDECIDED)
    first = paint(f"{mark} {headline(summary, target, state)}", style, colour=colour)
    parts = (
        ("", sections.peaks(summary, target, state, tallies)),
        ("", sections.under_way(summary, target, state)),
        ("Measured", sections.measurements(target, state)),
        ("Ceilings", sections.ceilings(state)),
        (
            sections.change_title(summary, target, state),
            sections.settings(summary, target, state, width),
        ),
        ("What limits it", sections.bottlenecks(summary)),
        ("Trials", sections.trials(summary, target, state, tallies)),
        ("Time", sections.time(summary)),
        ("Warnings", sections.warnings(summary)),
        ("Not checked", sections.not_checked(target, state)),
        ("Next", _next(summary)),
    )
    return f"{first}\n" + "".join(_part(title, list(lines), colour) for title, lines in parts)


def _part(title: str, lines: Sequence[str], colour: bool) -> str:  # noqa: FBT001  private
    if not lines:
        return ""
    head = [paint(title, "strong", colour=colour)] if title else []
    return "\n" + "\n".join([*head, *(f"  {line}".rstrip() for line in lines)]) + "\n"


def _next(summary: Summary) -> Iterator[str]:
    name, verdict = summary["study"], summary["verdict"]
    if verdict == "stopped" and summary["baseline"]:
        yield f"autotune resume {name}"
        yield f"autotune status {name}"
    if verdict == "improved":
        yield f"autotune export {name} --out {name}-best"
    if summary["best"]:
        yield f"autotune diff {name}"
    yield f"autotune report {name} --json"
