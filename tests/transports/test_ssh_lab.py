"""A transport at work on a host of a lab."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.errors import AutotuneError
from autotune.lab.lifecycle import build_ssh_host, halt_host, list_host_status, start_lab
from autotune.transports.base import HostKeyRejected, HostUnreachable, SshHost, Transport
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.ssh import _PUT_SCRIPT, SshTransport
from tests.lab.shared import HOSTS, NETWORK, SharedLab

pytestmark = pytest.mark.lab

# An administrator with and one without the right to run things as root.
_USERS = """
for user in deploy guest; do
    useradd --create-home --shell /bin/bash $user
    install -d -o $user -m 700 /home/$user/.ssh
    install -o $user -m 600 /root/.ssh/authorized_keys /home/$user/.ssh/authorized_keys
done
mkdir -p /etc/sudoers.d
echo 'deploy ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/deploy
"""


@pytest.fixture(scope="module")
def lab(shared_lab: SharedLab) -> Path:
    shared_lab.renew()
    return shared_lab.directory


@pytest.fixture(scope="module")
def root(lab: Path) -> Iterator[SshTransport]:
    transport = SshTransport(build_ssh_host(lab, "fllb"))
    transport.run(["sh", "-c", _USERS])
    yield transport
    transport.close()


def as_user(lab: Path, root: SshTransport, user: str) -> SshTransport:
    return SshTransport(replace(root.host, user=user))


@pytest.fixture
def deploy(lab: Path, root: SshTransport) -> Iterator[SshTransport]:
    transport = as_user(lab, root, "deploy")
    yield transport
    transport.close()


@pytest.fixture
def guest(lab: Path, root: SshTransport) -> Iterator[SshTransport]:
    transport = as_user(lab, root, "guest")
    yield transport
    transport.close()


def test_it_is_a_transport(root: SshTransport) -> None:
    transport: Transport = root
    assert transport.run(["hostname"]).stdout == "fllb\n"


def test_a_round_trip_is_told(root: SshTransport, capsys: pytest.CaptureFixture[str]) -> None:
    root.run(["true"])
    trips = []
    for _ in range(50):
        start = time.perf_counter()
        root.run(["true"])
        trips.append((time.perf_counter() - start) * 1000)
    with capsys.disabled():
        print(f"\nrun over SSH: median {sorted(trips)[25]:.1f} ms, best {min(trips):.1f} ms")
    assert all(trips)


def test_words_are_words(root: SshTransport) -> None:
    words = ["; rm -rf /", "$(id)", "`id`", "a'b\"c", "new\nline", "", "*", "-n"]
    done = root.run(["printf", "%s|", *words], cwd="/etc", env={"X": "; id"})
    assert done.ok
    assert done.stdout == "".join(f"{word}|" for word in words)


def test_output_errors_status_and_input_come_apart(root: SshTransport) -> None:
    done = root.run(["sh", "-c", "cat; echo wrong >&2; exit 3"], input=b"in \xff\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "in \ufffd\n", "wrong\n")
    assert root.run(["sh", "-c", "kill -TERM $$"]).returncode == -signal.SIGTERM
    assert root.run(["no-such-program"]).returncode == 127


def test_much_goes_both_ways_at_once(root: SshTransport) -> None:
    content = os.urandom(3_000_000).hex().encode()
    done = root.run(["tee", "/dev/stderr"], input=content)
    assert done.stdout.encode() == content
    assert done.stderr.encode() == content


def test_a_command_that_does_not_read_its_input_still_ends(root: SshTransport) -> None:
    assert root.run(["true"], input=bytes(5_000_000)).ok


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(root: SshTransport) -> None:
    done = root.run(["sh", "-c", "sleep 300 & echo started $!"], timeout=240)
    assert done.stdout.startswith("started")
    root.run(["kill", done.stdout.split()[1]])


def test_a_command_out_of_time_is_ended_on_the_host(root: SshTransport) -> None:
    for seconds in (0.5, 4.0, 16.0, 64.0):
        with pytest.raises(HostUnreachable) as late:
            root.run(["sleep", "12345"], timeout=seconds)
        if "did not finish" in str(late.value):  # it came that far in its time
            break
    assert f"fllb: sleep did not finish within {seconds:g} s" in str(late.value)
    while root.run(["pgrep", "-x", "sleep"]).returncode != 1:  # the host ends it by itself
        time.sleep(0.02)


def test_commands_share_a_connection_without_waiting_for_each_other(root: SshTransport) -> None:
    # Each waits for the other's file: one after the other, neither would ever end.
    meet = "touch /run/$1; until [ -e /run/$2 ]; do sleep 0.01; done"
    done = []

    def go(mine: str, other: str) -> None:
        done.append(root.run(["sh", "-c", meet, "sh", mine, other], timeout=240).ok)

    threads = [threading.Thread(target=go, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True, True]


@pytest.mark.parametrize("content", [b"", b"plain\n", bytes(range(256)) * 9000])
def test_what_is_put_is_got(root: SshTransport, content: bytes) -> None:
    root.put(content, "/etc/put me; now", mode=0o640)
    assert root.get("/etc/put me; now") == content
    said = root.run(["stat", "-c", "%a %U", "/etc/put me; now"]).stdout
    assert said == "640 root\n"
    assert root.run(["sh", "-c", "ls -A /etc | grep -c '^[.]put'"]).stdout == "0\n"


def test_a_file_replaced_keeps_its_owner(root: SshTransport) -> None:
    root.run(["install", "-o", "guest", "-g", "www-data", "-m", "600", "/dev/null", "/etc/owned"])
    root.put(b"new", "/etc/owned", mode=0o640)
    assert root.run(["stat", "-c", "%a %U %G", "/etc/owned"]).stdout == "640 guest www-data\n"


def test_an_absent_file_is_none(root: SshTransport) -> None:
    assert root.get("/etc/absent") is None
    assert root.get("/etc/hostname/absent") is None


def test_a_put_that_fails_says_why_and_leaves_nothing(root: SshTransport) -> None:
    root.run(["sh", "-c", "mkdir -p /small && mount -t tmpfs -o size=64k tmpfs /small"])
    root.put(b"old", "/small/conf")
    with pytest.raises(AutotuneError, match=r"cannot be written: .*No space left"):
        root.put(bytes(200_000), "/small/conf")
    assert root.get("/small/conf") == b"old"
    assert root.run(["ls", "-A", "/small"]).stdout == "conf\n"
    with pytest.raises(AutotuneError, match="fllb: /absent/conf cannot be written"):
        root.put(b"new", "/absent/conf")


def test_an_upload_cut_off_is_not_taken_for_the_whole_file(root: SshTransport) -> None:
    """What a session killed meanwhile leaves the host with: input that ends too early."""
    root.put(b"old content", "/etc/cut")
    done = root.run(["sh", "-c", _PUT_SCRIPT, "sh", "/etc/cut", "0644", "100"], input=b"half")
    assert not done.ok
    assert done.error_text == "only 4 of 100 bytes arrived"
    assert root.get("/etc/cut") == b"old content"


def test_root_is_reached_by_sudo(deploy: SshTransport) -> None:
    assert deploy.run(["id", "-un"]).stdout == "deploy\n"
    assert deploy.run(["id", "-un"], sudo=True).stdout == "root\n"
    done = deploy.run(["sh", "-c", 'echo "$A $PWD"'], sudo=True, env={"A": "b c"}, cwd="/var")
    assert done.stdout == "b c /var\n"
    deploy.put(b"secret", "/etc/secret", mode=0o600, sudo=True)
    assert deploy.run(["stat", "-c", "%a %U", "/etc/secret"], sudo=True).stdout == "600 root\n"
    assert deploy.get("/etc/secret", sudo=True) == b"secret"
    with pytest.raises(AutotuneError, match="Permission denied"):
        deploy.get("/etc/secret")


def test_without_the_right_to_sudo_nothing_waits_for_a_password(guest: SshTransport) -> None:
    assert "sudo:" in guest.run(["true"], sudo=True).error_text
    with pytest.raises(AutotuneError, match="cannot be written: sudo:") as refused:
        guest.put(b"x", "/etc/guest", sudo=True)
    assert "log in as root" in str(refused.value.hint)


def test_a_connection_that_dropped_is_made_anew(root: SshTransport) -> None:
    one = SshTransport(root.host)
    pid = int(one.run(["sh", "-c", "ps -o ppid= -p $(ps -o ppid= -p $PPID)"]).stdout)
    first = one._connection
    root.run(["kill", "-KILL", str(pid)])
    assert one.run(["hostname"]).stdout == "fllb\n"
    assert one._connection is not first
    one.close()
    assert one.run(["hostname"]).stdout == "fllb\n"
    one.close()


def test_a_connection_lost_during_a_command_does_not_run_it_twice(root: SshTransport) -> None:
    one = SshTransport(root.host)
    # Ends the very connection it runs over, its server's process for it.
    script = "echo once >>/etc/times; kill -KILL $(ps -o ppid= -p $(ps -o ppid= -p $PPID))"
    with pytest.raises(HostUnreachable, match="fllb: the connection was lost while sh ran"):
        one.run(["sh", "-c", script])
    assert root.get("/etc/times") == b"once\n"
    one.close()


def test_an_unknown_host_key_is_refused_until_accepted(root: SshTransport, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    stranger = replace(root.host, known_hosts=str(file))
    with pytest.raises(HostKeyRejected, match="unknown host key ssh-ed25519 SHA256:") as refused:
        SshTransport(stranger).run(["true"])
    shown = root.run(["ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub"]).stdout.split()[1]
    assert shown in refused.value.message
    command = str(refused.value.hint).rpartition("accept a matching key: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    accepted = SshTransport(stranger)
    assert accepted.run(["hostname"]).stdout == "fllb\n"
    accepted.close()


def test_a_changed_host_key_is_refused(lab: Path, root: SshTransport, tmp_path: Path) -> None:
    """flweb's key where fllb's is expected, as when somebody is in between."""
    wrong = build_ssh_host(lab, "flweb")
    file = tmp_path / "known_hosts"
    (mine, other, *_) = Path(str(wrong.known_hosts)).read_text().splitlines()
    file.write_text(f"{mine.split()[0]} {' '.join(other.split()[1:])}\n")
    with pytest.raises(HostKeyRejected, match="has changed"):
        SshTransport(replace(root.host, known_hosts=str(file))).run(["true"])


def test_a_jump_host_is_gone_through_and_checked(lab: Path, tmp_path: Path) -> None:
    behind = replace(build_ssh_host(lab, "flweb"), jump_host=f"root@{HOSTS[0].address}:22")
    transport = SshTransport(behind)
    peer = transport.run(["sh", "-c", "echo $SSH_CONNECTION"]).stdout.split()[0]
    transport.close()
    assert peer == HOSTS[0].address
    file = tmp_path / "known_hosts"
    (_, target, *_) = Path(str(behind.known_hosts)).read_text().splitlines()
    file.write_text(target + "\n")
    with pytest.raises(HostKeyRejected, match=r"flweb \(jump host .*unknown host key"):
        SshTransport(replace(behind, known_hosts=str(file))).run(["true"])


def test_a_key_that_is_not_let_in_is_said_so(root: SshTransport, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with pytest.raises(HostUnreachable, match=r"fllb: root@.* refused the login") as refused:
        SshTransport(replace(root.host, identity_file=str(key))).run(["true"])
    assert "must work without a password" in str(refused.value.hint)


def test_hosts_are_worked_on_together(lab: Path) -> None:
    transports = [SshTransport(build_ssh_host(lab, host.name)) for host in HOSTS[:2]]
    names = run_on_all(transports, lambda host: host.run(["hostname"]).stdout.strip()).unwrap()
    assert names == {"fllb": "fllb", "flweb": "flweb"}
    halted = SshHost("web3", f"{NETWORK}.77", user="root", connect_timeout=1)
    gathered = run_on_all([*transports, SshTransport(halted)], lambda host: host.run(["true"]).ok)
    assert gathered.results == {"fllb": True, "flweb": True}
    assert isinstance(gathered.errors["web3"], HostUnreachable)
    for transport in transports:
        transport.close()


def test_a_host_that_starts_again_is_found_again(lab: Path) -> None:
    transport = SshTransport(build_ssh_host(lab, "flweb"))
    before = transport.get("/proc/sys/kernel/random/boot_id")
    halt_host(lab, "flweb")
    with pytest.raises(HostUnreachable):
        transport.run(["true"])
    start_lab(HOSTS, lab)
    assert transport.get("/proc/sys/kernel/random/boot_id") not in {None, before}
    transport.close()
    assert all(known.ssh for known in list_host_status(lab))


def test_nothing_is_left_open(lab: Path) -> None:
    transport = SshTransport(build_ssh_host(lab, "fllb"))
    transport.run(["true"])
    files = psutil.Process().num_fds()
    for _ in range(20):
        transport.run(["true"], input=b"x")
    assert psutil.Process().num_fds() == files
    transport.close()
