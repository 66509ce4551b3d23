"""Studies and exports from strangers, and the behaviour of commands with each of them.

Each sandbox contains a directory of studies, a directory of exports, and precious files that no
command may change. A command may read, refuse, or write to its requested path. All other behaviour
is a fault.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from autotune import exit_handling
from autotune.cli import app
from autotune.deploy.private_servers import PID_SUFFIX
from autotune.errors import BUG_EXIT_CODE
from tests.fuzz.campaign import Hang, alarm
from tests.fuzz.odd_data import MANY, ODD_JSON, ODD_NAMES, REPEATS, SCHEMAS
from tests.modelled import noisy

RECORDED = Path(__file__).parents[1] / "report" / "studies"
# Limits in seconds of CPU time, and in total, because other processes may use the CPU. Searches and
# models take longer.
WITHIN, COMPUTING, MOST = 5.0, 120.0, 300.0
COMPUTE = ("run", "measure", "explain")
# A run of a model takes seconds, and a run of a command less. Both read the same foreign files.
EVERY = 0.1
TOY = """\
name: toy
command: [echo, '{"value": 5.0, "sd": 0.5}']
maximize: throughput
parameters: {x: {range: [1, 100]}}
budget: {trials: 3, time: 5m}
search: {sampler: random}
"""
SPARSE = 10 << 30
ESCAPES = "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2J\u202e"
NAMES = ("lock", "events.jsonl", "readings.jsonl", "target.yaml", "seal", "study.db", "workers.json",
         "worker", "study.db-wal", "study.db-shm", "study.db-journal", "originals",
         "originals/here.json", "configs", "configs/0", "configs/1",
         "configs/0/lb.here.nginx/nginx.conf", "run", "beds", "beds/one/run", "beds/one/originals",
         "report.html", "templates", "templates/files.json", "sweep.html")  # fmt: skip
# Characters that a terminal may execute, or that change the order of text.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
EXPORTED = ("manifest.json", "target.yaml", "README.md", "changes.diff", "files", ".")


@dataclass(frozen=True)
class Sandbox:
    """A sandbox. No command may change ``precious``. ``canary`` exists only if a command in a
    record was run.
    """

    top: Path

    @property
    def precious(self) -> Path:
        return self.top / "precious"

    @property
    def canary(self) -> Path:
        return self.top / "canary"

    @property
    def study(self) -> Path:
        return self.top / "studies" / "stranger"

    @property
    def own(self) -> Path:
        """Return a study of this account, to which someone else had access."""
        return self.top / "studies" / "toy"

    @property
    def export(self) -> Path:
        return self.top / "exports" / "stranger"

    def state(self) -> dict[str, object]:
        """Return the state of everything that no command may change."""
        found: dict[str, object] = {"canary": self.canary.exists()}
        for path in sorted(self.precious.rglob("*")):
            status = path.lstat()
            whole = status.st_size < 1 << 20 and path.is_file() and not path.is_symlink()
            content = sha256(path.read_bytes()).hexdigest() if whole else None
            found[str(path)] = (status.st_mode, status.st_uid, status.st_mtime_ns, content)
        return found


@dataclass
class Result:
    """The results of all commands. ``faults`` are by kind, each with one example. ``slowest`` is
    the longest duration, in seconds, of a command without a search or a model.
    """

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (f"{self.tried} commands on strangers' studies and exports: {self.accepted} accepted, "
                f"{self.refused} refused, {len(self.faults)} kinds of fault, slowest "
                f"{self.slowest:.1f} s")  # fmt: skip


def campaign(directory: Path, studies: int, seed: int) -> Result:
    """Run every command on ``studies`` sandboxes. The same ``seed`` creates the same sandboxes."""
    result, exported, own = Result(), _made_export(directory), make_study(directory)
    for number in range(studies):
        random = Random(f"{seed} {number}")
        sandbox = _sandbox(directory / str(number), exported, own)
        done = [damage(random, sandbox) for _ in range(random.choice((1, 1, 1, 2, 3)))]
        before = sandbox.state()
        for words in commands(sandbox, random):
            _try(words, result, f"sandbox {number}, {', '.join(done)}")
            if sandbox.state() != before:
                result.faults.setdefault(f"{words[0]} changed what is outside", str(done))
                before = sandbox.state()
        shutil.rmtree(sandbox.top)
    return result


def commands(sandbox: Sandbox, random: Random) -> Iterator[Sequence[str]]:
    """Yield the commands that a user might run on a study and an export from a stranger."""
    own, name = str(sandbox.top / "own.yaml"), "stranger"
    out = sandbox.top / "out"
    way = random.choice(("files", "ansible", "shell", "patch", "yaml", "json"))
    yield from (
        ("status",), ("status", name, "--json"), ("report", name), ("report", name, "--json"),
        ("report", name, "--html", str(out / "page.html")), ("report", name, "--csv", "readings"),
        ("explain", name), ("diff", name), ("diff", name, "0", "1", "--parameters"),
        ("diff", name, "0", "hosts"),
        ("export", name, "--trial", random.choice(("best", "0")), "--format", way,
         "--out", str(out / "export")),
        ("apply", str(sandbox.export), own, "--yes"),
        ("measure", own, "--config", str(sandbox.export), "--yes", "--quiet"),
        ("resume", name, "--yes", "--quiet"), ("restore", name),
        ("resume", "toy", "--yes", "--quiet"), ("report", "toy"),
        ("restore", str(sandbox.top / "improved.yaml")),
        ("run", own if random.random() < EVERY else str(sandbox.top / "toy.yaml"), "--from", name,
         "--yes", "--quiet"),
    )  # fmt: skip


def _try(words: Sequence[str], result: Result, what: str) -> None:
    command = [*words, "--studies", str(_top(what, result) / "studies")]
    begun, printed, errors = time.monotonic(), io.StringIO(), io.StringIO()
    code: int | str
    try:
        with (
            alarm(COMPUTING if words[0] in COMPUTE else WITHIN, MOST),
            redirect_stdout(printed),
            redirect_stderr(errors),
        ):
            code = exit_handling.run_command(
                lambda: app(command, standalone_mode=False), as_json=False
            )
    except Hang:
        code = "hang"
    except Exception as error:  # noqa: BLE001  # what a campaign is for
        code = type(error).__name__
    output = printed.getvalue() + errors.getvalue()
    result.tried += 1
    if words[0] not in COMPUTE:
        result.slowest = max(result.slowest, time.monotonic() - begun)
    if code == BUG_EXIT_CODE or isinstance(code, str):
        result.faults.setdefault(f"{words[0]} ends with {code}", f"{what}: {output[-600:]}")
    elif CONTROL.search(output) or "root:" in output:
        result.faults.setdefault(f"{words[0]} prints what it should not", f"{what}: {output[:600]}")
    elif code == 0:
        result.accepted += 1
    else:
        result.refused += 1
        if "hint:" not in output:
            result.faults.setdefault(f"{words[0]} gives no hint", f"{what}: {output[-600:]}")


_PLACES: dict[str, Path] = {}


def _top(what: str, _: Result) -> Path:
    return _PLACES[what.partition(",")[0]]


def _made_export(directory: Path) -> Path:
    out = directory / "exported"
    words = ["export", "improved", "--trial", "best", "--out", str(out), "--studies", str(RECORDED)]
    with redirect_stdout(io.StringIO()):
        assert (
            exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=False) == 0
        )
    return out


def make_study(directory: Path) -> Path:
    """Make a study of this account without a verdict, which `resume` continues."""
    studies, target = directory / "made", directory / "toy.yaml"
    target.write_text(TOY)
    words = ["run", str(target), "--yes", "--quiet", "--studies", str(studies)]
    with redirect_stdout(io.StringIO()):
        assert (
            exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=False) == 0
        )
    journal = studies / "toy" / "events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    second = [n for n, line in enumerate(lines) if json.loads(line)["event"] == "trial"][1]
    journal.write_bytes(b"".join(lines[:second]))
    return studies / "toy"


def _sandbox(top: Path, exported: Path, own: Path) -> Sandbox:
    sandbox = Sandbox(top)
    (top / "exports").mkdir(parents=True)
    shutil.copytree(exported, sandbox.export)
    shutil.copytree(RECORDED / ("killed" if top.name[-1] in "37" else "improved"), sandbox.study)
    shutil.copytree(own, sandbox.own)
    (sandbox.precious / "inner").mkdir(parents=True)
    for name in ("secret", "inner/file", f"inner/sleep{PID_SUFFIX}"):
        (sandbox.precious / name).write_text(f"{os.getpid()} precious\n")
    (top / "own.yaml").write_text(noisy("budget: {trials: 3, time: 5m}\n"))
    (top / "toy.yaml").write_text(TOY)
    target = (RECORDED / "improved" / "target.yaml").read_text()
    (top / "improved.yaml").write_text(target)
    _edit(sandbox.study / "events.jsonl", 0, lambda r: {**r, "source": str(top / "improved.yaml")})
    _PLACES[f"sandbox {top.name}"] = top
    return sandbox


def damage(random: Random, sandbox: Sandbox) -> str:
    """Change one detail of the study or the export, as a stranger might. Return a description of
    the change.
    """
    of_export = random.random() < 0.25
    top, names = (sandbox.export, EXPORTED) if of_export else (sandbox.study, NAMES)
    kind = random.choice((*LIES, "record", "record", *CHANGES))
    if kind in CHANGES:
        return CHANGES[kind](random, sandbox, of_export)
    name = random.choice(names)
    if clear := _clear(top / name):
        LIES[kind](top / name, sandbox)
    return f"{kind} as {name}" if clear else "nothing"


def _clear(path: Path) -> bool:
    """Remove the file at a path. Return false if an earlier change above the path prevents this."""
    above = [parent for parent in path.parents if parent.is_symlink() or parent.exists()]
    if any(parent.is_symlink() or not parent.is_dir() for parent in above):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return True


def _device(path: Path, _: Sandbox) -> None:
    if os.geteuid() == 0:
        os.mknod(path, 0o20666, os.makedev(1, 5))
    else:
        path.symlink_to("/dev/zero")


def _socket(path: Path, _: Sandbox) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        handle = os.open(path.parent, os.O_PATH)
        server.bind(f"/proc/self/fd/{handle}/{path.name}")
        os.close(handle)


def _sparse(path: Path, _: Sandbox) -> None:
    path.touch()
    os.truncate(path, SPARSE)


LIES: dict[str, Callable[[Path, Sandbox], None]] = {
    "a link to a file": lambda path, box: path.symlink_to(box.precious / "secret"),
    "a link to a directory": lambda path, box: path.symlink_to(box.precious),
    "a link to the passwords": lambda path, _: path.symlink_to("/etc/shadow"),
    "a link to zeros": lambda path, _: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path, _: path.symlink_to(path),
    "a link to nothing": lambda path, box: path.symlink_to(box.precious / "new"),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a device": _device,
    "a socket": _socket,
    "a sparse file": _sparse,
    "a directory": lambda path, _: path.mkdir(),
    "nothing": lambda path, _: None,
    "a hard link": lambda path, box: os.link(box.precious / "secret", path),
    "noise": lambda path, _: path.write_bytes(b"\x00\xff\x1b[2J{" * 50),
}


def _odd(random: Random, sandbox: Sandbox) -> Any:
    return random.choice((
        None, True, -1, 0, 2**63, 1e308, 0.5, "", ESCAPES, "../../../precious/secret", "/etc/shadow",
        str(sandbox.precious), ["touch", str(sandbox.canary)], f"; touch {sandbox.canary}",
        f"$(touch {sandbox.canary})", "{{ 7*7 }}", "ssh.service; reboot", [], {}, [[[]]],
        {"argv": ["touch", str(sandbox.canary)]}, "x" * 100_000, "9" * 400, "\ud800",
    ))  # fmt: skip


def _replace_somewhere(random: Random, value: Any, odd: Any) -> Any:
    """Return the value with a random part replaced, removed or added."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.2:
        return odd
    if isinstance(value, list):
        index = random.randrange(len(value))
        return [*value[:index], _replace_somewhere(random, value[index], odd), *value[index + 1 :]]
    key = random.choice(list(value))
    if (chance := random.random()) < 0.1:
        return {k: v for k, v in value.items() if k != key}
    if chance < 0.2:
        return {**value, str(odd)[:200]: odd}
    return {**value, key: _replace_somewhere(random, value[key], odd)}


def _edit(journal: Path, number: int, change: Callable[[Any], Any]) -> None:
    if journal.is_symlink() or not journal.is_file() or journal.stat().st_size > 1 << 24:
        return
    lines = journal.read_bytes().split(b"\n")
    try:
        lines[number] = json.dumps(change(json.loads(lines[number]))).encode()
    except (ValueError, IndexError):
        return
    journal.write_bytes(b"\n".join(lines))


def _damage_record(random: Random, sandbox: Sandbox, of_export: bool) -> str:
    if of_export:
        return _damage_manifest(random, sandbox)
    name = random.choice(("events.jsonl", "events.jsonl", "readings.jsonl"))
    journal = sandbox.study / name
    if journal.is_symlink() or not journal.is_file() or journal.stat().st_size > 1 << 24:
        return "nothing"
    number, odd = random.randrange(max(1, journal.read_bytes().count(b"\n"))), _odd(random, sandbox)
    _edit(journal, number, lambda record: _replace_somewhere(random, record, odd))
    return f"{str(odd)[:60]!r} in line {number} of {name}"


def _damage_manifest(random: Random, sandbox: Sandbox) -> str:
    manifest, odd = sandbox.export / "manifest.json", _odd(random, sandbox)
    if manifest.is_symlink() or not manifest.is_file() or manifest.stat().st_size > 1 << 24:
        return "nothing"
    try:
        content = json.loads(manifest.read_bytes())
    except ValueError:
        return "nothing"
    manifest.write_text(json.dumps(_replace_somewhere(random, content, odd)))
    return f"{str(odd)[:60]!r} in the manifest"


def _damage_version(random: Random, sandbox: Sandbox, _: bool) -> str:
    version = random.choice((0, 2, "x"))
    _edit(sandbox.study / "events.jsonl", 0, lambda r: {**r, "schema": version})
    return "another version"


def _damage_target(random: Random, sandbox: Sandbox, of_export: bool) -> str:
    text = random.choice((
        f"name: {ESCAPES!r}\n", "command: [touch, {canary}]\n", "templates: {precious}\n", "load: {{}}\n",
        "load: {{command: [touch, {canary}]}}\n", "hosts: {{here: {{address: '-oProxyCommand=x'}}}}\n",
        "tiers: {{lb: {{hosts: here, service: [touch, {canary}]}}}}\n", "{{{{{{{{", "a: &a [*a]\n",
    )).format(canary=sandbox.canary, precious=sandbox.precious)  # fmt: skip
    path = (sandbox.export if of_export else sandbox.study) / "target.yaml"
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 24:
        return "nothing"
    base = path.read_bytes()
    path.write_bytes(text.encode() if random.random() < 0.3 else base + text.encode())
    return f"{text[:60]!r} in target.yaml"


def _is_editable(path: Path) -> bool:
    return not path.is_symlink() and path.is_file() and path.stat().st_size <= 1 << 24


def _name(random: Random, sandbox: Sandbox, of_export: bool) -> str:
    """Give a file of the study or the export an odd name, and refer to it in the records."""
    name, top = random.choice(ODD_NAMES), sandbox.export if of_export else sandbox.study
    place = random.choice((top, top / "configs" / "0", top / "originals", top.parent))
    is_name = "/" not in name and name not in ("", ".", "..")
    with suppress(OSError, ValueError):  # a name that no file can have
        if is_name and place == top.parent:
            shutil.copytree(RECORDED / "killed", place / name)
        elif is_name and place.is_dir() and not place.is_symlink():
            (place / name).write_text("theirs\n")
    journal = top / ("manifest.json" if of_export else "events.jsonl")
    if _is_editable(journal):
        number = 0 if of_export else random.randrange(max(1, journal.read_bytes().count(b"\n")))
        edit = _edit_whole if of_export else _edit
        edit(journal, number, lambda record: _rename_somewhere(random, record, name))
    return f"the name {name[:40]!r}"


def _rename_somewhere(random: Random, value: Any, name: str) -> Any:
    """Return the value with a random key renamed."""
    if isinstance(value, list) and value:
        index = random.randrange(len(value))
        return [*value[:index], _rename_somewhere(random, value[index], name), *value[index + 1 :]]
    if not isinstance(value, dict) or not value:
        return name
    key = random.choice(list(value))
    if isinstance(value[key], dict | list) and value[key] and random.random() < 0.8:
        return {**value, key: _rename_somewhere(random, value[key], name)}
    return {(name if k == key else k): v for k, v in value.items()}


def _edit_whole(path: Path, _: int, change: Callable[[Any], Any]) -> None:
    with suppress(ValueError):
        path.write_text(json.dumps(change(json.loads(path.read_bytes()))))


def _write_raw(random: Random, sandbox: Sandbox, of_export: bool) -> str:
    """Write text in place of a line of a journal, or of a manifest, that no writer of JSON makes."""
    text = random.choice(ODD_JSON)
    name = "manifest.json" if of_export else random.choice(("events.jsonl", "readings.jsonl"))
    path = (sandbox.export if of_export else sandbox.study) / name
    if not _is_editable(path):
        return "nothing"
    if of_export:
        path.write_bytes(text)
    else:
        lines = path.read_bytes().split(b"\n")
        place = random.randrange(len(lines))
        path.write_bytes(b"\n".join([*lines[:place], text, *lines[place + random.randrange(2) :]]))
    return f"{text[:60]!r} in {name}"


def _write_many(random: Random, sandbox: Sandbox, _: bool) -> str:
    """Append thousands of records of one kind."""
    journal, record = sandbox.study / "events.jsonl", random.choice(MANY)
    if not _is_editable(journal):
        return "nothing"
    distinct = random.choice((1, REPEATS))
    with journal.open("ab") as file:
        file.writelines(record % (number % distinct) + b"\n" for number in range(REPEATS, 0, -1))
    return f"{REPEATS} times {record[:60]!r}"


def _join_journals(random: Random, sandbox: Sandbox, _: bool) -> str:
    """Put two journals into one directory: one after the other, exchanged, or in an inner study."""
    journal, other = sandbox.study / "events.jsonl", RECORDED / random.choice(("killed", "noisy"))
    if not _is_editable(journal):
        return "nothing"
    way = random.choice(("after", "exchanged", "readings", "inner"))
    if way == "after":
        journal.write_bytes(journal.read_bytes() + (other / "events.jsonl").read_bytes())
    elif way == "exchanged":
        journal.write_bytes((other / "events.jsonl").read_bytes())
    elif way == "readings" and _clear(sandbox.study / "readings.jsonl"):
        shutil.copy(journal, sandbox.study / "readings.jsonl")
    elif way == "inner" and _clear(sandbox.study / "beds"):
        shutil.copytree(other, sandbox.study / "beds" / "one")
    return f"two journals: {way}"


def _change_database(random: Random, sandbox: Sandbox, _: bool) -> str:
    """Change the database of a study of this account, or a file next to it."""
    path = sandbox.own / "study.db"
    if random.random() < 0.4:
        name = f"study.db{random.choice(('', '-wal', '-shm', '-journal'))}"
        kind = random.choice(list(LIES))
        if clear := _clear(sandbox.own / name):
            LIES[kind](sandbox.own / name, sandbox)
        return f"{kind} as own {name}" if clear else "nothing"
    if random.random() < 0.3 and _is_editable(path):
        content = bytearray(path.read_bytes())
        for _ in range(random.randrange(1, 40)):
            content[random.randrange(min(len(content), 8192))] = random.choice(
                (0, 255, random.randrange(256))
            )
        path.write_bytes(content)
        return "another header of own study.db"
    schema = random.choice(SCHEMAS)
    if _is_editable(path):
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as database:
            database.executescript(schema)
            database.commit()
    return f"{schema[:60]!r} in own study.db"


def _plant(_: Random, sandbox: Sandbox, __: bool) -> str:
    """Add originals of files that belong to no service, and a run directory with a process."""
    if not _clear(sandbox.study / "originals"):
        return "nothing"
    (sandbox.study / "originals").mkdir()
    file = {"kind": "file", "mode": "0600", "owner": "0:0", "time": "5.0", "text": "theirs\n"}
    record = {
        "schema": 1, "host": "here", "study": "stranger", "units": {}, "sysctls": {}, "written": {},
        "files": {str(sandbox.precious / "secret"): file},
        "checks": [{"unit": "x", "argv": ["touch", str(sandbox.canary)], "files": [],
                    "directory": "/", "socket": None}],
    }  # fmt: skip
    (sandbox.study / "originals" / "here.json").write_text(json.dumps(record))
    _clear(sandbox.study / "run")
    (sandbox.study / "run").symlink_to(sandbox.precious)
    return "planted originals and run directory"


CHANGES: dict[str, Callable[[Random, Sandbox, bool], str]] = {
    "record": _damage_record,
    "version": _damage_version,
    "target": _damage_target,
    "planted": _plant,
    "name": _name,
    "raw": _write_raw,
    "many": _write_many,
    "journals": _join_journals,
    "database": _change_database,
}
