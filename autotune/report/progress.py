"""Progress in plain lines: a line per trial, more of them on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol, Self, TextIO

from autotune.deploy.fleet import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import Warmth
from autotune.report import colour, lines
from autotune.report.harmless import harmless
from autotune.study.progress import Narrator
from autotune.study.records import State, Trial
from autotune.target.model import Target


class Plain:
    """For logs, pipes and terminals that are not to be redrawn."""

    def __init__(
        self, target: Target, state: Callable[[], State], stream: TextIO, *, verbose: bool = False
    ) -> None:
        self._target, self._state, self._stream = target, state, stream
        self._verbose, self._complained = verbose, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    @harmless
    def trial_begins(self, trial: Trial) -> None:
        self._detail(f"{lines.trial_in_words(trial)}: deploying")

    @harmless
    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        self._detail(lines.deployed_line(deployed))

    @harmless
    def warm(self, trial: Trial, warmth: Warmth) -> None:
        self._detail(lines.warm_line(warmth))

    @harmless
    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._detail(f"{purpose:8}{lines.reading_line(reading, purpose, self._target.slo.slo)}")

    @harmless
    def trial_ends(self, trial: Trial) -> None:
        self._say(lines.trial_line(trial, self._state(), self._target))

    @harmless
    def note(self, text: str) -> None:
        self._say(text)

    def trouble(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            with suppress(Exception):
                self._say(f"(progress cannot be shown: {error!r}; the study goes on)")

    def _detail(self, text: str) -> None:
        if self._verbose:
            self._say(f"      {text}")

    def _say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class Progress(Narrator, Protocol):
    """A narrator that is closed with the run: ``with narrator(...) as told: ...``."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def narrator(
    target: Target,
    state: Callable[[], State],
    stream: TextIO,
    environment: Mapping[str, str],
    *,
    verbose: bool = False,
) -> Progress:
    """A live panel where ``stream`` is a terminal that can be redrawn, plain lines otherwise.

    ``TERM=dumb`` and ``verbose`` ask for lines; ``NO_COLOR`` for a panel without colours.
    """
    if verbose or not stream.isatty() or environment.get("TERM") == "dumb":
        return Plain(target, state, stream, verbose=verbose)
    from autotune.report.live import Live

    return Live(target, state, stream, colour=colour.wanted(stream, environment))
