"""k6 with a script of the user's own: its default function is run at our rate, its requests are counted
as ours.

An arrival is one run of that function. It counts once: with the time that all its requests took,
without pauses, or as its first error: an answer outside 2xx, a failed `check` or an exception. So rates
and capacities are in runs/s.

The script and what it imports are sent to the load host for each reading, with one change: `k6` and
`k6/http` are imported from `k6_script.js`, which sends requests to the target's entry only, follows
redirects within the site and times every request. What could not be counted is refused: other
protocols, and options that set rates, clients or addresses; `k6 inspect` finds these options before any
load.

``load.max_rate`` is in requests/s, so the most requests of a run limit the rate of runs. The target says
how many these are, or a few slow runs show it before the first reading. A run that would make more is
stopped before it does, and the study ends.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path, PurePosixPath
from typing import Any

from autotune import foreign_files
from autotune.loads.base import LoadError, LoadResult, LoadSpec, Process
from autotune.loads.k6 import K6, KINDS, RUN, STARTS, source, whole_count
from autotune.loads.offer import UNKNOWN, RateTooHigh
from autotune.loads.workload import LONGEST_THINK, Unusable
from autotune.services.base import Argv, Endpoint
from autotune.strict import parse_json, split_lines
from autotune.target.requests import Step
from autotune.transports.request import Request
from autotune.transports.temporary import temporary

COUNTED = ("k6", "k6/http")  # modules that autotune's own replaces
OTHERS = frozenset({"k6/crypto", "k6/data", "k6/encoding", "k6/execution", "k6/html", "k6/metrics",
                    "k6/timers"})  # fmt: skip
JAVASCRIPT = (".js", ".mjs", ".ts")
LARGEST = 2_000_000  # characters of all files
# The runs that count requests: how many, the most requests of one, and the longest time for all of
# them and the time after which no other one begins, in seconds.
RUNS, MOST, LONGEST, ENOUGH = 30, 1000, 60, 15
TOO_MANY = "too many requests"
UNCOUNTED = "k6 sent requests that are not counted"
LATE = "it makes requests after the end of a run, which are not counted"
COUNTED_ONLY = "use http.request or http.batch, and return a promise if a timer makes requests"
NAMED = "`load: {requests_per_run: N}`"
SHORTER = "divide it: a run is one visit"
_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)(['"])([^'"\n]+)\2""")
# Methods of an answer that send requests past `k6_script.js`.
_OF_ANSWER = re.compile(r"\.\s*(submitForm|clickLink)\b")
_OPEN = re.compile(r"""\bopen\s*\(\s*['"]([^'"\n]+)['"]""")
_MAIN = """const script = require(%s);
const { arrive, during, handleSummary, optionsFor, run } = require(%s).autotune;
exports.options = optionsFor(script);
exports.setup = () => during('setup', script.setup);
exports.teardown = (data) => during('teardown', script.teardown, data);
exports.default = (data) => arrive(() => run(script.default, data));
exports.handleSummary = handleSummary;
"""
# Arguments: the file to run, then the command that runs it.
_UNPACK = f"""
{temporary("k6", "-d")}
tar -xf - -C "$temporary" || exit 1
main=$temporary/$1
shift
"""
# k6's messages about errors come before the summary.
_RUN = f"""{_UNPACK}
"$@" "$main" 2>&1 >"$temporary/.summary" </dev/null | {{ head -n 3; cat >/dev/null; }}
echo
cat "$temporary/.summary"
"""
_INSPECT = f'{_UNPACK}"$@" "$main" >/dev/null </dev/null'
_MODULE = "autotune-counted.js"


@dataclass(frozen=True)
class K6Script(K6):
    """``files`` are the script and what it imports, by their paths, the script first. A run makes
    ``most`` requests at most; ``None`` if that is not known yet."""

    files: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    most: int | None = field(default=None, kw_only=True)

    @property
    def script(self) -> str:
        return PurePosixPath(self.files[0][0]).name

    @property
    def requests_each(self) -> float:  # type: ignore[override]
        return UNKNOWN if self.most is None else self.most

    def more(self, rate: float) -> dict[str, Any]:
        gap = 0 if self.most is None else ceil(1000 / rate)
        return {"most": self.most, "gap": gap, "counting": False}

    def counting(self, request: Request, max_rate: float) -> Process | None:
        """A few runs by one client, which keeps ``max_rate`` by itself."""
        if self.most is not None:
            return None
        gap = ceil(1000 / max_rate)
        order = {
            "iterations": RUNS, "span": 1000 * LONGEST, "clients": 1, "grace": 1000, "gap": gap,
            "most": MOST, "counting": True, "enough": 1000 * ENOUGH,
        }  # fmt: skip
        bound = LONGEST + STARTS
        argv, scenario = self._command(request, LoadSpec(1.0, LONGEST), order, bound)
        return Process(argv, RUNS, LONGEST, bound + 1.0, 1, input=scenario, rate=1000 / gap)

    def counted(self, printed: str) -> K6Script:
        try:
            summary = _summary(printed)
            most = whole_count(summary["most"])
            stopped = whole_count(summary["counts"].get(f"failed_{KINDS.index(TOO_MANY)}", 0))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LoadError(
                f"{self.script} cannot be run: {first_line(printed)}",
                hint="its requests are counted in a few slow runs before any other load",
            ) from error
        if uncounted(summary) or is_late(summary):
            why = UNCOUNTED if uncounted(summary) else LATE
            raise LoadError(f"{self.script} cannot be run: {why}", hint=COUNTED_ONLY)
        if stopped or not 0 <= most <= MOST:
            raise LoadError(f"a run of {self.script} makes more than {MOST} requests", hint=SHORTER)
        if not most:
            raise LoadError(
                f"no run of {self.script} made a request within {LONGEST} s: {first_line(printed)}",
                hint=f"raise load.max_rate, or name the most requests of a run: {NAMED}",
            )
        return replace(self, most=most)

    @property
    def thinking(self) -> float:
        """A run that pauses keeps its client, for an unknown time: the longest allowed is assumed."""
        return (
            LONGEST_THINK if any(re.search(r"\bsleep\b", text) for _, text in self.files) else 0.0
        )

    def steps_of(self, request: Request) -> tuple[tuple[Step, float], ...]:
        """A script knows by itself what to ask for, and what is right: see its `check`."""
        return ()

    def run(self, scenario: str) -> tuple[Argv, bytes]:
        return ("sh", "-c", _RUN, "sh", *self._main, *RUN, "--log-format=raw"), self._packed(
            scenario
        )

    def inspection(self) -> tuple[Argv, bytes]:
        """k6 runs the code outside of functions, and fails if it cannot."""
        (process,) = self.processes(Request(Endpoint("localhost", 80), "/"), LoadSpec(1, 1.0))
        argv = ("sh", "-c", _INSPECT, "sh", *self._main, "k6", "inspect", "--log-format=raw")
        return argv, process.input or b""

    @property
    def _main(self) -> Argv:
        """It is put beside the script, because `open` looks for files beside the file that is run."""
        return (str(PurePosixPath(self.files[0][0]).with_name("autotune-main.js")),)

    def _packed(self, scenario: str) -> bytes:
        """All files as a tar archive."""
        (main,), (script, _) = self._main, self.files[0]
        texts = {name: replaced(name, text) for name, text in self.files}
        texts[main] = _MAIN % (_relative(script, main), _relative(_MODULE, main))
        texts[_MODULE] = scenario + source("k6_script.js")
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name, text in texts.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return stream.getvalue()

    def read(self, process: Process, printed: str, request: Request, spec: LoadSpec) -> LoadResult:
        result = super().read(process, printed, request, spec)
        summary = _summary(printed)
        if uncounted(summary):
            raise RateTooHigh(
                f"{self.script} does not keep load.max_rate: {UNCOUNTED}; the reading does not count",
                hint=COUNTED_ONLY,
            )
        if is_late(summary):
            return LoadResult.nothing(process.requests, f"{self.script} cannot be run: {LATE}")
        if result.errors.get(TOO_MANY):
            raise RateTooHigh(
                f"runs of {self.script} make more than {self.most} requests, so their rate does not keep "
                "load.max_rate; the reading does not count",
                hint=f"name the most requests of a run: {NAMED}",
            )
        thrown = result.errors.get("script error", 0)
        if result.errors.get("elsewhere") or not result.sent or thrown == result.sent:
            why = f"{self.script} cannot be run: {first_line(printed)}"
            return LoadResult.nothing(process.requests, why)
        return result


def _summary(printed: str) -> Mapping[str, Any]:
    """What the scenario printed last; empty if it cannot be read."""
    try:
        summary = parse_json((split_lines(printed.strip()) or [""])[-1])
        return {**summary, "counts": {n: whole_count(c) for n, c in summary["counts"].items()}}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"counts": {}}


def uncounted(summary: Mapping[str, Any]) -> bool:
    """True if k6 sent more requests than the script made by ``k6_script.js``."""
    counts = summary["counts"]
    return bool(counts.get("http_reqs", 0) > counts.get("spent", 0))


def is_late(summary: Mapping[str, Any]) -> bool:
    """True if a run made requests after its end."""
    return bool(summary["counts"].get("late", 0))


def first_line(printed: str) -> str:
    """The first line of what k6 printed: its own message, if there is one."""
    return (split_lines(printed.strip()) or ["nothing"])[0][:300]


def of_file(path: Path, most: int | None = None) -> K6Script:
    """The script with all that it imports from beside it; a run makes ``most`` requests, if that is
    known. Raises Unusable."""
    texts: dict[Path, str] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop(0).resolve()
        if file in texts:
            continue
        try:
            texts[file] = foreign_files.read_named(file, LARGEST).decode()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not UTF-8"
            raise Unusable(f"{file.name} cannot be read: {why}") from error
        if sum(map(len, texts.values())) > LARGEST:
            raise Unusable(f"with its imports it is larger than {LARGEST // 1000} kB")
        waiting += (file.parent / name for name in imports(texts[file], file.name))
    root = Path(os.path.commonpath([file.parent for file in texts]))
    files = tuple((str(f.relative_to(root)), text) for f, text in texts.items())
    return K6Script(files=files, most=most)


def imports(text: str, name: str) -> Iterator[str]:
    """Files that a script imports or opens. Raises Unusable for modules with uncounted requests."""
    if not name.endswith(JAVASCRIPT):
        return
    if match := _OF_ANSWER.search(text):
        raise Unusable(f"{name} uses {match[1]}, whose requests are not counted: use http.request")
    for match in _IMPORT.finditer(text):
        module = match[3]
        if module.startswith("."):
            yield module
        elif "://" in module:
            raise Unusable(f"{name} imports {module} anew for each reading: keep a copy beside it")
        elif module not in (*COUNTED, *OTHERS):
            raise Unusable(f"{name} imports {module}, and requests of k6/http alone are counted")
    yield from (match[1] for match in _OPEN.finditer(text))


def replaced(name: str, text: str) -> str:
    """The script, importing from autotune's module what it imported from k6."""
    if not name.endswith(JAVASCRIPT):
        return text
    place = _relative(_MODULE, name)
    return _IMPORT.sub(lambda m: f"{m[1]}{place}" if m[3] in COUNTED else m[0], text)


def _relative(to: str, name: str) -> str:
    """How the file ``name`` imports another, as a string of JavaScript."""
    path = os.path.relpath(to, PurePosixPath(name).parent)
    return json.dumps(path if path.startswith(".") else f"./{path}")
