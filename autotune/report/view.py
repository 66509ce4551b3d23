"""A study as shown in reports, computed once for text, JSON, HTML, CSV, metrics and `status`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from autotune.report.figures import StudyFigures, build_study_figures
from autotune.report.headline import Headline, build_headline, format_gain_split
from autotune.report.latency import TodayLatency, find_today_latency
from autotune.report.next_steps import NextSteps, build_next_steps
from autotune.report.studies import Study
from autotune.report.warnings import StudyWarning, collect_warnings


@dataclass(frozen=True)
class StudyView(StudyFigures):
    """The figures of a study, with the headline, warnings and next steps that follow from them.
    Renderers add only layout.

    ``headline`` is the verdict in one line.
    """

    headline: Headline

    @cached_property
    def gain_split(self) -> str:
        """The contributions of the best preset and of the search to a proven gain, as text; empty if
        unknown.
        """
        return format_gain_split(self)

    @cached_property
    def next_steps(self) -> NextSteps:
        """The commands that are available now."""
        return build_next_steps(self)

    @cached_property
    def warnings(self) -> tuple[StudyWarning, ...]:
        """All warnings, the most serious first. Raises AutotuneError for damaged readings."""
        return collect_warnings(self)

    @cached_property
    def latency(self) -> TodayLatency | None:
        """The latency of baseline and best at today's request rate; ``None`` if it is unknown.

        Raises AutotuneError for damaged readings.
        """
        return find_today_latency(self)


def build_study_view(study: Study) -> StudyView:
    """Return the view of a study. Readings are loaded only when they are needed."""
    study_figures = build_study_figures(study)
    return StudyView(
        **{field.name: getattr(study_figures, field.name) for field in fields(StudyFigures)},
        headline=build_headline(study_figures),
    )
