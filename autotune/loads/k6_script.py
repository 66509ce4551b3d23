"""k6 with the user's own script: the script's default function runs at the requested rate, and its
requests are counted.

An arrival is one run of the default function. A successful run counts once, with the time of all its
requests, without pauses. A failed run counts as its first error: a response outside 2xx, a failed
`check` or an exception. Rates and capacities are therefore in runs/s.

The script and its imports are sent to the load host for each reading, with one change: `k6` and
`k6/http` are imported from `k6_script.js`. `k6_script.js` sends requests only to the target's entry,
follows redirects within the site and times every request. autotune refuses load that cannot be
counted: other protocols, and options that set rates, clients or addresses. `k6 inspect` finds such
options before any load.

``load.max_rate`` is in requests/s, so the allowed rate of runs depends on the maximum number of
requests in a run. The target sets this maximum, or a few slow runs measure it before the first
reading. If a run would exceed the maximum, the run is stopped and the study ends.
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
from autotune.loads.base import LoadError, LoadProcess, LoadResult, LoadSpec
from autotune.loads.k6 import (
    ERROR_KINDS,
    RUN_COMMAND,
    START_SECONDS,
    K6Generator,
    parse_whole_count,
    read_source,
)
from autotune.loads.load_commands import UNKNOWN_RATE, RateTooHigh
from autotune.loads.workload import MAX_THINK_SECONDS, UnusableWorkload
from autotune.services.base import Argv, Endpoint
from autotune.strict_parsing import parse_json, split_lines
from autotune.target.requests_file import SessionStep
from autotune.transports.request import Request
from autotune.transports.temporary_files import temporary_file_script

COUNTED_MODULES = ("k6", "k6/http")  # modules that `k6_script.js` replaces
UNCOUNTED_MODULES = frozenset(
    {"k6/crypto", "k6/data", "k6/encoding", "k6/execution", "k6/html", "k6/metrics", "k6/timers"}
)
SCRIPT_SUFFIXES = (".js", ".mjs", ".ts")
MAX_SCRIPT_CHARACTERS = 2_000_000  # in the script and its imports together
COUNTING_RUNS = 30
MAX_REQUESTS_PER_RUN = 1000
MAX_COUNTING_SECONDS = 60
LAST_START_SECONDS = 15  # seconds after which no further counting run starts
TOO_MANY_REQUESTS = "too many requests"
UNCOUNTED_REQUESTS = "k6 sent requests that are not counted"
LATE_REQUESTS = "requests after the end of a run are not counted"
COUNTED_CALLS_HINT = (
    "use http.request or http.batch, and return a promise if a timer sends requests"
)
REQUESTS_PER_RUN_HINT = "`load: {requests_per_run: N}`"
SHORTER_RUN_HINT = "split the script, so that one run is one visit"
_IMPORT_PATTERN = re.compile(
    r"""(\bfrom\s*+|\bimport\s*+\(?\s*+|\brequire\s*+\(\s*+)(['"])([^'"\n]+)\2"""
)
# Methods of a k6 response that bypass `k6_script.js`.
_ANSWER_METHOD_PATTERN = re.compile(r"\.\s*(submitForm|clickLink)\b")
_OPEN_PATTERN = re.compile(r"""\bopen\s*\(\s*['"]([^'"\n]+)['"]""")
_MAIN_TEMPLATE = """const script = require(%s);
const { arrive, during, handleSummary, optionsFor, run } = require(%s).autotune;
exports.options = optionsFor(script);
exports.setup = () => during('setup', script.setup);
exports.teardown = (data) => during('teardown', script.teardown, data);
exports.default = (data) => arrive(() => run(script.default, data));
exports.handleSummary = handleSummary;
"""
# Arguments: the name of the main file, then the command that runs it.
_UNPACK_SCRIPT = f"""
{temporary_file_script("k6", "-d")}
tar -xf - -C "$temporary" || exit 1
main=$temporary/$1
shift
"""
# k6 prints error messages before the summary.
_RUN_SCRIPT = f"""{_UNPACK_SCRIPT}
"$@" "$main" 2>&1 >"$temporary/.summary" </dev/null | {{ head -n 3; cat >/dev/null; }}
echo
cat "$temporary/.summary"
"""
_INSPECT_SCRIPT = f'{_UNPACK_SCRIPT}"$@" "$main" >/dev/null </dev/null'
_MODULE_NAME = "autotune-counted.js"


@dataclass(frozen=True)
class K6ScriptGenerator(K6Generator):
    """k6 with the user's own script. ``files`` contains the paths and texts of the script and its
    imports, starting with the script.

    One run makes at most ``max_requests_per_run`` requests; ``None`` if the maximum is unknown.
    """

    files: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    max_requests_per_run: int | None = field(default=None, kw_only=True)

    @property
    def script(self) -> str:
        return PurePosixPath(self.files[0][0]).name

    @property
    def requests_per_iteration(self) -> float:  # type: ignore[override]
        return UNKNOWN_RATE if self.max_requests_per_run is None else self.max_requests_per_run

    def describe_rate(self, rate: float) -> dict[str, Any]:
        gap = 0 if self.max_requests_per_run is None else ceil(1000 / rate)
        return {"most": self.max_requests_per_run, "gap": gap, "counting": False}

    def counting_process(self, request: Request, max_rate: float) -> LoadProcess | None:
        """Return a process in which one client makes a few runs. The process delays requests to stay
        below ``max_rate``.
        """
        if self.max_requests_per_run is not None:
            return None
        gap = ceil(1000 / max_rate)
        scenario_parameters = {
            "iterations": COUNTING_RUNS,
            "span": 1000 * MAX_COUNTING_SECONDS,
            "clients": 1,
            "grace": 1000,
            "gap": gap,
            "most": MAX_REQUESTS_PER_RUN,
            "counting": True,
            "enough": 1000 * LAST_START_SECONDS,
        }
        stop_seconds = MAX_COUNTING_SECONDS + START_SECONDS
        argv, scenario = self._build_run_command(
            request, LoadSpec(1.0, MAX_COUNTING_SECONDS), scenario_parameters, stop_seconds
        )
        return LoadProcess(
            argv,
            COUNTING_RUNS,
            MAX_COUNTING_SECONDS,
            stop_seconds + 1.0,
            1,
            input=scenario,
            max_rate=1000 / gap,
        )

    def with_counted_requests(self, output: str) -> K6ScriptGenerator:
        try:
            summary = _read_summary(output)
            max_requests = parse_whole_count(summary["most"])
            stopped_runs = parse_whole_count(
                summary["counts"].get(f"failed_{ERROR_KINDS.index(TOO_MANY_REQUESTS)}", 0)
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LoadError(
                f"cannot run {self.script}: {read_first_line(output)}",
                hint=f"`k6 run {self.script}` must work on the load host; autotune runs the script a few "
                "times slowly, to count its requests",
            ) from error
        if has_uncounted_requests(summary) or has_late_requests(summary):
            reason = UNCOUNTED_REQUESTS if has_uncounted_requests(summary) else LATE_REQUESTS
            raise LoadError(f"cannot run {self.script}: {reason}", hint=COUNTED_CALLS_HINT)
        if stopped_runs or not 0 <= max_requests <= MAX_REQUESTS_PER_RUN:
            raise LoadError(
                f"a run of {self.script} makes more than {MAX_REQUESTS_PER_RUN} requests",
                hint=SHORTER_RUN_HINT,
            )
        if not max_requests:
            raise LoadError(
                f"no run of {self.script} made a request within {MAX_COUNTING_SECONDS} s: "
                f"{read_first_line(output)}",
                hint=f"raise load.max_rate, or set the maximum per run: {REQUESTS_PER_RUN_HINT}",
            )
        return replace(self, max_requests_per_run=max_requests)

    @property
    def longest_pause(self) -> float:
        """Return the longest allowed pause in seconds if the script calls `sleep`, or else 0."""
        return (
            MAX_THINK_SECONDS
            if any(re.search(r"\bsleep\b", text) for _, text in self.files)
            else 0.0
        )

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        """Return no requests, because a script chooses its requests, and the script's `check`
        decides which responses are correct.
        """
        return ()

    def build_run_command(self, scenario: str) -> tuple[Argv, bytes]:
        return (
            "sh",
            "-c",
            _RUN_SCRIPT,
            "sh",
            *self._main_argument,
            *RUN_COMMAND,
            "--log-format=raw",
        ), self._build_archive(scenario)

    def inspection_command(self) -> tuple[Argv, bytes]:
        """Return a command that runs the script's code outside of functions, and fails if k6 cannot
        run it.
        """
        (process,) = self.build_processes(Request(Endpoint("localhost", 80), "/"), LoadSpec(1, 1.0))
        argv = (
            "sh",
            "-c",
            _INSPECT_SCRIPT,
            "sh",
            *self._main_argument,
            "k6",
            "inspect",
            "--log-format=raw",
        )
        return argv, process.input or b""

    @property
    def _main_argument(self) -> Argv:
        """Return the path of the main file, which is next to the script because `open` resolves
        paths relative to the main file.
        """
        return (str(PurePosixPath(self.files[0][0]).with_name("autotune-main.js")),)

    def _build_archive(self, scenario: str) -> bytes:
        """Return the script, its imports and the scenario as a tar archive."""
        (main_path,), (script, _) = self._main_argument, self.files[0]
        text_by_path = {
            file_path: replace_imports(file_path, file_text) for file_path, file_text in self.files
        }
        text_by_path[main_path] = _MAIN_TEMPLATE % (
            _format_relative_import(script, main_path),
            _format_relative_import(_MODULE_NAME, main_path),
        )
        text_by_path[_MODULE_NAME] = scenario + read_source("k6_script.js")
        archive_buffer = io.BytesIO()
        with tarfile.open(fileobj=archive_buffer, mode="w") as archive:
            for file_path, file_text in text_by_path.items():
                archive_member = tarfile.TarInfo(file_path)
                archive_member.size = len(file_text.encode())
                archive.addfile(archive_member, io.BytesIO(file_text.encode()))
        return archive_buffer.getvalue()

    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        result = super().parse_output(process, output, request, spec)
        summary = _read_summary(output)
        if has_uncounted_requests(summary):
            raise RateTooHigh(
                f"{self.script} may exceed load.max_rate, because {UNCOUNTED_REQUESTS}",
                hint=COUNTED_CALLS_HINT,
            )
        if has_late_requests(summary):
            return LoadResult.build_unsent_result(
                process.request_count, f"cannot run {self.script}: {LATE_REQUESTS}"
            )
        if result.errors.get(TOO_MANY_REQUESTS):
            raise RateTooHigh(
                f"{self.script} may exceed load.max_rate, because a run made more than "
                f"{self.max_requests_per_run} requests",
                hint=f"set the maximum number of requests per run: {REQUESTS_PER_RUN_HINT}",
            )
        if reason := self._find_long_pause(result, summary):
            return LoadResult.build_unsent_result(process.request_count, reason)
        thrown_errors = result.errors.get("script error", 0)
        if result.errors.get("elsewhere") or not result.sent or thrown_errors == result.sent:
            reason = f"cannot run {self.script}: {read_first_line(output)}"
            return LoadResult.build_unsent_result(process.request_count, reason)
        return result

    def _find_long_pause(self, result: LoadResult, summary: Mapping[str, Any]) -> str | None:
        """Return the reason if runs were dropped or interrupted because a run pauses for too long."""
        pause_seconds = summary.get("pause", 0)
        if (
            not isinstance(pause_seconds, int | float)
            # the script adds up its pauses, such as twenty of 0.1 s, and the sum is not exact
            or round(pause_seconds, 3) <= MAX_THINK_SECONDS
            or not (result.limited or result.errors.get("unanswered"))
        ):
            return None
        return (
            f"a run of {self.script} pauses for {pause_seconds:g} s; the maximum is "
            f"{MAX_THINK_SECONDS:g} s"
        )


def _read_summary(output: str) -> Mapping[str, Any]:
    """Return the summary that the scenario printed last, or an empty mapping if it is unreadable."""
    try:
        summary = parse_json((split_lines(output.strip()) or [""])[-1])
        return {
            **summary,
            "counts": {n: parse_whole_count(c) for n, c in summary["counts"].items()},
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"counts": {}}


def has_uncounted_requests(summary: Mapping[str, Any]) -> bool:
    """True if k6 sent more requests than the script made through ``k6_script.js``."""
    count_by_name = summary["counts"]
    return bool(count_by_name.get("http_reqs", 0) > count_by_name.get("spent", 0))


def has_late_requests(summary: Mapping[str, Any]) -> bool:
    """True if a run of the script made requests after the run had ended."""
    return bool(summary["counts"].get("late", 0))


def read_first_line(output: str) -> str:
    """Return the first line of k6's output, which is k6's error message if there is one."""
    return (split_lines(output.strip()) or ["nothing"])[0][:300]


_DEFAULT_EXPORT_PATTERN = re.compile(r"\bdefault\b|\bexports\b|\bexport \*")


def read_texts(path: Path) -> dict[Path, str]:
    """Return the texts of a script and of the files that it imports or opens, by their paths without
    links. Raises UnusableWorkload.
    """
    text_by_path: dict[Path, str] = {}
    pending_paths = [path]
    while pending_paths:
        script_path = pending_paths.pop(0).resolve()
        if script_path in text_by_path:
            continue
        try:
            text_by_path[script_path] = foreign_files.read_named_file(
                script_path, MAX_SCRIPT_CHARACTERS
            ).decode()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise UnusableWorkload(f"cannot read {script_path.name}: {reason}") from error
        if sum(map(len, text_by_path.values())) > MAX_SCRIPT_CHARACTERS:
            raise UnusableWorkload(
                f"the script and its imports are larger than {MAX_SCRIPT_CHARACTERS // 1000} kB"
            )
        pending_paths += (
            script_path.parent / name
            for name in find_imports(text_by_path[script_path], script_path.name)
        )
    return text_by_path


def read_script(path: Path, max_requests: int | None = None) -> K6ScriptGenerator:
    """Return a generator for the script with its local imports. Raises UnusableWorkload.

    A run makes at most ``max_requests`` requests; ``None`` if the maximum is unknown.
    """
    text_by_path = read_texts(path)
    if not _DEFAULT_EXPORT_PATTERN.search(text_by_path[path.resolve()]):
        hint = "add `export default function () { … }`, which makes the requests"
        raise UnusableWorkload("the script exports no default function", hint=hint)
    root = Path(os.path.commonpath([script_path.parent for script_path in text_by_path]))
    script_files = tuple((str(f.relative_to(root)), text) for f, text in text_by_path.items())
    return K6ScriptGenerator(files=script_files, max_requests_per_run=max_requests)


def find_imports(script_text: str, script_name: str) -> Iterator[str]:
    """Yield the files that a script imports or opens.

    Raises UnusableWorkload for modules whose requests cannot be counted.
    """
    if not script_name.endswith(SCRIPT_SUFFIXES):
        return
    if match := _ANSWER_METHOD_PATTERN.search(script_text):
        raise UnusableWorkload(
            f"{script_name} calls {match[1]}, whose requests are not counted: use http.request"
        )
    for match in _IMPORT_PATTERN.finditer(script_text):
        module = match[3]
        if module.startswith("."):
            yield module
        elif "://" in module:
            raise UnusableWorkload(
                f"{script_name} imports {module} from the network: import a local copy instead"
            )
        elif module not in (*COUNTED_MODULES, *UNCOUNTED_MODULES):
            raise UnusableWorkload(
                f"{script_name} imports {module}, but only requests of k6/http are counted"
            )
    yield from (match[1] for match in _OPEN_PATTERN.finditer(script_text))


def replace_imports(script_name: str, script_text: str) -> str:
    """Return the text of a script that imports autotune's module instead of k6's modules."""
    if not script_name.endswith(SCRIPT_SUFFIXES):
        return script_text
    module_location = _format_relative_import(_MODULE_NAME, script_name)
    return _IMPORT_PATTERN.sub(
        lambda m: f"{m[1]}{module_location}" if m[3] in COUNTED_MODULES else m[0], script_text
    )


def _format_relative_import(target_path: str, importing_path: str) -> str:
    """Return the path with which the file ``importing_path`` imports ``target_path``, as a JavaScript
    string.
    """
    path = os.path.relpath(target_path, PurePosixPath(importing_path).parent)
    return json.dumps(path if path.startswith(".") else f"./{path}")
