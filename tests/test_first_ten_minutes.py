"""Every mistake that a new user can make in the first ten minutes, and what is said of it.

Each case is what was typed, in a directory with ``t.yaml`` (the local target, changed) and a finished
study; the words that the message has to contain; and those of its hint, which says what to do.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune import errors, exit_handling
from autotune.cli import app

ROOT = Path(__file__).parents[1]
LOCAL = (ROOT / "targets" / "local.yaml").read_text()
STUDIES = ROOT / "tests" / "report" / "studies"


@dataclass(frozen=True)
class Mistake:
    name: str
    typed: str
    says: tuple[str, ...]
    code: int = errors.OPERATIONAL_EXIT_CODE
    change: tuple[str, str] = ("", "")


TARGET, USAGE = errors.INVALID_TARGET_EXIT_CODE, errors.USAGE_EXIT_CODE
MISTAKES = (
    Mistake("no target there", "check nowhere.yaml", ("nowhere.yaml",), TARGET),
    Mistake("a directory for a target", "check .", ("directory",), TARGET),
    Mistake("not YAML", "check t.yaml", ("t.yaml:", ":"), TARGET, ("hosts:", "hosts: [")),
    Mistake(
        "a typo in a key", "check t.yaml", ("did you mean 'budget'",), TARGET, ("budget:", "buget:")
    ),
    Mistake("no unit", "check t.yaml", ("unit",), TARGET, ("p99: 50ms", "p99: 50")),
    Mistake(
        "a wrong unit",
        "check t.yaml",
        ("unknown unit 'mb'", "50ms"),
        TARGET,
        ("p99: 50ms", "p99: 50mb"),
    ),
    Mistake(
        "a service there is not",
        "check t.yaml",
        ("unknown service 'ngnix'", "nginx"),
        TARGET,
        ("service: nginx, forwards", "service: ngnix, forwards"),
    ),
    Mistake(
        "a parameter there is not",
        "check t.yaml",
        ("did you mean",),
        TARGET,
        ("cache.memcached.memory", "cache.memcached.memroy"),
    ),
    Mistake(
        "a generator there is not",
        "check t.yaml",
        ("generator", "httperf"),
        TARGET,
        ("generator: httperf", "generator: htperf"),
    ),
    Mistake(
        "a host there is not",
        "check t.yaml",
        ("hre",),
        TARGET,
        ("lb:    {hosts: here", "lb:    {hosts: hre"),
    ),
    Mistake(
        "a range the wrong way round",
        "check t.yaml",
        ("range",),
        TARGET,
        ("[5MB, 7MB]", "[7MB, 5MB]"),
    ),
    Mistake(
        "a default outside its range",
        "check t.yaml",
        ("7MB",),
        TARGET,
        ("[5MB, 7MB]", "[5MB, 6MB]"),
    ),
    Mistake(
        "a host without an address",
        "check t.yaml",
        ("address",),
        TARGET,
        ("address: 127.0.0.1, transport: local", "cpus: 2"),
    ),
    Mistake("no leave for load", "run t.yaml", ("--yes",)),
    Mistake(
        "an example there is not",
        "init --example locl",
        ("did you mean 'local'",),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake("an example over a file", "init --out t.yaml", ("already exists", "--out"), USAGE),
    Mistake("a study there is not", "report imprved", ("did you mean 'improved'",), USAGE),
    Mistake("a study that never was", "status nothing", ("unknown study",), USAGE),
    Mistake(
        "resuming what is finished",
        "resume improved --yes",
        ("is finished", "autotune report improved"),
    ),
    Mistake("a winner without proof", "export aa --out x", ("no proven winner", "--trial")),
    Mistake("an export over files", "export improved --out .", ("not empty", "directory"), USAGE),
    Mistake(
        "a format there is not",
        "export improved --out x --format chef",
        ("expected one of: files",),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "a trial there is not",
        "export improved --out x --trial 99",
        ("unknown trial",),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "a role for private processes",
        "export improved --out x --format ansible",
        ("private processes", "--format files"),
    ),
    Mistake("a diff of nothing", "diff improved 0 99", ("unknown trial",), errors.USAGE_EXIT_CODE),
    Mistake(
        "against what",
        "measure t.yaml --against winner --yes",
        ("'winner'", "--against baseline, recommended, advised, published"),
        USAGE,
    ),
    Mistake(
        "against what is no export",
        "measure t.yaml --against studies --yes",
        ("autotune export",),
        USAGE,
    ),
    Mistake(
        "against without a configuration",
        "measure t.yaml --against baseline --yes",
        ("--config",),
        USAGE,
    ),
    Mistake("not an export", "measure t.yaml --config . --yes", ("autotune export",), USAGE),
    Mistake("a service to list there is not", "params ngnix", ("did you mean 'nginx'",), USAGE),
    Mistake(
        "watching everything", "status --watch", ("status STUDY --watch",), errors.USAGE_EXIT_CODE
    ),
    Mistake(
        "a lab of this machine itself", "lab up t.yaml", ("no SSH hosts to create", "198.18.0.0/15")
    ),
    Mistake("a study for a target", "measure improved --yes", ("improved: no such file",), TARGET),
    Mistake("an empty file", "check empty.yaml", ("not an empty file", "autotune init"), TARGET),
    Mistake("a program for a target", "check program", ("not UTF-8 text", "autotune init"), TARGET),
    Mistake("tabs", "check tabs.yaml", ("a tab instead of spaces", "indent"), TARGET),
    Mistake("a list for a target", "check list.yaml", ("not a list",), TARGET),
    Mistake(
        "a section written twice",
        "check t.yaml",
        ("duplicate key 'budget'",),
        TARGET,
        ("data:", "budget: {trials: 3}\ndata:"),
    ),
    Mistake(
        "a file for the studies",
        "measure paper.yaml --studies file --yes",
        ("--studies file: is a file", "name the directory"),
        USAGE,
    ),
    Mistake(
        "studies where nothing can be",
        "measure paper.yaml --studies /proc/x --yes",
        ("/proc/x: no such file",),
    ),
    Mistake(
        "a page over a directory",
        "report improved --html studies",
        ("studies: is a directory", "name a file"),
        USAGE,
    ),
    Mistake(
        "an earlier study there is not",
        "run paper.yaml --from imprved --yes",
        ("did you mean 'improved'",),
        USAGE,
    ),
    Mistake(
        "an export that is not there",
        "measure t.yaml --config x --yes",
        ("no such file", "autotune export"),
        USAGE,
    ),
    Mistake(
        "an export of nothing",
        "measure t.yaml --config list.json --yes",
        ("`parameters` is missing", "autotune export"),
        USAGE,
    ),
    Mistake(
        "an export that is no text",
        "measure t.yaml --config program --yes",
        ("invalid JSON", "autotune export"),
        USAGE,
    ),
    Mistake(
        "an export that was edited",
        "apply edited.json t.yaml --yes",
        ("web.php_fpm.max_children cannot be 'many'", "autotune params"),
    ),
    Mistake(
        "a ceiling of no cache",
        "measure t.yaml --tier web --yes",
        ("'web' does not use memcached", "cache"),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "no number of clients",
        "measure t.yaml --closed --concurrency few --yes",
        ("invalid --concurrency 'few'", "--concurrency 1,5"),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "a ceiling of a model",
        "measure paper.yaml --closed --yes",
        ("--closed needs a stack of servers", "omit --closed"),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "a study that is damaged",
        "report improved --studies damaged",
        ("events.jsonl:2; the study is damaged", "from a copy"),
    ),
    Mistake(
        "resuming what is damaged",
        "resume odd --studies damaged --yes",
        ("invalid record of kind 'study'", "from a copy"),
    ),
    Mistake(
        "a study that never began",
        "report hollow --studies damaged",
        ("stopped before it recorded anything", "delete its directory"),
    ),
    Mistake(
        "resuming what never began",
        "resume hollow --studies damaged --yes",
        ("its target.yaml is missing", "autotune run TARGET"),
    ),
    Mistake(
        "a study without its target",
        "report bare --studies damaged",
        ("its target.yaml is missing", "from a copy"),
    ),
    Mistake(
        "a study of an older version",
        "explain aa",
        ("another version of autotune", "get a new copy"),
    ),
    Mistake("an example nowhere", "init --example local --out /proc/x.yaml", ("/proc/x.yaml: ",)),
    Mistake(
        "a command there is not",
        "reprot improved",
        ("Did you mean 'report'",),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake("no study named", "report", ("Missing argument 'STUDY'",), errors.USAGE_EXIT_CODE),
    Mistake(
        "a word for a number",
        "measure t.yaml --repeat many",
        ("not a whole number",),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "a sweep of nothing",
        "sweep paper.yaml --peak --yes",
        ("the sweep varies nothing", "--over"),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "a sweep without steps",
        "sweep paper.yaml --over web.php_fpm.max_children=1:2 --peak",
        ("'1:2' is not a range", "LOW:HIGH:STEP"),
        errors.USAGE_EXIT_CODE,
    ),
    Mistake(
        "more hosts than there are",
        "sweep paper.yaml --hosts web=9 --peak --yes",
        ("from 1 to 1",),
        errors.USAGE_EXIT_CODE,
    ),
)


def _files(home: Path) -> None:
    """What the cases speak of beside ``t.yaml`` and the recorded studies."""
    (home / "paper.yaml").write_text((ROOT / "targets" / "paper.yaml").read_text())
    (home / "empty.yaml").write_text("")
    (home / "program").write_bytes(b"\x7fELF\x02\x01\x01\0\xff\xfe")
    (home / "tabs.yaml").write_text("name: x\n\tslo: 5\n")
    (home / "list.yaml").write_text("- a\n- b\n")
    (home / "file").write_text("")
    (home / "list.json").write_text('{"parameters": []}')
    (home / "edited.json").write_text('{"parameters": {"web.php_fpm.max_children": "many"}}')
    for name, text in (
        ("improved", '{"event": "other"}\n{nonsense\n'),
        ("odd", '{"event": "study"}\n'),
        ("hollow", ""),
        ("bare", '{"event": "other"}\n'),
    ):
        (home / "damaged" / name).mkdir(parents=True)
        (home / "damaged" / name / "events.jsonl").write_text(text)


@pytest.mark.stack
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_message_says_what_to_do(
    mistake: Mistake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STUDIES, tmp_path / "studies")
    _files(tmp_path)
    before, after = mistake.change
    assert before in LOCAL
    (tmp_path / "t.yaml").write_text(LOCAL.replace(before, after, 1) if before else LOCAL)
    code = exit_handling.run_command(
        lambda: app(mistake.typed.split(), standalone_mode=False), as_json=False
    )
    said = capsys.readouterr()
    assert code == mistake.code, said.err
    assert "autotune: " in said.err or code == errors.USAGE_EXIT_CODE
    assert "Traceback" not in said.err
    for words in mistake.says:
        assert words in said.err, said.err
    assert said.out == ""
