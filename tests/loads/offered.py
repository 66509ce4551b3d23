"""The load that command lines on load hosts offer, derived only from the commands."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autotune.loads import start_times
from autotune.loads.httperf import sum_unit_gaps
from autotune.services.base import Argv
from autotune.transports.base import CommandResult

PROGRAMS = ("httperf", "oha", "k6", "curl", "wrk", "mutilate", "own", "metronome")


@dataclass(frozen=True)
class Offered:
    """Offered load: ``requests`` sent evenly from ``begins`` to ``ends`` (seconds), at ``rate`` per
    second.
    """

    begins: float
    ends: float
    rate: float
    requests: float


@dataclass
class Recorder:
    """A load host that records commands instead of running them."""

    name: str
    ran: list[tuple[Argv, bytes | None]] = field(default_factory=list)

    def run(
        self, argv: Argv, *, input: bytes | None = None, timeout: float = 30.0
    ) -> CommandResult:
        assert timeout > 0
        if argv[0] == "cat":
            return CommandResult(argv, 0, "", "")
        self.ran.append((argv, input))
        return CommandResult(argv, 0, "", "nothing was run")

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        raise AssertionError("nothing is put there")

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        raise AssertionError("nothing is fetched")

    def close(self) -> None:
        """Release nothing, because the recorder holds no resources."""


def highest(hosts: Iterable[Recorder]) -> float:
    """Return the highest rate that all hosts offer together at any time, in requests/s."""
    each = list(offered(hosts))
    return max(
        (sum(one.rate for one in each if one.begins <= at < one.ends) for at in
         {one.begins for one in each}), default=0.0,
    )  # fmt: skip


def offered(hosts: Iterable[Recorder]) -> Iterator[Offered]:
    """Yield the load of each command. Successive parts of a reading start at the end of the
    previous part, unless the command itself waits for a start time.
    """
    first: dict[str, int] = {}
    for host in hosts:
        for words, text in host.ran:
            begins, argv = _begin(words, first.setdefault("at", _moment(words)))
            yield from _of_program(argv, text, begins)


def _moment(argv: Argv) -> int:
    return int(argv[4]) if argv[:1] == ("sh",) and argv[2] == start_times._WAIT_SCRIPT else 0


def _begin(argv: Argv, first: int) -> tuple[float, Argv]:
    if argv[:2] == ("sh", "-c") and argv[2] == start_times._WAIT_SCRIPT:
        return round((int(argv[4]) - first) / 1e9, 6), argv[5:]
    if argv[:2] == ("sh", "-c") and argv[2].startswith("sleep"):
        return float(argv[4]), argv[5:]
    return 0.0, argv


def _of_program(argv: Argv, text: bytes | None, begins: float) -> Iterator[Offered]:
    name = next((name for name in PROGRAMS if name in argv), None)
    if "curl --disable --config" in argv[2]:
        name = "curl"
    assert name is not None, argv
    rate, requests, seconds = globals()[f"_{name}"](argv, text)
    # A single request has no rate, so it is spread over the duration of its reading.
    yield Offered(begins, begins + max(seconds, 1e-6), rate, requests)


def _after(argv: Argv, option: str) -> str:
    return argv[argv.index(option) + 1]


def _join(argv: Argv, option: str) -> str | None:
    return next((word.removeprefix(option) for word in argv if word.startswith(option)), None)


def _httperf(argv: Argv, text: bytes | None) -> tuple[float, float, float]:
    mean = float((_join(argv, "--period=e")) or 0)
    client = int((_join(argv, "--client=") or "").partition("/")[0])
    counted = _join(argv, "--num-conns=") or (_join(argv, "--wsesslog=") or "").partition(",")[0]
    arrivals, calls = int(counted), 1.0
    if _join(argv, "--wsesslog="):
        sessions = [part for part in (text or b"").decode().split("\n\n") if part.strip()]
        calls = sum(len(one.strip().splitlines()) for one in sessions) / len(sessions)
    if arrivals < 2:
        return calls / mean if calls > 1 else 0.0, calls, mean
    span = mean * sum_unit_gaps(client, arrivals - 1)
    return calls * (arrivals - 1) / span, calls * arrivals, span


def _oha(argv: Argv, text: bytes | None) -> tuple[float, float, float]:
    rate, seconds = (
        float(_after(argv, "-q")),
        int(_after(argv, "-z").removesuffix("ms")) / 1000 - 0.02,
    )
    return rate, rate * seconds, seconds


def _k6(argv: Argv, text: bytes | None) -> tuple[float, float, float]:
    source = (text or b"").decode("utf-8", "replace")
    if "autotune-main.js" in argv:
        with tarfile.open(fileobj=io.BytesIO(text or b"")) as archive:
            module = archive.extractfile("autotune-counted.js")
            assert module is not None
            source = module.read().decode()
    order = json.loads(re.findall(r"^const order = (.*);$", source, re.M)[0])
    if order.get("counting"):  # a single client, which pauses between its requests
        return 1000 / order["gap"], 1000 * order["span"] / 1000 / order["gap"], order["span"] / 1000
    weight = sum(visit["weight"] for visit in order["visits"])
    calls = sum(visit["weight"] * len(visit["steps"]) for visit in order["visits"]) / weight
    calls *= order.get("most", 1)
    seconds, requests = order["span"] / 1000, order["iterations"] * calls
    return requests / seconds, requests, seconds


def _curl(argv: Argv, text: bytes | None) -> tuple[float, float, float]:
    """Return the load of curl processes, which wait whole milliseconds between the starts of
    transfers.
    """
    lines = (text or b"").decode().splitlines()
    per_hour = [int(re.findall(r"\d+", line)[0]) for line in lines if line.startswith("rate = ")]
    rate = sum(1000 / (3_600_000 // each) for each in per_hour)
    times = sum(line.startswith("url = ") for line in lines)
    return rate, times, times / rate


def _wrk(argv: Argv, text: bytes | None) -> tuple[float, float, float]:
    rate = 1 / float(re.findall(r"gap, due, page = ([\d.]+),", (text or b"").decode())[0])
    seconds = float(_after(argv, "--duration").removesuffix("s"))
    assert _after(argv, "--threads") == "1"  # each thread has a separate script with its own limit
    return rate, rate * seconds, seconds


def _mutilate(argv: Argv, text: bytes | None) -> tuple[float, float, float]:
    if "--loadonly" in argv or "-A" in argv:
        return 0.0, 0.0, 1.0
    rate, seconds = float(_after(argv, "-q")), float(_after(argv, "-t")) + float(_after(argv, "-w"))
    return rate, rate * seconds, seconds


def _own(argv: Argv, text: bytes | None) -> tuple[float, float, float]:
    order = json.loads(text or b"{}")
    return order["rate"], order["rate"] * order["seconds"], order["seconds"]
