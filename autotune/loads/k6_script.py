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
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from autotune.loads.base import LoadResult, LoadSpec, Process
from autotune.loads.k6 import K6, RUN, source
from autotune.loads.workload import LONGEST_THINK, Unusable
from autotune.services.base import Argv, Endpoint
from autotune.strict import split_lines
from autotune.transports.request import Request
from autotune.transports.temporary import temporary

COUNTED = ("k6", "k6/http")  # modules that autotune's own replaces
OTHERS = frozenset({"k6/crypto", "k6/data", "k6/encoding", "k6/execution", "k6/html", "k6/metrics",
                    "k6/timers"})  # fmt: skip
JAVASCRIPT = (".js", ".mjs", ".ts")
LARGEST = 2_000_000  # characters of all files
_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)(['"])([^'"\n]+)\2""")
_OPEN = re.compile(r"""\bopen\s*\(\s*['"]([^'"\n]+)['"]""")
_MAIN = """const script = require(%s);
const { arrive, handleSummary, optionsFor, run } = require(%s).autotune;
exports.options = optionsFor(script);
exports.setup = () => (script.setup ? script.setup() : null);
exports.teardown = (data) => (script.teardown ? script.teardown(data) : null);
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
    """``files`` are the script and what it imports, by their paths, the script first."""

    files: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    @property
    def thinking(self) -> float:
        """A run that pauses keeps its client, for an unknown time: the longest allowed is assumed."""
        return (
            LONGEST_THINK if any(re.search(r"\bsleep\b", text) for _, text in self.files) else 0.0
        )

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
        thrown = result.errors.get("script error", 0)
        if result.errors.get("elsewhere") or not result.sent or thrown == result.sent:
            first = (split_lines(printed.strip()) or ["nothing"])[0]
            why = f"{PurePosixPath(self.files[0][0]).name} cannot be run: {first}"
            return LoadResult.nothing(process.requests, why)
        return result


def of_file(path: Path) -> K6Script:
    """The script with all that it imports from beside it. Raises Unusable."""
    texts: dict[Path, str] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop(0).resolve()
        if file in texts:
            continue
        try:
            texts[file] = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not UTF-8"
            raise Unusable(f"{file.name} cannot be read: {why}") from error
        if sum(map(len, texts.values())) > LARGEST:
            raise Unusable(f"with its imports it is larger than {LARGEST // 1000} kB")
        waiting += (file.parent / name for name in imports(texts[file], file.name))
    root = Path(os.path.commonpath([file.parent for file in texts]))
    return K6Script(files=tuple((str(f.relative_to(root)), text) for f, text in texts.items()))


def imports(text: str, name: str) -> Iterator[str]:
    """Files that a script imports or opens. Raises Unusable for modules with uncounted requests."""
    if not name.endswith(JAVASCRIPT):
        return
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
