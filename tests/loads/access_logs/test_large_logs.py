"""A million lines: CPU time relative to what only reads them, and memory."""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LINES = 1_000_000
MOST_TIMES = 12  # the CPU time of `zcat | wc -l` and a pass of a regular expression
MOST_BYTES = 300 << 20
# A pass in C over the same lines, in a process of its own like the command.
PASS = r"""
import gzip, re, sys
pattern = re.compile(rb'(\S+) \S+ \S+ \[([^\]]+)\] "([A-Z]+) (\S+) [^"]*" (\d{3})')
with gzip.open(sys.argv[1]) as lines:
    print(sum(1 for line in lines.read().split(b"\n") if pattern.match(line)))
"""


def visited(chance: random.Random, number: int) -> str:
    """Return one of many pages, a few of which are frequent."""
    item = int(chance.paretovariate(0.7)) % 900_000
    return f"/product/{item}/blue-shoes?ref=mail{number % 7}&size={chance.randrange(40)}"


def distinct(chance: random.Random, number: int) -> str:
    """Return a page that occurs once."""
    return f"/search?q=word{number}+blue+shoes&page={chance.randrange(9)}"


def secret(chance: random.Random, number: int) -> str:
    """Return a page with a secret."""
    return f"/reset?token={chance.getrandbits(96):024x}&lang=de"


def write_log(path: Path, page: Callable[[random.Random, int], str], count: int) -> None:
    """Write a compressed log in combined format."""

    def lines() -> Iterator[str]:
        chance = random.Random(1)
        for number in range(count):
            second = number // 200
            time = f"22/Nov/2026:{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02} +0000"
            method = "POST" if number % 30 == 0 else "GET"
            agent = (
                f"Mozilla/5.0 (X11; Linux x86_64) Chrome/{chance.randrange(300)}.0 Safari/537.36"
            )
            status = chance.choice((200, 200, 200, 304, 404))
            if number % 500 == 0:
                yield f'10.9.9.9 - - [{time}] "GET / HTTP/1.0" 200 12 "-" "-"\n'
            else:
                yield (
                    f'10.7.{number % 250}.9 - - [{time}] "{method} {page(chance, number)} HTTP/1.1" '
                    f'{status} {chance.randrange(90_000)} "https://shop.example/" "{agent}"\n'
                )

    with gzip.open(path, "wt", compresslevel=1) as file:
        file.writelines(lines())


# A small parent, because the memory of a process includes that of its parent until it starts a program.
LAUNCHER = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=open(sys.argv[1], "wb"))
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
sys.exit(done.returncode)
"""


def run(argv: list[str], log: Path) -> tuple[float, int, str]:
    """Return the CPU seconds of a process and its children, its memory in bytes, and its messages."""
    messages = log.with_suffix(".messages")
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(messages), *argv]
    done = subprocess.run(launcher, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, messages.read_text()
    seconds, memory = done.stdout.split()
    return float(seconds), int(memory), messages.read_text()


def autotune(log: Path) -> list[str]:
    return [sys.executable, "-m", "autotune", "workload", "from-log", str(log)]


@pytest.mark.soak
@pytest.mark.parametrize("page", [visited, distinct, secret])
def test_a_million_lines(page: Callable[[random.Random, int], str], tmp_path: Path) -> None:
    log = tmp_path / "access.log.gz"
    write_log(log, page, LINES)
    reading = run(["sh", "-c", 'zcat "$0" | wc -l', str(log)], log)[0]
    matching = run([sys.executable, "-c", PASS, str(log)], log)[0]
    seconds, memory, messages = run(autotune(log), log)
    print(
        f"{page.__name__}: {seconds:.1f} s of CPU time, {seconds / (reading + matching):.1f} times "
        f"{reading:.1f} + {matching:.1f} s; {memory >> 20} MB"
    )
    assert seconds <= MOST_TIMES * (reading + matching)
    assert memory <= MOST_BYTES
    assert re.search(r"(?m)^[\d,]+ lines read, \d+% of ", messages)


@pytest.mark.parametrize("page", [visited, distinct, secret])
def test_a_small_log_becomes_a_workload(
    page: Callable[[random.Random, int], str], tmp_path: Path
) -> None:
    log = tmp_path / "access.log.gz"
    write_log(log, page, 5000)
    _, memory, messages = run(autotune(log), log)
    assert memory <= MOST_BYTES
    assert "POST may change data" in messages
    assert "10 × health check or monitoring" in messages
