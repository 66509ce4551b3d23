"""Load hosts that begin together, whatever their clocks say."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from autotune.errors import AutotuneError
from autotune.loads import start_times
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport


class Elsewhere(LocalTransport):
    """A host whose clock is ``ahead`` by so many seconds; ``said``: what it says instead."""

    def __init__(self, name: str, ahead: float = 0.0, said: str | None = None) -> None:
        super().__init__(name)
        self._ahead, self._said = ahead, said

    def run(self, argv, **options):  # type: ignore[no-untyped-def]
        now = str(round((time.time() + self._ahead) * 1e9))
        return CommandResult(tuple(argv), 0, (now if self._said is None else self._said) + "\n", "")


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.25])
def test_a_clock_is_known_as_far_as_a_round_trip_tells(ahead: float) -> None:
    found = start_times.read_host_clock(Elsewhere("a", ahead), now=time.time)
    assert found.offset_seconds == pytest.approx(ahead, abs=found.error_seconds + 1e-6)


def test_the_quickest_answer_counts() -> None:
    looks: Iterator[float] = iter([0.0, 1.0, 10.0, 10.01, 20.0, 20.5])
    moment = 10.005 + 7.0

    class Steady(Elsewhere):
        def run(self, argv, **options):  # type: ignore[no-untyped-def]
            return CommandResult(tuple(argv), 0, str(round(moment * 1e9)), "")

    found = start_times.read_host_clock(Steady("a"), now=lambda: next(looks))
    assert found.offset_seconds == pytest.approx(7.0)
    assert found.error_seconds == pytest.approx(0.005)


def test_the_same_moment_on_every_clock() -> None:
    hosts = [Elsewhere("a"), Elsewhere("b", 3600.0), Elsewhere("c", -5.0)]
    before = time.time()
    moments = start_times.agree_start_times(hosts)
    assert moments["a"] / 1e9 >= before + start_times.LEAD_SECONDS
    assert (moments["b"] - moments["a"]) / 1e9 == pytest.approx(3600.0, abs=0.5)
    assert (moments["c"] - moments["a"]) / 1e9 == pytest.approx(-5.0, abs=0.5)


def test_a_clock_that_is_set_here_meanwhile_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, steps = time.time, iter(range(0, 10**9, 86_400))
    hosts = [Elsewhere("a")]
    monkeypatch.setattr(
        hosts[0],
        "run",
        lambda *_, **__: CommandResult((), 0, f"{right():.9f}".replace(".", ""), ""),
    )
    monkeypatch.setattr(time, "time", lambda: right() + next(steps))
    before = right()
    begins = start_times.agree_start_times(hosts)["a"] / 1e9
    assert before < begins <= right() + start_times.MAX_LEAD_SECONDS


def test_a_host_without_a_clock_is_named() -> None:
    with pytest.raises(AutotuneError, match="cannot read the clock of b: date: invalid"):
        start_times.agree_start_times([Elsewhere("a"), Elsewhere("b", said="date: invalid format")])


@pytest.mark.parametrize("later", [-1.0, 0.3])
def test_a_command_begins_at_its_moment_and_stays_what_it_is(later: float) -> None:
    moment = time.time() + later
    argv = start_times.start_command_at(
        round(moment * 1e9), ("sh", "-c", 'date +%s%N; echo "$1"; exit 3', "x", "a'b $c")
    )
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    begun, word = done.stdout.splitlines()
    assert int(begun) / 1e9 >= moment
    assert (word, done.returncode) == ("a'b $c", 3)


def test_a_command_does_not_wait_for_a_clock_that_was_set_back() -> None:
    argv = start_times.start_command_at(round((time.time() + 86_400) * 1e9), ("true",))
    subprocess.run(argv, check=True, timeout=240.0)


def test_a_command_begins_later() -> None:
    argv = start_times.delay_command(0.2, ("date", "+%s%N"))
    begun = time.time()
    ended = int(LocalTransport().run(argv).stdout) / 1e9
    assert ended - begun >= 0.2
    assert start_times.delay_command(0.0, ("date",)) == ("date",)
