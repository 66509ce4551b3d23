"""Exported scripts, and the requests of the role, while another account replaces names in the directory.

``AUTOTUNE_SEED`` chooses other acts of the adversaries and ``AUTOTUNE_RACES`` how many runs there are.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests import soak
from tests.deploy.test_exposed_race import adversaries, image, laid_out, leaks
from tests.export.exposed import Runner, of_file

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
THEIRS = {b"original\n", b"theirs\n", b"a secret that only root can read\n"}
Run = tuple[str, tuple[str, ...], str]  # a script, its options, and the content that it writes


def runs(runner: Runner, conf: str) -> Iterator[Run]:
    """A whole file, edited ones, the requests of a role, and restoring."""
    for number in count():
        role = str(runner.backups / f"autotune-role-{number}")
        whole, edited = f"whole {number}\n", f"edited {number}\n"
        text = of_file(conf, whole)
        edit = of_file(conf, edited, "original\n")
        filled = f"original {number}\n"
        fill = of_file(conf, filled, "original\n", "original")
        for configuring in ((text, (), whole), (edit, (), edited), (fill, (), filled)):
            yield configuring
            if backup := runner.newest():
                yield text, ("--restore", backup), ""
        yield text, ("--prepare", role), ""
        yield text, ("--write", role, conf), whole
        yield text, ("--restore", role), ""
        yield edit, ("--check",), ""


def ended(runner: Runner, conf: Path, run: Run) -> str:
    """How a run ended: good, or the reason why not. Raises AssertionError for a success that is none."""
    text, options, content = run
    done = runner.run(text, *options)
    assert "validation reads" not in done.stderr, done.stderr
    request = options[0] if options else "configure"
    if done.returncode != 0:
        reason = [line for line in done.stderr.splitlines() if line.strip()]
        assert reason, (request, done.stdout)
        return f"{request}: {re.sub(r'[0-9]{6,}', 'N', reason[0])}"
    if content:
        check_success(conf, content.encode())
    return f"{request}: good"


def check_success(conf: Path, content: bytes) -> None:
    """The file is there, or what the adversary has put in its place since."""
    try:
        handle = os.open(conf, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    with os.fdopen(handle, "rb", buffering=0) as file:
        try:
            now = file.read(4096) or b""
        except OSError:  # a directory
            return
    assert now in {content, b""} | THEIRS, now


@pytest.mark.parametrize(
    "most",
    [
        8,
        pytest.param(
            soak.races(800), marks=[pytest.mark.soak, pytest.mark.long, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_no_race_changes_anything_outside(most: int, capsys: pytest.CaptureFixture[str]) -> None:
    ends: Counter[str] = Counter()
    # Other accounts can pass through this directory, unlike through pytest's own.
    with tempfile.TemporaryDirectory(prefix="autotune-race-") as name:
        place = Path(name) / "host"
        place.mkdir()
        Path(name).chmod(0o755)
        top, outside = laid_out(place)
        before, conf = image(outside), top / "app" / "config" / "puma.rb"
        runner = Runner(place)
        seeds = [soak.SEED, soak.SEED + 1]
        with adversaries(seeds, (), str(top), str(outside)):
            for _, run in zip(range(most), runs(runner, str(conf)), strict=False):
                ends[ended(runner, conf, run).replace(str(place), "")] += 1
                assert image(outside) == before, run[1]
                assert not leaks(top), run[1]
    with capsys.disabled():
        print(f"\n{shown(ends)}")


def shown(ends: Counter[str]) -> str:
    good = sum(number for end, number in ends.items() if end.endswith(": good"))
    summary = (
        f"{ends.total()} runs of exported scripts: {good} good, {ends.total() - good} refused or undone, "
        "each with a reason; 0 files changed outside, 0 false successes, 0 leaks"
    )
    return "\n".join([summary, *(f"{n:5} {end}" for end, n in ends.most_common(30))])
