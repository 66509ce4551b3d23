"""Samples of a host: its own /proc read in this process, or a stream of it over a transport."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.measure.listening import parse_ss, tcp_queues
from autotune.measure.process_table import Owners
from autotune.measure.procfs import FILES, parse
from autotune.measure.sample import Sample
from autotune.transports.base import Transport

_LINKS = Path("/sys/class/net")
_LARGEST = 1 << 20  # bytes of one file; /proc/net/unix is the only one that could come near
_SS = "ss -ltnH"
_HEADERS = "==> "
_SAMPLE = "== sample =="

# No value ever becomes part of this text: the number of samples and the files are arguments. `tail`
# prints each file below a line with its name. It ends by itself.
_STREAM = f"""
count=$1; shift
while [ "$count" -gt 0 ]; do
    echo '{_SAMPLE}'
    tail -n +1 -- "$@" /proc/[0-9]*/stat /sys/class/net/*/speed 2>/dev/null
    echo; echo '==> {_SS} <=='
    {_SS} 2>/dev/null
    count=$((count - 1))
    sleep 1
done
echo '{_SAMPLE}'
times
"""


class LocalSampler:
    """Samples of this machine. ``cost`` is the CPU time they have taken, in seconds.

    About 0.3 ms a sample and 20 µs for each process of a service.
    """

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._others: set[str] = set()  # processes already seen to be nobody's: not looked at again
        self._links = {f"{path}/speed": _read(f"{path}/speed") for path in _LINKS.glob("*")}
        self.cost = 0.0

    def sample(self) -> Sample:
        begun = time.thread_time()
        texts = {path: _read(path) for path in FILES} | self._links
        for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - a Path each costs 5 ×
            if pid not in self._others:
                texts |= self._process(pid)
        sample = parse(texts, self._owners, tcp_queues())
        self.cost += time.thread_time() - begun
        return sample

    def _process(self, pid: str) -> dict[str, str]:
        if not self._is_ours(pid):
            self._others.add(pid)
            return {}
        base = f"/proc/{pid}"
        return {
            f"{base}/stat": _read(f"{base}/stat"),
            f"{base}/schedstat": _read(f"{base}/schedstat"),
            f"{base}/descriptors": _open_descriptors(pid),
            f"{base}/limit": _descriptor_limit(pid),
        }

    def _is_ours(self, pid: str) -> bool:
        try:
            if self._owners.sessions:
                return os.getsid(int(pid)) in self._owners.sessions
        except OSError:
            return False
        return _read(f"/proc/{pid}/comm").strip() in self._owners.programs


def stream(transport: Transport, owners: Owners, seconds: int) -> tuple[tuple[Sample, ...], float]:
    """Samples of another host, one a second for ``seconds``, and the CPU seconds they took there.

    One command over the open connection; nothing is installed. It returns when the time is over.
    """
    argv = ("sh", "-c", _STREAM, "sh", str(seconds), *FILES)
    done = transport.run(argv, timeout=seconds + 15.0, env={"LC_ALL": "C"})
    return read_stream(done.stdout, owners)


def read_stream(text: str, owners: Owners) -> tuple[tuple[Sample, ...], float]:
    """What ``stream``'s command printed. Its last part is the shell's own ``times``."""
    *blocks, end = text.split(f"{_SAMPLE}\n")[1:] or [""]
    samples = []
    for block in blocks:
        texts = dict(_files(block))
        samples.append(parse(texts, owners, parse_ss(texts.get(_SS, ""))))
    return tuple(samples), sum(_minutes(word) for word in end.split())


def _files(block: str) -> Iterator[tuple[str, str]]:
    for part in ("\n" + block).split(f"\n{_HEADERS}")[1:]:
        name, _, content = part.partition(" <==\n")
        yield name, content


def _minutes(word: str) -> float:
    """``0m1.250000s`` in seconds."""
    minutes, _, seconds = word.removesuffix("s").partition("m")
    try:
        return int(minutes) * 60 + float(seconds)
    except ValueError:
        return 0.0


def _read(path: str) -> str:
    # Plain descriptors: a sample reads hundreds of files, and buffered text files cost three times
    # as much. Some (an interface's speed) fail on being read.
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return b"".join(_pieces(descriptor)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _pieces(descriptor: int) -> Iterator[bytes]:
    left = _LARGEST
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 16))):
        left -= len(piece)
        yield piece


def _open_descriptors(pid: str) -> str:
    """Linux 6.2 and later give the number as the directory's size; before, they are counted."""
    with contextlib.suppress(OSError):
        place = f"/proc/{pid}/fd"
        return str(os.stat(place).st_size or len(os.listdir(place)))  # noqa: PTH116, PTH208 - cost
    return ""


def _descriptor_limit(pid: str) -> str:
    with contextlib.suppress(OSError):
        return str(resource.prlimit(int(pid), resource.RLIMIT_NOFILE)[0])
    return ""
