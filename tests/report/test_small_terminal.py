"""The panel on a terminal of 40 columns and 15 lines, in a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

STUDIES = Path(__file__).with_name("studies")
SEQUENCE = re.compile(r"\x1b\[(\??\d*(?:;\d+)*)([A-Za-z])")
BORDER = "│╭╮╰╯─"


class Screen:
    """What a terminal shows: text, line ends, and the few sequences that the panel uses."""

    def __init__(self, columns: int, lines: int) -> None:
        self._columns, self._height = columns, lines
        self._rows = [""]
        self._row = 0
        self.overflows = 0
        """Lines that were longer than the terminal."""

    def write(self, text: str) -> None:
        position = 0
        while position < len(text):
            sequence = SEQUENCE.match(text, position)
            if sequence:
                self._obey(sequence[1], sequence[2])
                position = sequence.end()
                continue
            self._put(text[position])
            position += 1

    def _obey(self, argument: str, command: str) -> None:
        if command == "A":
            self._row = max(len(self._rows) - self._height, self._row - int(argument or 1), 0)
        elif command == "K":
            self._rows[self._row] = ""

    def _put(self, character: str) -> None:
        if character == "\n":
            self._row += 1
            if self._row == len(self._rows):
                self._rows.append("")
        elif character == "\r":
            self._rows[self._row] = (
                "" if self._row == len(self._rows) - 1 else self._rows[self._row]
            )
        else:
            self._rows[self._row] += character
            self.overflows += len(self._rows[self._row]) > self._columns

    @property
    def lines(self) -> list[str]:
        return self._rows[-self._height :]


def show(directory: Path, trials: int, columns: int, lines: int) -> Screen:
    """What the panel shows after some trials of a study, on a terminal of this size."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-m", "tests.report.small_terminal", str(directory), str(trials)]
    with subprocess.Popen(
        command,
        stdin=follower, stdout=follower, stderr=follower,
        cwd=Path(__file__).parents[2],
        env={**environment, "TERM": "xterm-256color"},
    ) as process:  # fmt: skip
        os.close(follower)
        shown = _read_all(leader)
        assert process.wait() == 0, shown.decode(errors="replace")
    screen = Screen(columns, lines)
    screen.write(shown.decode().replace("\r\n", "\n"))
    return screen


def _read_all(leader: int) -> bytes:
    content = b""
    try:
        while part := os.read(leader, 65_536):
            content += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(leader)
    return content


def words(lines: list[str]) -> list[str]:
    return " ".join(line.strip(BORDER + " ") for line in lines).split()


@pytest.mark.parametrize(("name", "trials"), [("improved", 4), ("infeasible", 7), ("aa", 3)])
def test_the_step_the_best_and_the_time_left_fit(name: str, trials: int) -> None:
    small, large = show(STUDIES / name, trials, 40, 15), show(STUDIES / name, trials, 200, 50)
    for screen in (small, large):
        text = " ".join(words(screen.lines))
        assert screen.overflows == 0
        assert re.search(r"#\d+ [a-z]+.*: ", text), text  # the trial and its step
        assert "warm after 2 windows" in text
        assert re.search(r"/s [✓✗?] p99", text), text
        assert re.search(r"best [\d,]+/s \(#\d+", text) or "nothing meets the SLO yet" in text
        assert re.search(r"\d (?:s|min|h) left", text), text
    assert len(small.lines) <= 15
    # Words are whole: each is also on the large terminal.
    assert set(words(small.lines)) - {"…"} <= set(words(large.lines))
