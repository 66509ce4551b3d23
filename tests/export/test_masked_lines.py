"""Changed lines with masked values: the script takes these words from the host's own line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from autotune.config_text import decode, encode
from autotune.deploy.deploy_result import DeployedFile, HostRecord
from autotune.errors import AutotuneError
from autotune.export.host_files import ExportedHosts, HostFile, _check_masked_words
from autotune.export.host_records import read_record
from autotune.export.masked_lines import find_masked_parts, split_hunk
from autotune.export.scripts import build_patch_script, build_script, export_patch
from autotune.export.unit_commands import can_run_commands
from autotune.masking import mask_secret_bytes
from autotune.report.studies import open_study
from autotune.services.registry import SHIPPED
from autotune.study.study_state import Phase, Trial
from autotune.unified_diff import Hunk, find_hunks
from tests.discovery.test_field import CASES, found_of, tier_of
from tests.discovery.test_tier_adoption import masked_texts, rendered
from tests.export.test_script import Machine, made

STUDY = Path(__file__).parents[1] / "report" / "studies" / "improved"
PATH = "/etc/nginx/nginx.conf"
UNIT = "nginx.service"
SECRET = "/srv/hunter2/$(id)`id` *.log"
OWN = f"user www;\nlog {SECRET} main;\nlimit 5;\n"
NEW = f"user www;\nlog {SECRET} main buffer=64k;\nlimit 9;\n"
WORD = "autotune-masked-{}-of-{}".format


def edit(own: bytes, new: bytes, shown: str, shown_new: str, path: str = PATH) -> HostFile:
    """The exported edit of a file, of which the study has the ``shown`` text."""
    edits = find_hunks(own, new, shown.encode(), shown_new.encode())
    assert edits is not None
    return HostFile(
        host="lb1", tier="lb", path=path, content=shown_new.encode(), mode=0o644, check=None,
        units={UNIT: "reload"}, original=sha256(own).hexdigest(), edits=edits,
        deployed=sha256(new).hexdigest(),
    )  # fmt: skip


def masked(text: str) -> str:
    return text.replace(SECRET, WORD(1, 1))


def of_log(own: str = OWN, new: str = NEW) -> HostFile:
    return edit(own.encode(), new.encode(), masked(own), masked(new))


def hosts_of(*files: HostFile) -> ExportedHosts:
    return ExportedHosts(files, {"lb1": {UNIT: True}}, {"lb1": {}})


def script_of(*files: HostFile) -> str:
    for file in files:
        _check_masked_words(open_study(STUDY), file)
    return build_script("Trial 3", "lb1", hosts_of(*files))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = made(tmp_path)
    machine.conf.write_text(OWN)
    (tmp_path / "units" / UNIT).write_text("enabled active\n")
    return machine


def test_the_words_are_those_of_the_hosts_own_line(machine: Machine) -> None:
    text = script_of(of_log())
    assert "hunter2" not in text
    done = machine.run(text)
    assert done.returncode == 0, done.stderr
    assert machine.conf.read_text() == NEW
    assert machine.run(text).stdout == "nothing to change\n"


def test_masked_words_are_not_shown(machine: Machine) -> None:
    """Ansible prints on its controller what `--check` shows."""
    done = machine.run(script_of(of_log()), "--check")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line[:1] in "+-" and line[1:2] not in "+-"] == [
        f"-log {WORD(1, 1)} main;", "-limit 5;", f"+log {WORD(1, 1)} main buffer=64k;", "+limit 9;",
    ]  # fmt: skip
    assert "hunter2" not in done.stdout + done.stderr


# -- edits that services make of the files of other people ---------------------------------------------


def field_edits() -> Iterator[tuple[bytes, HostFile]]:
    """Files of tests/discovery/field whose changed lines have masked values, and their edits."""
    for case in CASES:
        service, data = case.values
        if "refused" in data or not data.get("changed"):
            continue
        found = found_of(data)
        tier = tier_of(found, data.get("deployment", service))
        after = rendered(tier, data["changed"])
        services = tier.discovered_tier.instances[0].services
        for name, key, path, text in masked_texts(tier, data["changed"]):
            own, new = found.tree.files.get(path, b""), encode(after[f"{name}{path}"])
            outliner = SHIPPED.map_adoptions()[services[key].key].visible.build_outliner(path)
            shown = decode(mask_secret_bytes(own, outliner))
            file = edit(own, new, shown, decode(mask_secret_bytes(encode(text))))
            if file.has_masked_edits and not can_run_commands(path):
                yield own, file


def built(
    directory: Path, files: Sequence[tuple[bytes, HostFile]], shell: str = "sh"
) -> list[bytes | str]:
    """What the script builds of each file of a host, or why it does not; no transaction around it."""
    text = script_of(*(file for _, file in files))
    start = """work=$1
for file in "$1"/*.own; do
  old=$file number=${file##*/}
  content "${number%.own}" >"${file%.own}.built" 2>"${file%.own}.said" || rm "${file%.own}.built"
done
"""
    assert text.count('main "$@" </dev/null') == 1
    for number, (own, _) in enumerate(files, 1):
        (directory / f"{number}.own").write_bytes(own)
    text = text.replace('main "$@" </dev/null', start)
    subprocess.run([*shell.split(), "-s", "--", directory], input=text.encode(), check=True)
    results = [(directory / f"{number}.built", directory / f"{number}.said")
               for number in range(1, len(files) + 1)]  # fmt: skip
    return [new.read_bytes() if new.exists() else said.read_text() for new, said in results]


def test_files_of_other_people_are_edited(tmp_path: Path) -> None:
    files = [(own, file) for own, file in field_edits()
             if file.edits and file.edits[-1].added[-1].endswith("\n")]  # fmt: skip
    assert len(files) >= 7
    made_files = built(tmp_path, files)
    assert [sha256(new).hexdigest() if isinstance(new, bytes) else new for new in made_files] == [
        file.deployed for _, file in files
    ]


# -- any line, in any shell ------------------------------------------------------------------------------

PIECES = (
    b"a", b"$x", b"`id`", b"$(id)", b"*", b"?", b"[a-z]", b"\\", b"\\\\x", b"'", b'"', b"-n", b"%s",
    b"~", b"#", b"!x", b"{a,b}", b"&", b";", b"|", b">x", b"  ", b"\t", b"\r", b"\x01", b"\x7f",
    b"\x81", b"\x82", b"\x88", b"\xff\xfe", b"\xc3\xa9", b"autotune", b"AUTOTUNE", b"main",
)  # fmt: skip
LITERALS = (
    "",
    "log ",
    " main",
    "\t# ",
    ";",
    " '",
    '"',
    "\\",
    "*",
    "[",
    "$HOME",
    "`",
    "%s",
    "\u00e9",
    "  ",
)


def random_exchange(chance: Random) -> tuple[bytes, bytes, str, str]:
    """The line of a host and its replacement, and both as a study has them."""
    count = chance.choice((1, 1, 2, 3))
    words = [b"".join(chance.choices(PIECES, k=chance.randrange(1, 5))) for _ in range(count)]
    between = [chance.choice(LITERALS) + f" {number} " for number in range(count - 1)]
    literals = [chance.choice(LITERALS), *between, f"{chance.choice(LITERALS)}\n"]
    changed = [*literals]
    changed[chance.randrange(count + 1)] = (
        f"{chance.choice(LITERALS)} buffer={chance.randrange(9)}k\n"
    )
    changed = [text if text.endswith("\n") == literal.endswith("\n") else text.strip("\n") or " "
               for text, literal in zip(changed, literals, strict=True)]  # fmt: skip
    if not changed[-1].endswith("\n"):
        changed[-1] += "\n"
    shown_words = [WORD(number, count) for number in range(1, count + 1)]
    return (
        interleave([text.encode() for text in literals], words),
        interleave([text.encode() for text in changed], words),
        interleave(
            [text.encode() for text in literals], [w.encode() for w in shown_words]
        ).decode(),
        interleave([text.encode() for text in changed], [w.encode() for w in shown_words]).decode(),
    )


def interleave(literals: list[bytes], words: list[bytes]) -> bytes:
    return b"".join(part for pair in zip(literals, [*words, b""], strict=True) for part in pair)


@pytest.mark.parametrize("shell", ["sh", "bash --posix"])
def test_any_line_becomes_the_one_deployed_or_is_refused(tmp_path: Path, shell: str) -> None:
    chance, files = Random(5), list[tuple[bytes, HostFile]]()
    while len(files) < 50:
        own, new, shown, shown_new = random_exchange(chance)
        if own != new:
            own, new = b"# 1\n" + own + b"# 3\n", b"# 1\n" + new + b"# 3\n"
            files.append((own, edit(own, new, f"# 1\n{shown}# 3\n", f"# 1\n{shown_new}# 3\n")))
    results = built(tmp_path, files, shell)
    for (_, file), result in zip(files, results, strict=True):
        if isinstance(result, str):
            assert result == "lines 2 to 2 differ from the lines that the study replaced\n"
        else:
            assert sha256(result).hexdigest() == file.deployed, file.edits
    assert sum(isinstance(result, bytes) for result in results) > 25


# -- hosts whose line is another ------------------------------------------------------------------------

OTHERS = {
    "another start": b"lag word main;\n",
    "another end": b"log word main;;\n",
    "no word": b"log  main;\n",
    "an end that overlaps the start": b"log main;\n",
    "a word that continues the line": b"log word\\ main;\n",
    "a byte that no shell keeps": b"log wo\0rd main;\n",
    "no such line": b"",
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_line_that_is_not_the_recorded_one_changes_nothing(machine: Machine, name: str) -> None:
    own = b"user www;\n" + OTHERS[name]
    machine.conf.write_bytes(own)
    file = replace(of_log(), original=sha256(own).hexdigest())
    for options in ((), ("--check",), ("--force",)):
        done = machine.run(script_of(file), *options)
        assert (done.returncode == 1) or (options == ("--check",) and not own)
        assert "lines 2 to 2 differ from the lines that the study replaced" in done.stderr
        assert machine.conf.read_bytes() == own


def test_words_that_could_end_in_two_places_are_refused(machine: Machine) -> None:
    own, new = "a x 1 y 1 z\n", "a x 2 y 1 z\n"
    machine.conf.write_text(own)
    shown = [f"a {WORD(1, 2)} {number} {WORD(2, 2)}\n" for number in (1, 2)]
    done = machine.run(script_of(edit(own.encode(), new.encode(), *shown)))
    assert done.returncode == 1
    assert "lines 1 to 1 differ from the lines that the study replaced" in done.stderr
    assert machine.conf.read_text() == own


def test_another_result_changes_nothing(machine: Machine) -> None:
    done = machine.run(script_of(replace(of_log(), deployed="0" * 64)))
    assert done.returncode == 1
    assert "would differ from the one that the study measured" in done.stderr
    assert machine.conf.read_text() == OWN


# -- studies whose lines are forged ----------------------------------------------------------------------

W1, W2 = WORD(1, 2), WORD(2, 2)
FORGED = {
    "a word is in no removed line": ([], [f"load {W1}\n"], "moves masked values"),
    "a word goes": ([f"deny {W1};\n"], [], "moves masked values"),
    "a word twice": ([f"a {W1}\n"], [f"a {W1} {W1}\n"], "moves masked values"),
    "a word of another line": ([f"a {W1}\n", f"b {W2}\n"], [f"a {W2}\n", f"b {W1}\n"], "moves masked"),
    "a word in both lines": ([f"a {W1} {W1}\n"], [f"b {W1} {W1}\n"], "repeats masked values"),
    "words without text between them": ([f"a {W1}{W2}\n"], [f"a {W1} {W2}\n"], "no text between"),
    "does not end with a newline": ([f"a {W1}"], [f"b {W1}"], "does not end with a newline"),
    "escapes": ([f"a {W1}\x1b[2J{W2}\n"], [f"b {W1}\x1b[2J{W2}\n"], "control characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_word_stays_where_it_is(name: str) -> None:
    removed, added, why = FORGED[name]
    file = replace(of_log(), content="".join(added).encode(),
                   edits=(Hunk(1, tuple(removed), tuple(added)),))  # fmt: skip
    with pytest.raises(AutotuneError, match=why) as raised:
        _check_masked_words(open_study(STUDY), file)
    assert "autotune apply" in (raised.value.hint or "")


def test_each_masked_line_is_exchanged_by_itself() -> None:
    hunk = Hunk(
        7, ("a\n", f"b {W1}\n", "c\n", f"d {W2}\n"), (f"b {W1} 1\n", "x\n", f"d {W2} 2\n", "e\n")
    )
    steps = split_hunk(hunk)
    assert steps == (
        Hunk(7, ("a\n",), ()),
        Hunk(8, (f"b {W1}\n",), (f"b {W1} 1\n",)),
        Hunk(9, ("c\n",), ("x\n",)),
        Hunk(10, (f"d {W2}\n",), (f"d {W2} 2\n",)),
        Hunk(11, (), ("e\n",)),
    )
    assert [find_masked_parts(step) for step in steps] == [(), (W1,), (), (W2,), ()]
    assert all(
        one.start_line + len(one.removed) == other.start_line for one, other in pairwise(steps)
    )


def test_equal_text_between_words_belongs_to_their_part() -> None:
    hunk = Hunk(1, (f"a {W1}, {W2} 1\n",), (f"a {W1}, {W2} 2\n",))
    assert find_masked_parts(hunk) == (f"{W1}, {W2}",)
    hunk = Hunk(1, (f"a {W1} 1 {W2}\n",), (f"a {W1} 2 {W2}\n",))
    assert find_masked_parts(hunk) == (W1, W2)


# -- patches -------------------------------------------------------------------------------------------


def test_the_host_makes_its_own_patch(machine: Machine) -> None:
    content = export_patch(open_study(STUDY), Trial(3, Phase.SEARCH, {}), hosts_of(of_log()))
    assert sorted(content) == ["patch/lb1.patch.sh", "patch/lb1.paths.sh", "patch/lb1.sha256"]
    assert b"hunter2" not in b"".join(content.values())
    done = machine.run(content["patch/lb1.patch.sh"].decode())
    assert done.returncode == 0, done.stderr
    assert (machine.conf.read_text(), [*(machine.top / "lib").iterdir()]) == (OWN, [])
    patch = done.stdout.replace(f"{machine.top}/root", "")
    argv = ["patch", "-p1", "-d", str(machine.top / "root")]
    subprocess.run(argv, input=patch, text=True, check=True)
    assert machine.conf.read_text() == NEW
    subprocess.run([*argv, "--reverse"], input=patch, text=True, check=True)
    assert machine.conf.read_text() == OWN


def test_a_patch_also_adds_files(machine: Machine) -> None:
    drop_in = HostFile("lb1", "lb", f"/etc/systemd/system/{UNIT}.d/autotune.conf",
                       b"[Service]\nLimitNOFILE=9\n", 0o644, None, {}, "absent")  # fmt: skip
    done = machine.run(build_patch_script("Trial 3", "lb1", hosts_of(of_log(), drop_in)))
    patch = done.stdout.replace(f"{machine.top}/root", "")
    assert "--- /dev/null\n" in patch
    subprocess.run(
        ["patch", "-p1", "-d", str(machine.top / "root")], input=patch, text=True, check=True
    )
    assert machine.drop_in.read_bytes() == drop_in.content


def test_a_patch_of_another_file_is_not_made(machine: Machine) -> None:
    machine.conf.write_text(f"{OWN}# by hand\n")
    done = machine.run(build_patch_script("Trial 3", "lb1", hosts_of(of_log())))
    assert (done.returncode, done.stdout) == (1, "")
    assert "has changed since the study" in done.stderr


def test_edits_are_read_as_a_study_records_them() -> None:
    record = HostRecord(files={PATH: DeployedFile("0" * 64, of_log().edits)})
    assert read_record(open_study(STUDY), "lb1", asdict(record)) == replace(record)
