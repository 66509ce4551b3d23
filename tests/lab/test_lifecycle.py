"""Labs on this machine, up and down, killed and repaired."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.lab.lifecycle import (
    build_host_ssh_command,
    build_ssh_host,
    halt_host,
    list_host_status,
    remove_lab,
    start_lab,
)
from autotune.lab.plan import LabHost
from tests import soak

Described = Callable[..., list[LabHost]]
Traces = Callable[[Path], list[str]]

pytestmark = pytest.mark.lab

_UP = """
import sys
from pathlib import Path
from autotune.lab.plan import LabHost
from autotune.lab.lifecycle import start_lab
start_lab([LabHost(*pair.split("=")) for pair in sys.argv[2:]], Path(sys.argv[1]))
"""


_STEP = """
import importlib, os, signal, sys
from pathlib import Path
from autotune.lab import lifecycle
from autotune.lab.plan import LabHost
what, step, directory, *pairs = sys.argv[1:]
module, _, name = step.partition(".")
place = importlib.import_module("autotune.lab." + module)
*owners, name = name.split(".")
for owner in owners:
    place = getattr(place, owner)
function = getattr(place, name)
def last(*given, **more):
    function(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, name, last)
if what == "up":
    lifecycle.start_lab([LabHost(*pair.split("=")) for pair in pairs], Path(directory))
else:
    lifecycle.remove_lab(Path(directory))
"""


def on(directory: Path, host: str, command: str) -> str:
    return subprocess.check_output(
        [*build_host_ssh_command(directory, host), command], text=True
    ).strip()


def test_eight_hosts_come_up_and_go_down(
    lab_dir: Path, capsys: pytest.CaptureFixture[str], described: Described, traces: Traces
) -> None:
    hosts = described(8)
    start = time.monotonic()
    start_lab(hosts, lab_dir)
    booted = time.monotonic() - start
    names = [on(lab_dir, host.name, "hostname") for host in hosts]
    reached = time.monotonic() - start
    assert names == [host.name for host in hosts]
    assert all(known.running and known.ssh for known in list_host_status(lab_dir))
    start = time.monotonic()
    remove_lab(lab_dir)
    with capsys.disabled():
        print(
            f"\neight hosts: up {booted:.1f} s, ssh to each {reached:.1f} s,"
            f" down {time.monotonic() - start:.1f} s"
        )
    assert traces(lab_dir) == []
    assert list_host_status(lab_dir) == ()


def test_a_host_is_a_server_with_systemd(lab_dir: Path, described: Described) -> None:
    (host, peer) = described(2)
    start_lab([host, peer], lab_dir)
    assert on(lab_dir, host.name, "systemctl is-system-running --wait") == "running"
    units = on(lab_dir, host.name, "systemctl list-units --state=running --plain --no-legend")
    services = {line.split()[0] for line in units.splitlines() if ".service" in line}
    assert services == {"dbus.service", "ssh.service", "systemd-journald.service"}
    assert on(lab_dir, host.name, f"getent hosts {peer.name}").split()[0] == peer.address
    assert on(lab_dir, host.name, "sysctl -n -w net.core.somaxconn=4321") == "4321"
    assert on(lab_dir, peer.name, "sysctl -n net.core.somaxconn") != "4321"
    refused = subprocess.run(
        [*build_host_ssh_command(lab_dir, host.name), "sysctl -w fs.file-max=1"], check=False
    )
    assert refused.returncode != 0


def test_a_drop_in_limits_descriptors_and_a_unit_reloads(
    lab_dir: Path, described: Described
) -> None:
    (host,) = described(1)
    start_lab([host], lab_dir)
    script = """
    set -e
    cat >/etc/systemd/system/sample.service <<EOF
    [Service]
    Type=exec
    ExecStart=/bin/sleep infinity
    ExecReload=/bin/touch /run/reloaded
    EOF
    mkdir /etc/systemd/system/sample.service.d
    printf '[Service]\\nLimitNOFILE=12345\\n' >/etc/systemd/system/sample.service.d/limits.conf
    systemctl daemon-reload
    systemctl start sample
    systemctl reload sample
    ls /run/reloaded
    sed -n 's/^Max open files *//p' /proc/$(systemctl show -P MainPID sample)/limits
    """
    script = "\n".join(line.strip() for line in script.splitlines())
    (reloaded, limits) = on(lab_dir, host.name, script).splitlines()
    assert reloaded == "/run/reloaded"
    assert limits.split()[:2] == ["12345", "12345"]


def test_a_host_sees_nothing_of_the_machine_below_and_cannot_change_it(
    lab_dir: Path, described: Described
) -> None:
    (host,) = described(1)
    start_lab([host], lab_dir)
    listed = on(lab_dir, host.name, "ls -A /root /home /root/.ssh").split()
    assert listed == ["/home:", "/root:", ".ssh", "/root/.ssh:", "authorized_keys"]
    assert on(lab_dir, host.name, f"ls -d {Path(__file__).parts[1]} 2>&1 || true") != ""
    probe = f"/usr/{lab_dir.parent.name}-probe"
    on(lab_dir, host.name, f"echo written >{probe}; rm /etc/passwd")
    assert not Path(probe).exists()
    assert Path("/etc/passwd").exists()
    made = subprocess.run(
        [*build_host_ssh_command(lab_dir, host.name), "mknod /root/disk b 7 0"],
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert made.returncode != 0


def test_limits_are_seen_and_kept(lab_dir: Path, described: Described) -> None:
    hosts = described(1, cpus=0.5, memory=192 * 1024 * 1024)
    start_lab(hosts, lab_dir)
    pid = list_host_status(lab_dir)[0].pid
    assert pid is not None
    assert _limits(pid) == {"cpu": 0.5, "memory": 192 * 1024 * 1024}
    # Two loops on one clock: half a CPU's time passes for both together.
    burn = "for i in 1 2; do timeout 2 sh -c 'while :; do :; done' & done; wait; times"
    start = time.monotonic()
    spent = on(lab_dir, hosts[0].name, burn).splitlines()[1].split()
    seconds = sum(float(time.partition("m")[2].rstrip("s")) for time in spent)
    assert 0 < seconds < 0.6 * (time.monotonic() - start)
    # More memory than there is: the kernel ends the process, not the machine.
    greedy = subprocess.run(
        [*build_host_ssh_command(lab_dir, hosts[0].name), "head -c 400M /dev/zero | tail | wc -c"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert greedy.stdout.strip() != str(400 * 1024 * 1024)


def test_up_again_starts_what_stopped_with_its_disk(lab_dir: Path, described: Described) -> None:
    hosts = described(2)
    start_lab(hosts, lab_dir)
    on(lab_dir, hosts[0].name, "echo kept >/etc/kept")
    before = {known.name: known.pid for known in list_host_status(lab_dir)}
    halt_host(lab_dir, hosts[0].name)
    assert [known.running for known in list_host_status(lab_dir)] == [False, True]
    start_lab(hosts, lab_dir)
    after = {known.name: known.pid for known in list_host_status(lab_dir)}
    assert after[hosts[1].name] == before[hosts[1].name]
    assert after[hosts[0].name] != before[hosts[0].name]
    assert on(lab_dir, hosts[0].name, "cat /etc/kept") == "kept"


def test_a_lab_described_differently_is_replaced(lab_dir: Path, described: Described) -> None:
    (first, second) = described(2)
    start_lab([first, second], lab_dir)
    start_lab([replace(first, memory=256 * 1024 * 1024)], lab_dir)
    assert [known.name for known in list_host_status(lab_dir)] == [first.name]
    pid = list_host_status(lab_dir)[0].pid
    assert pid is not None
    assert _limits(pid)["memory"] == 256 * 1024 * 1024


def test_addresses_of_another_lab_are_refused(
    lab_dir: Path, tmp_path: Path, described: Described, traces: Traces
) -> None:
    hosts = described(1)
    start_lab(hosts, lab_dir)
    with pytest.raises(AutotuneError, match="already in use by at"):
        start_lab(hosts, tmp_path / "other")
    assert traces(tmp_path / "other") == []
    assert build_ssh_host(lab_dir, hosts[0].name).address == hosts[0].address


def test_down_needs_no_record(lab_dir: Path, described: Described, traces: Traces) -> None:
    start_lab(described(1), lab_dir)
    (lab_dir / "lab.json").unlink()
    assert traces(lab_dir) != []
    remove_lab(lab_dir)
    assert traces(lab_dir) == []
    remove_lab(lab_dir)


def test_files_of_other_people_are_no_lab(lab_dir: Path, described: Described) -> None:
    """A directory may contain an inventory of Ansible, or the keys of an account."""
    (lab_dir / "hosts").mkdir(parents=True)
    files = [lab_dir / name for name in ("hosts/all.yml", "key", "known_hosts", "lab.json")]
    for path in files:
        path.write_text("mine\n")
    remove_lab(lab_dir)
    assert [path.read_text() for path in files] == ["mine\n"] * len(files)
    with pytest.raises(AutotuneError, match="is not empty, and contains no lab"):
        start_lab(described(1), lab_dir)
    assert [path.read_text() for path in files] == ["mine\n"] * len(files)
    shutil.rmtree(lab_dir)  # otherwise it looks like a lab that a test left


STEPS = {
    "up": (
        "plan.write_plan", "keys.make_keys", "disk.write_disk_entries", "disk.make_disk",
        "network.make_bridge",
        "cgroups._write_limits", "cgroups.make_groups", "machine._start_host", "machine._read_pid",
        "network.format_link_batch",
        "machine.release_host", "machine.boot_hosts", "lifecycle.answers_ssh",
    ),
    "down": (
        "cgroups._kill_group", "cgroups._remove_group", "cgroups.remove_groups", "network._remove_link",
        "network.remove_links", "lifecycle._delete_path", "lifecycle._remove_lab",
    ),
}  # fmt: skip


@pytest.mark.parametrize("step", STEPS["up"])
def test_an_up_killed_after_a_step_is_taken_down_and_repaired(
    step: str, lab_dir: Path, described: Described, traces: Traces
) -> None:
    hosts = described(2)
    for mended in (False, True):
        assert _killed_after_step("up", step, hosts, lab_dir) == -signal.SIGKILL
        if mended:
            start_lab(hosts, lab_dir)
            assert [on(lab_dir, host.name, "hostname") for host in hosts] == ["host0", "host1"]
        remove_lab(lab_dir)
        assert traces(lab_dir) == []


@pytest.mark.parametrize("step", STEPS["down"])
def test_a_down_killed_after_a_step_is_completed(
    step: str, lab_dir: Path, described: Described, traces: Traces
) -> None:
    hosts = described(2)
    start_lab(hosts, lab_dir)
    assert _killed_after_step("down", step, hosts, lab_dir) == -signal.SIGKILL
    remove_lab(lab_dir)
    assert traces(lab_dir) == []


def _killed_after_step(what: str, step: str, hosts: Sequence[LabHost], directory: Path) -> int:
    """An `up` or a `down` that ends itself as soon as it has first done a step."""
    pairs = [f"{host.name}={host.address}" for host in hosts]
    argv = [sys.executable, "-c", _STEP, what, step, str(directory), *pairs]
    return subprocess.run(argv, check=False).returncode


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_killed_up_leaves_nothing_that_down_does_not_find(
    lab_dir: Path, described: Described, traces: Traces
) -> None:
    hosts = described(3)
    start = time.monotonic()
    assert _killed_after(None, hosts, lab_dir) == 0
    whole = time.monotonic() - start
    assert len(traces(lab_dir)) > 0
    remove_lab(lab_dir)
    assert traces(lab_dir) == []
    moments = soak.moments()
    for _ in range(soak.kills(12)):
        delay = moments.uniform(0.1, whole)
        killed = _killed_after(delay, hosts, lab_dir)
        remove_lab(lab_dir)
        left = traces(lab_dir)
        assert left == [], f"killed after {delay:.3f} s (status {killed})"


@pytest.mark.soak
def test_up_repairs_what_a_killed_one_left(
    lab_dir: Path, described: Described, traces: Traces
) -> None:
    hosts = described(2)
    moments = soak.moments()
    for _ in range(soak.kills(4)):
        _killed_after(moments.uniform(0.2, 1.0), hosts, lab_dir)
        start_lab(hosts, lab_dir)
        assert [on(lab_dir, host.name, "hostname") for host in hosts] == ["host0", "host1"]
        remove_lab(lab_dir)
    assert traces(lab_dir) == []


def _killed_after(delay: float | None, hosts: Sequence[LabHost], directory: Path) -> int:
    pairs = [f"{host.name}={host.address}" for host in hosts]
    with subprocess.Popen([sys.executable, "-c", _UP, str(directory), *pairs]) as process:
        try:
            return process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return process.wait()


def _limits(pid: int) -> dict[str, float]:
    """What the groups of a process allow it, read where version 1 or 2 keeps it."""
    groups = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        (_, kinds, path) = line.split(":", 2)
        for kind in kinds.split(","):
            groups[kind] = path
    if "cpu" in groups:
        cpu = Path("/sys/fs/cgroup/cpu" + groups["cpu"])
        quota = int((cpu / "cpu.cfs_quota_us").read_text())
        period = int((cpu / "cpu.cfs_period_us").read_text())
        memory = Path("/sys/fs/cgroup/memory" + groups["memory"] + "/memory.limit_in_bytes")
        return {"cpu": quota / period, "memory": int(memory.read_text())}
    group = next(
        path
        for path in Path("/sys/fs/cgroup" + groups[""]).parents
        if path.parent.name.startswith("autotune-lab-")
    )
    (quota, period) = map(int, (group / "cpu.max").read_text().split())
    return {"cpu": quota / period, "memory": int((group / "memory.max").read_text())}
