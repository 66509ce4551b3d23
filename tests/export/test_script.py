"""The exported script itself, run against a directory and units that remember what was done to them."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import which

import pytest

from autotune.deploy.deploy_result import OriginalHost
from autotune.export.host_files import ExportedHosts, HostFile
from autotune.export.scripts import build_script

SYSTEMCTL = r"""#!/bin/sh
# Units are files below $UNITS: "enabled active"; a unit in $UNITS/broken does not start.
set -u
verb=$1; shift
case $verb in daemon-reload) exit ;; esac
now=; [ "$1" = --now ] || [ "$1" = --quiet ] && { now=$1; shift; }
read -r enabled active <"$UNITS/$1" || exit 4
echo "$verb $1" >>"$UNITS/broken/verbs"  # not part of the state
case $verb in
is-enabled) echo "$enabled"; [ "$enabled" = enabled ]; exit ;;
is-active) echo "$active"; [ "$active" = active ]; exit ;;
cat | reset-failed) exit ;;
enable) enabled=enabled ;;
disable) enabled=disabled; [ -n "$now" ] && active=inactive ;;
stop) active=inactive ;;
reload) [ "$active" = active ] || exit 1 ;;
restart | start) if [ -e "$UNITS/broken/$1" ]; then active=failed; else active=active; fi ;;
esac
echo "$enabled $active" >"$UNITS/$1"
[ "$active" != failed ]
"""
SYSCTL = r"""#!/bin/sh
case $1 in
-n) cat "$KERNEL/$2" ;;
-q) echo "${3#*=}" >"$KERNEL/${3%%=*}" ;;
esac
"""
BEFORE = "workers 1;\n"
AFTER = "workers 8;\n# it's $HOME `id` \\ AUTOTUNE\n"
NAME = "net.core.somaxconn"


@dataclass(frozen=True)
class Machine:
    """A root directory with commands that act on it."""

    top: Path

    @property
    def conf(self) -> Path:
        return self.top / "root/etc/nginx/nginx.conf"

    @property
    def drop_in(self) -> Path:
        return self.top / "root/etc/systemd/system/nginx.service.d/autotune.conf"

    @property
    def kernel_file(self) -> Path:
        return self.top / "root/etc/sysctl.d/zz-autotune.conf"

    def unit(self, name: str) -> str:
        return (self.top / "units" / name).read_text().strip()

    def value(self) -> str:
        return (self.top / "kernel" / NAME).read_text().strip()

    def state(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.top)): path.read_text()
            for path in sorted(self.top.rglob("*"))
            if path.is_file()
            and not {"backups", "lib"} & {*path.parts}
            and "broken" not in path.parts
        }

    def run(
        self, text: str, *options: str, ahead: str = "", cwd: Path | None = None, shell: str = "sh"
    ) -> subprocess.CompletedProcess[str]:
        """Run a script; ``ahead`` is what PATH begins with."""
        path = f"{ahead}{self.top / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
        below = re.sub(
            r"(?<![\w.])(/etc\b|/var/backups|/var/lib/autotune)",
            lambda m: f"{self.top}/root{m[1]}",
            text,
        )
        # Tests need not be root's.
        if os.getuid() != 0:
            below = below.replace('chown "$owner" -- "$2"', ":")
        return subprocess.run(
            [*shell.split(), "-s", "--", *options],
            input=below.replace("sleep 2", ":"),
            env={"PATH": path, "UNITS": f"{self.top}/units", "KERNEL": f"{self.top}/kernel",
                 "TMPDIR": f"{self.top}/lib"},
            text=True, capture_output=True, check=False, cwd=cwd,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return made(tmp_path)


def made(tmp_path: Path) -> Machine:
    for directory in (
        "bin",
        "units/broken",
        "kernel",
        "lib",
        "root/etc/nginx",
        "root/etc/sysctl.d",
    ):
        (tmp_path / directory).mkdir(parents=True)
    for name, text in (("systemctl", SYSTEMCTL), ("sysctl", SYSCTL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    machine = Machine(tmp_path)
    (tmp_path / "units" / "nginx.service").write_text("disabled inactive\n")
    (tmp_path / "units" / "apache2.service").write_text("enabled active\n")
    (tmp_path / "kernel" / NAME).write_text("4096\n")
    machine.conf.write_text(BEFORE)
    return machine


def of_host(*, check: tuple[str, ...] | None = None, original: str = BEFORE) -> str:
    """From Apache to nginx: two files, a kernel value."""
    digest = sha256(original.encode()).hexdigest()
    files = (
        HostFile("lb1", "lb", "/etc/nginx/nginx.conf", AFTER.encode(), 0o644, check, {}, digest),
        HostFile("lb1", "lb", "/etc/systemd/system/nginx.service.d/autotune.conf", b"[Service]\n",
                 0o644, None, {}, "absent"),
    )  # fmt: skip
    units = {"nginx.service": True, "apache2.service": False}
    before = OriginalHost({}, {"nginx.service": False, "apache2.service": True}, {NAME: "4096"})
    return build_script("Trial 3", "lb1", ExportedHosts(files, {"lb1": units}, {"lb1": {NAME: "16384"}},
                                          {"lb1": before}))  # fmt: skip


def test_it_sets_files_units_and_kernel_values(machine: Machine) -> None:
    machine.kernel_file.write_text("# mine\nvm.swappiness = 10\nnet.core.somaxconn = 1\n")
    done = machine.run(of_host())
    assert done.returncode == 0, done.stderr
    assert machine.conf.read_text() == AFTER
    assert machine.drop_in.read_text() == "[Service]\n"
    assert machine.kernel_file.read_text() == (
        "# mine\nvm.swappiness = 10\nnet.core.somaxconn = 16384\n"
    )
    assert machine.value() == "16384"
    assert machine.unit("nginx.service") == "enabled active"
    assert machine.unit("apache2.service") == "disabled inactive"


@pytest.mark.parametrize(("options", "verb"), [((), "reload"), (("--force",), "restart")])
def test_a_unit_is_reloaded_where_that_is_all_it_needs(
    machine: Machine, options: tuple[str, ...], verb: str
) -> None:
    unit = "nginx.service"
    (machine.top / "units" / unit).write_text("enabled active\n")
    digest = sha256(BEFORE.encode()).hexdigest()
    file = HostFile("lb1", "lb", "/etc/nginx/nginx.conf", AFTER.encode(), 0o644, None,
                    {unit: "reload"}, digest)  # fmt: skip
    before = {"lb1": OriginalHost(units={unit: True})}
    text = build_script(
        "Trial 3", "lb1", ExportedHosts((file,), {"lb1": {unit: True}}, {"lb1": {}}, before)
    )
    assert f"\nreload {unit}\n" in machine.run(text, "--check").stdout
    done = machine.run(text, *options)
    assert done.returncode == 0, done.stderr
    verbs = {
        line.split()[0] for line in (machine.top / "units/broken/verbs").read_text().splitlines()
    }
    assert verbs & {"reload", "restart", "start"} == {verb}


def test_a_failed_start_leaves_units_files_and_kernel_values_as_they_were(machine: Machine) -> None:
    before = machine.state()
    (machine.top / "units/broken/nginx.service").touch()
    done = machine.run(of_host())
    assert done.returncode == 1
    assert machine.state() == before
    assert machine.unit("apache2.service") == "enabled active"
    assert "restored: apache2.service, enabled active" in done.stdout
    assert "NOT restored" not in done.stderr
    assert not machine.drop_in.parent.exists()


# A unit whose file the script writes. Its link for the start at boot outlives the file.
NEW_UNIT = r"""
if [ "$1" = cache.service ]; then
    [ -e "$UNITS/../root/etc/systemd/system/$1" ] || exit 4
    [ -e "$UNITS/$1" ] || echo "disabled inactive" >"$UNITS/$1"
fi
"""


def test_a_new_unit_starts_at_boot_until_it_is_removed(machine: Machine) -> None:
    (machine.top / "bin/systemctl").write_text(
        SYSTEMCTL.replace("\nread -r enabled", f"{NEW_UNIT}\nread -r enabled")
    )
    unit = HostFile("lb1", "lb", "/etc/systemd/system/cache.service", b"[Service]\n", 0o644, None,
                    {"cache.service": "restart"}, "absent")  # fmt: skip
    text = build_script(
        "Trial 3", "lb1",
        ExportedHosts((unit,), {"lb1": {"cache.service": True}}, {"lb1": {}},
                      {"lb1": OriginalHost({}, {"cache.service": False}, {})}),
    )  # fmt: skip
    done = machine.run(text)
    assert done.returncode == 0, done.stderr
    assert machine.unit("cache.service") == "enabled active"
    restored = machine.run(text, "--restore", done.stdout.split()[-3])
    assert restored.returncode == 0, restored.stderr
    assert machine.unit("cache.service") == "disabled inactive"


def test_what_cannot_be_restored_is_named(machine: Machine) -> None:
    for name in ("nginx.service", "apache2.service"):
        (machine.top / "units/broken" / name).touch()
    done = machine.run(of_host())
    assert done.returncode == 1
    assert "NOT restored: apache2.service, which was enabled active" in done.stderr
    assert "the original files are in" in done.stderr
    assert "restored: apache2.service" not in done.stdout
    assert machine.conf.read_text() == BEFORE


def test_it_can_be_rolled_back_later(machine: Machine) -> None:
    before = machine.state()
    done = machine.run(of_host())
    assert machine.state() != before
    backup = done.stdout.split()[-3]
    restored = machine.run(of_host(), "--restore", backup)
    assert restored.returncode == 0, restored.stderr
    assert machine.state() == before
    refused = machine.run(of_host(), "--restore", str(machine.top))
    assert refused.returncode == 1
    assert "is not a complete backup" in refused.stderr


@pytest.mark.parametrize("before", ["", "vm.swappiness = 60\n"])
def test_lines_that_others_added_to_the_kernel_file_later_are_kept_aside(
    machine: Machine, before: str
) -> None:
    """A study may have kept its kernel values there, which would be lost at the next boot."""
    if before:
        machine.kernel_file.write_text(before)
    done = machine.run(of_host())
    assert done.returncode == 0, done.stderr
    with machine.kernel_file.open("a") as file:
        file.write("vm.swappiness = 10\n")
    restored = machine.run(of_host(), "--restore", done.stdout.split()[-3])
    assert restored.returncode == 0, restored.stderr
    assert machine.kernel_file.exists() == bool(before)
    (copy,) = (machine.top / "root/var/lib/autotune/overwritten").rglob("zz-autotune.conf")
    assert copy.read_text().endswith("vm.swappiness = 10\n")
    assert f"their version is kept as {copy}" in restored.stderr


def test_a_file_that_is_not_the_one_expected_is_not_overwritten(machine: Machine) -> None:
    before = machine.state()
    text = of_host(original="somebody else's\n")
    for options in ((), ("--check",)):
        done = machine.run(text, *options)
        assert done.returncode == 1
        assert "has changed since the study" in done.stderr
        assert machine.state() == before
    assert machine.run(text, "--force").returncode == 0
    assert machine.conf.read_text() == AFTER


def test_check_shows_what_would_change_and_changes_nothing(machine: Machine) -> None:
    before = machine.state()
    done = machine.run(of_host(), "--check")
    assert done.returncode == 0, done.stderr
    hidden = "- (a line of this host, which is not shown)"
    assert {hidden, "+workers 8;"} <= set(done.stdout.splitlines())
    assert "workers 1;" not in done.stdout
    assert "net.core.somaxconn 4096 -> 16384" in done.stdout
    assert "stop and disable apache2.service" in done.stdout
    assert "enable and start nginx.service" in done.stdout
    assert machine.state() == before
    assert not (machine.top / "root/var").exists()


def test_a_file_that_its_software_refuses_changes_nothing(machine: Machine) -> None:
    before = machine.state()
    done = machine.run(of_host(check=("grep", "-q", "nonsense", "/etc/nginx/nginx.conf")))
    assert done.returncode == 1
    assert machine.state() == before
    assert not machine.drop_in.parent.exists()


KILLER = """#!/bin/sh
# The script that calls this is killed instead, if it is its turn.
echo >>"$UNITS/../bin/calls"
if [ "$(wc -l <"$UNITS/../bin/calls")" = "$(cat "$UNITS/../bin/turn")" ]; then
    pid=$PPID shells=
    while [ "$(cat "/proc/$pid/comm")" = sh ]; do # one of its subshells may have called
        shells="$pid $shells"
        read -r _ _ _ pid _ <"/proc/$pid/stat"
    done
    kill -9 $shells
    exit 1
fi
exec PROGRAM "$@"
"""


@pytest.mark.long
def test_killed_at_any_command_it_can_be_restored(tmp_path: Path) -> None:
    for turn in range(1, 200):
        machine = made(tmp_path / str(turn))
        before = machine.state()
        _kill_at(machine, turn)
        done = machine.run(of_host())
        (machine.top / "bin" / "turn").write_text("0")
        if done.returncode == 0:
            break
        assert done.returncode == -9
        for backup in (machine.top / "root/var/backups").glob("*/complete"):
            restored = machine.run(of_host(), "--restore", str(backup.parent))
            assert restored.returncode == 0, (turn, restored.stderr)
        left = {path: text for path, text in machine.state().items()
                if "autotune-new" not in path and not path.startswith("bin/")}  # fmt: skip
        assert left == {p: s for p, s in before.items() if not p.startswith("bin/")}, turn
    assert 20 < turn < 199


def _kill_at(machine: Machine, turn: int) -> None:
    tools = machine.top / "bin"
    (tools / "turn").write_text(f"{turn}")
    for name in ("mv", "cp", "rm", "mkdir", "rmdir", "chmod", "systemctl", "sysctl"):
        program = tools / name
        own = program.rename(tools / f".{name}") if program.exists() else which(name)
        program.write_text(KILLER.replace("PROGRAM", str(own)))
        program.chmod(0o755)


# The swap of a file that is followed by a power failure, and the point after the last one.
INTERRUPTED = [
    ("\nswap_file() {", '[ ! -e "$backup/swapped" ] || kill -9 $$; : >"$backup/swapped"'),
    ("\nact() {", "kill -9 $$"),
]


@pytest.mark.parametrize(("head", "kill"), INTERRUPTED, ids=["between files", "before units"])
def test_a_run_after_an_interrupted_one_keeps_its_backup(
    machine: Machine, head: str, kill: str
) -> None:
    before, text = machine.state(), of_host()
    assert text.count(head) == 1
    assert machine.run(text.replace(head, f"{head}\n  {kill}")).returncode == -9
    assert machine.state() != before
    done = machine.run(text)
    assert done.returncode == 0, done.stderr
    assert machine.conf.read_text() == AFTER
    assert machine.unit("nginx.service") == "enabled active"
    (backup,) = (machine.top / "root/var/backups").iterdir()
    assert f"--restore {backup} restores it" in done.stdout
    assert "nothing to change" in machine.run(text).stdout
    restored = machine.run(text, "--restore", str(backup))
    assert restored.returncode == 0, restored.stderr
    assert machine.state() == before


def test_the_interrupted_run_of_another_script_is_not_continued(machine: Machine) -> None:
    machine.run(of_host().replace("\nact() {", "\nact() {\n  kill -9 $$"))
    digest = sha256(AFTER.encode()).hexdigest()
    file = HostFile("lb1", "lb", "/etc/nginx/nginx.conf", AFTER.encode(), 0o644, None, {}, digest)
    other = build_script("Trial 4", "lb1", ExportedHosts((file,), {"lb1": {}}, {"lb1": {}}))
    assert machine.run(other).stdout == "nothing to change\n"


def test_kernel_values_change_until_the_kernel_uses_them(machine: Machine) -> None:
    """A play may be interrupted before its handlers, and others may set a value later."""
    text, backup = of_host(), str(machine.top / "root/var/backups/autotune-3")

    def outcome(request: str) -> str:
        done = machine.run(text, request, backup, str(machine.kernel_file))
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    assert machine.run(text, "--prepare", backup).returncode == 0
    assert [outcome("--compare"), outcome("--write"), outcome("--write")] == ["changed"] * 3
    assert f"{NAME} = 16384\n" in machine.kernel_file.read_text()
    assert machine.run(text, "--acted", backup).returncode == 0
    assert [outcome("--compare"), outcome("--write")] == ["changed"] * 2
    (machine.top / "kernel" / NAME).write_text("16384\n")
    assert [outcome("--compare"), outcome("--write")] == ["unchanged"] * 2


def test_a_backup_of_another_export_is_not_used(machine: Machine) -> None:
    """It lacks this export's units and kernel values, which could not be restored."""
    before, backup = machine.state(), machine.top / "root/var/backups/autotune-3"
    assert machine.run(of_host(), "--prepare", str(backup)).returncode == 0
    assert machine.run(of_host(), "--prepare", str(backup)).returncode == 0
    changes = (backup / "changes").read_text()
    digest = sha256(BEFORE.encode()).hexdigest()
    file = HostFile("lb1", "lb", "/etc/nginx/nginx.conf", b"workers 4;\n", 0o644, None, {}, digest)
    other = build_script("Trial 3", "lb1", ExportedHosts((file,), {"lb1": {}}, {"lb1": {}}))
    refused = machine.run(other, "--prepare", str(backup))
    assert refused.returncode == 1
    assert "is the backup of another export" in refused.stderr
    assert (backup / "changes").read_text() == changes
    assert machine.state() == before


def test_a_file_that_is_gone_is_not_taken_for_the_one_expected(machine: Machine) -> None:
    machine.conf.unlink()
    before = machine.state()
    done = machine.run(of_host())
    assert done.returncode == 1
    assert "has changed since the study" in done.stderr
    assert machine.state() == before


def test_it_can_be_read_and_carries_every_byte(machine: Machine) -> None:
    assert AFTER in of_host()
    content = b"no end of line, \xff and \x1b[2J"
    file = HostFile("lb1", "lb", "/etc/nginx/nginx.conf", content, 0o644, None, {})
    text = build_script("Trial 3", "lb1", ExportedHosts((file,), {"lb1": {}}, {"lb1": {}}))
    assert base64.encodebytes(content).decode() in text
    assert machine.run(text).returncode == 0
    assert machine.conf.read_bytes() == content
