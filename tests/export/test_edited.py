"""The exported script edits a host's own file on the host: by lines, and with words that stay there."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from autotune.deploy.deploy_result import OriginalHost
from autotune.errors import AutotuneError
from autotune.export.host_files import ExportedHosts, HostFile, _check_masked_words
from autotune.export.scripts import _build_diff, build_script
from autotune.report.studies import open_study
from autotune.unified_diff import find_hunks, split_lines
from tests.export.test_script import Machine, made

SECRET = "hunter2hunter2"
OWN = f"# key {SECRET}\nworkers 1;\npassword {SECRET};\nlimit 5;\n"
NEW = f"# key {SECRET}\nworkers 8;\npassword {SECRET};\nlimit 9;\nAUTOTUNE\n$(id) `id` \\ '\"\n"
PATH = "/etc/nginx/nginx.conf"
UNIT = "nginx.service"
STUDY = Path(__file__).parents[1] / "report" / "studies" / "improved"


def masked(text: str) -> bytes:
    """As a study has it: each line with a secret is a placeholder."""
    lines = text.split("\n")
    return "\n".join(f"autotune-masked-{number}-of-9" if SECRET in line else line
                     for number, line in enumerate(lines, 1)).encode()  # fmt: skip


def of_file(own: str = OWN, new: str = NEW, path: str = PATH) -> HostFile:
    edits = find_hunks(own.encode(), new.encode(), masked(own), masked(new))
    return HostFile(
        host="lb1",
        tier="lb",
        path=path,
        content=masked(new),
        mode=0o644,
        check=None,
        units={UNIT: "reload"},
        original=sha256(own.encode()).hexdigest(),
        edits=edits,
        deployed=sha256(new.encode()).hexdigest(),
    )


def script_of(*files: HostFile) -> str:
    before = {"lb1": OriginalHost({}, {UNIT: True}, {})}
    return build_script(
        "Trial 3", "lb1", ExportedHosts(files, {"lb1": {UNIT: True}}, {"lb1": {}}, before)
    )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = made(tmp_path)
    machine.conf.write_text(OWN)
    machine.conf.chmod(0o640)
    (tmp_path / "units" / UNIT).write_text("enabled active\n")
    return machine


def verbs(machine: Machine) -> list[str]:
    log = machine.top / "units" / "broken" / "verbs"
    words = log.read_text().split()[::2] if log.exists() else []
    return [word for word in words if not word.startswith("is-")]


def backups(machine: Machine) -> list[Path]:
    return sorted((machine.top / "root/var/backups").glob("*"))


def test_lines_of_a_file_that_is_replaced_as_a_whole_are_not_shown(machine: Machine) -> None:
    own = f"{OWN}\x1b]0;title\x07# a comment\n"
    machine.conf.write_text(own)
    new = f"{NEW.replace(SECRET, 'new')}# \x1b[2J\u009b31m\u202eshown\u2066 as it is\n"
    file = replace(of_file(own), edits=None, content=new.encode())
    file = replace(file, deployed=sha256(file.content).hexdigest())
    done = machine.run(script_of(file), "--check")
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert "- (a line of this host, which is not shown)" in shown
    assert any(line.startswith("+") and "new" in line for line in shown)
    assert SECRET not in done.stdout
    assert "+# [2J31mshown as it is" in shown
    assert "a comment" not in done.stdout


def test_lines_are_exchanged_and_words_stay_on_the_host(machine: Machine) -> None:
    text = script_of(of_file())
    assert SECRET not in text
    done = machine.run(text)
    assert done.returncode == 0, done.stderr
    assert machine.conf.read_text() == NEW
    assert machine.conf.stat().st_mode & 0o777 == 0o640
    assert verbs(machine) == ["reload"]
    restored = machine.run(text, "--restore", str(backups(machine)[0]))
    assert restored.returncode == 0, restored.stderr
    assert machine.conf.read_text() == OWN
    assert machine.conf.stat().st_mode & 0o777 == 0o640


def test_a_second_run_changes_nothing(machine: Machine) -> None:
    text = script_of(of_file())
    machine.run(text)
    acted, time, kept = verbs(machine), machine.conf.stat().st_mtime_ns, backups(machine)
    done = machine.run(text)
    assert (done.returncode, done.stdout) == (0, "nothing to change\n")
    assert (verbs(machine), machine.conf.stat().st_mtime_ns, backups(machine)) == (
        acted,
        time,
        kept,
    )


def test_only_lines_that_differ_are_shown(machine: Machine) -> None:
    before = machine.state()
    done = machine.run(script_of(of_file()), "--check")
    assert done.returncode == 0, done.stderr
    assert {"-workers 1;", "+workers 8;", "-limit 5;", "+limit 9;"} <= {*done.stdout.splitlines()}
    assert SECRET not in done.stdout + done.stderr
    assert machine.state() == before


@pytest.mark.parametrize("ahead", [".:", "tools:", ":"])
@pytest.mark.parametrize("options", [("--check",), ("--restore", "/var/backups/none")])
def test_no_program_is_taken_from_the_working_directory(
    machine: Machine, ahead: str, options: tuple[str, ...]
) -> None:
    place = machine.top / "here"
    for directory in (place, place / "tools"):
        directory.mkdir()
        for name in ("mktemp", "stat", "sed", "cat", "rm", "sha256sum", "id", "readlink", "diff"):
            (directory / name).write_text(f"#!/bin/sh\necho {name} >>{place}/ran\nexit 1\n")
            (directory / name).chmod(0o755)
    machine.run(script_of(of_file()), *options, ahead=ahead, cwd=place)
    assert not (place / "ran").exists()


@pytest.mark.parametrize("options", [(), ("--check",), ("--force",)])
def test_a_file_that_others_changed_is_not_edited(
    machine: Machine, options: tuple[str, ...]
) -> None:
    machine.conf.write_text(f"{OWN}# by hand\n")
    before = machine.state()
    done = machine.run(script_of(of_file()), *options)
    assert done.returncode == 1
    assert "has changed since the study" in done.stderr
    assert "--force has no effect; use `autotune apply`" in done.stderr
    assert (machine.state(), verbs(machine), backups(machine)) == (before, [], [])


WRONG = {
    "another result": (
        replace(of_file(), deployed="0" * 64),
        "would differ from the one that the study",
    ),
    "lines that the host does not have": (
        replace(of_file(OWN.replace("1;", "2;"), NEW), original=of_file().original),
        "lines 2 to 2 differ from the lines that the study replaced",
    ),
    "lines beyond the end": (
        replace(of_file(f"{OWN}more\n", f"{NEW}less\n"), original=of_file().original),
        "differ from the lines that the study replaced",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_edits_that_do_not_fit_the_file_change_nothing(machine: Machine, name: str) -> None:
    file, why = WRONG[name]
    before = machine.state()
    for options in ((), ("--check",), ("--force",)):
        done = machine.run(script_of(file), *options)
        assert done.returncode == 1
        assert why in done.stderr
        assert (machine.state(), backups(machine)) == (before, [])


def test_any_edit_makes_the_file_that_was_deployed(machine: Machine) -> None:
    """Lines at both ends, files without an end of line, bytes that are not UTF-8, empty files."""
    chance, files, expected = Random(7), list[HostFile](), dict[Path, bytes]()
    words = ["a", "b;", "AUTOTUNE", "  c \\", "$x `y`", "\u00e9", "\t", "%s", "-n", f"k {SECRET}"]
    for number in range(25):
        texts = []
        for _ in range(2):
            lines = [chance.choice(words) for _ in range(chance.randrange(9))]
            texts.append("\n".join(lines) + chance.choice(["", "\n"]))
        old, new = texts
        new = "".join(line for line in split_lines(new.encode()) if SECRET not in line)
        path = f"/etc/nginx/{number}.conf"
        place = machine.conf.with_name(f"{number}.conf")
        place.write_bytes(b"# \xff\n" + old.encode())
        latin = place.read_bytes()
        shown = b"# autotune-masked-1-of-1\n"
        after = b"# \xff\n" + new.encode()
        edits = find_hunks(latin, after, shown + old.encode(), shown + new.encode())
        assert edits is not None
        files.append(replace(of_file(), path=path, edits=edits, content=shown + new.encode(),
                             original=sha256(latin).hexdigest(),
                             deployed=sha256(after).hexdigest()))  # fmt: skip
        expected[place] = after
    done = machine.run(script_of(*files))
    assert done.returncode == 0, done.stderr
    assert {place: place.read_bytes() for place in expected} == expected


def test_a_line_of_a_unit_never_becomes_part_of_another(machine: Machine) -> None:
    own = "[Service]\nExecStart=/usr/sbin/app \\\n  --user www\n"
    new = "[Service]\nExecStart=/usr/sbin/app \\\nLimitNOFILE=8\n  --user www\n"
    place = machine.drop_in
    place.parent.mkdir(parents=True)
    place.write_text(own)
    done = machine.run(script_of(of_file(own, new, f"/etc/systemd/system/{UNIT}.d/autotune.conf")))
    assert done.returncode == 1
    assert "line 3 continues the previous line" in done.stderr
    assert place.read_text() == own


def test_a_patch_needs_no_other_lines(tmp_path: Path) -> None:
    place = tmp_path / PATH.removeprefix("/")
    place.parent.mkdir(parents=True)
    place.write_text(OWN)
    diff = _build_diff(of_file(), None)
    assert "autotune-masked" not in diff
    subprocess.run(["patch", "-p1", "-d", str(tmp_path)], input=diff, text=True, check=True)
    assert place.read_text() == NEW
    subprocess.run(["patch", "-R", "-p1", "-d", str(tmp_path)], input=diff, text=True, check=True)
    assert place.read_text() == OWN


def test_edits_that_the_recorded_file_does_not_have_are_refused() -> None:
    file = replace(of_file(), content=masked(OWN))
    with pytest.raises(AutotuneError, match="do not match the recorded file"):
        _check_masked_words(open_study(STUDY), file)


# -- as the role runs it, file by file --------------------------------------------------------------


def test_a_role_writes_one_file_at_a_time_and_nothing_twice(machine: Machine) -> None:
    second = machine.conf.with_name("second.conf")
    second.write_text(OWN)
    text = script_of(of_file(), of_file(path="/etc/nginx/second.conf"))
    backup = str(machine.top / "root/var/backups/autotune-mine-3")
    before = machine.state()
    assert machine.run(text, "--write", backup, str(second)).returncode == 1  # nothing is backed up
    assert machine.run(text, "--compare", backup, str(second)).stdout == "changed\n"
    assert machine.run(text, "--prepare", backup).returncode == 0
    assert machine.state() == before
    assert machine.run(text, "--write", backup, str(second)).stdout == "changed\n"
    assert (machine.conf.read_text(), second.read_text()) == (OWN, NEW)
    assert machine.run(text, "--write", backup, str(machine.conf)).stdout == "changed\n"
    assert machine.run(text, "--acted", backup).returncode == 0
    for request in ("--compare", "--write"):
        assert machine.run(text, "--prepare", backup).returncode == 0
        assert machine.run(text, request, backup, str(second)).stdout == "unchanged\n"
    restored = machine.run(text, "--restore", backup)
    assert restored.returncode == 0, restored.stderr
    assert machine.state() == before


def test_a_role_that_stopped_half_way_goes_on_with_its_first_backup(machine: Machine) -> None:
    second = machine.conf.with_name("second.conf")
    second.write_text(OWN)
    text = script_of(of_file(), of_file(path="/etc/nginx/second.conf"))
    backup = str(machine.top / "root/var/backups/autotune-mine-3")
    before = machine.state()
    machine.run(text, "--prepare", backup)
    machine.run(text, "--write", backup, str(second))
    (machine.top / "units" / UNIT).write_text("enabled inactive\n")  # the role had stopped it
    machine.run(text, "--prepare", backup)
    machine.run(text, "--write", backup, str(machine.conf))
    assert machine.run(text, "--restore", backup).returncode == 0
    assert machine.state() == before


def test_a_role_that_ended_before_services_read_a_file_acts_on_it_later(machine: Machine) -> None:
    text = script_of(of_file())
    backup, conf = str(machine.top / "root/var/backups/autotune-mine-3"), str(machine.conf)
    machine.run(text, "--prepare", backup)
    assert machine.run(text, "--write", backup, conf).stdout == "changed\n"
    # The connection is lost: no handler acts.
    assert machine.run(text, "--prepare", backup).returncode == 0
    for request in ("--compare", "--write"):
        assert machine.run(text, request, backup, conf).stdout == "changed\n"
    assert machine.run(text, "--acted", backup).returncode == 0
    for request in ("--compare", "--write"):
        assert machine.run(text, request, backup, conf).stdout == "unchanged\n"


# -- signals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", ["HUP", "INT", "TERM"])
@pytest.mark.parametrize(
    "step", ["stage_file", "keep_file", "swap_file", "verify_file", "restore_file", "is_as_kept"]
)
def test_a_signal_leaves_the_host_as_it_was(machine: Machine, step: str, signal: str) -> None:
    """Also one that arrives while an earlier failure is undone."""
    before = machine.state()
    (machine.top / "units/broken" / UNIT).touch()  # it does not start again
    text = script_of(replace(of_file(), units={UNIT: "restart"}))
    for name in {step, "drop_staged", "close_work"}:
        head = f"\n{name}() {{"
        assert text.count(head) == 1
        text = text.replace(head, f"{head} kill -{signal} $$\n")
    done = machine.run(text)
    assert done.returncode != 0
    assert machine.conf.read_text() == OWN
    assert machine.conf.stat().st_mode & 0o777 == 0o640
    assert [*(machine.top / "lib").iterdir()] == []
    assert [path for path in before if machine.state().get(path) != before[path]
            and not path.startswith("units/")] == []  # fmt: skip
    assert [path for path in machine.state() if "autotune-new" in path] == []
