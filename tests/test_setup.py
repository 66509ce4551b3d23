"""scripts/setup in a sandbox: its own checkout, its own root directory, and on PATH only what the
sandbox holds: the real text tools, and stand-ins for everything that would change a machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
TOOLS = ["cat", "chmod", "comm", "cp", "cut", "dirname", "flock", "grep", "ln", "ls", "mkdir"]
TOOLS += ["mv", "readlink", "rm", "sed", "sha256sum", "sh", "sort", "tr"]
PROGRAMS = (
    "nginx",
    "memcached",
    "redis-server",
    "redis-cli",
    "httperf",
    "curl",
    "ss",
    "chromium",
    "wrk",
    "memcaslap",
    "openssl",
    "make",
    "git",
    "patch",
)
LAB = {
    "systemd-nspawn": "systemd-container",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "fish": "fish",
    "tcsh": "tcsh",
    "zsh": "zsh",
    "gunicorn": "gunicorn",
    "uwsgi": "uwsgi uwsgi-plugin-python3",
    "puma": "puma",
    "node": "nodejs",
    "sudo": "sudo",
}
MOD_PHP = "usr/lib/apache2/modules/libphp8.2.so"

# Each stand-in appends what it was asked to $LOG.
STAND_INS = {
    "id": "echo ${SANDBOX_UID:-0}",
    "dpkg": 'echo "dpkg $*" >>"$LOG"',
    "update-rc.d": 'echo "update-rc.d $*" >>"$LOG"',
    "deb-systemd-helper": """
        [ -n "${DPKG_MAINTSCRIPT_PACKAGE-}" ] || exit 1  # as the real one
        echo "deb-systemd-helper $*" >>"$LOG"
    """,
    # Installing brings units, and asks the policy as a package's own script would.
    "apt-get": """
        echo "apt-get $*" >>"$LOG"
        case " $* " in
          *" update "*) rm -f "$ROOT/stale" ;;
          *" --download-only "*) [ ! -e "$ROOT/stale" ] || exit 100 ;;
          *" install "*)
            "$ROOT/usr/sbin/policy-rc.d" nginx start
            echo "policy for this installation: $?" >>"$LOG"
            (unset AUTOTUNE_SETUP; "$ROOT/usr/sbin/policy-rc.d" nginx start)
            echo "policy for others: $?" >>"$LOG"
            for unit in nginx.service redis-server.service redis-server@.service sshd.service; do
              : >"$ROOT/lib/systemd/system/$unit"
            done
            : >"$ROOT/etc/init.d/php8.2-fpm"
            if [ -p "$ROOT/halfway" ]; then echo >"$ROOT/halfway"; read -r _ <"$ROOT/go-on"; fi
            [ ! -e "$ROOT/broken" ] || { echo "E: disk full" >&2; exit 100; }
            while [ "$1" != install ]; do shift; done
            for name; do "$BIN/provide" "$name"; done ;;
        esac
    """,
    "provide": """
        case $1 in
          php-memcached) echo memcached >>"$ROOT/modules" ;;
          php-redis) echo redis >>"$ROOT/modules" ;;
          php-mysql) echo mysqli >>"$ROOT/modules" ;;
          iproute2) cp "$BIN/id" "$ROOT/usr/sbin/ss" ;;
          python3) ln "$ROOT/python" "$BIN/python3" ;;
          php-fpm) ln "$ROOT/php-fpm" "$ROOT/usr/sbin/php-fpm8.2" ;;
          *) cp "$BIN/id" "$ROOT/usr/sbin/$1" ;;
        esac
    """,
}
PHP_FPM = 'cat "$ROOT/modules"'
PYTHON = """
    case "$1 $2" in
      "-c "*print*) cat "$ROOT/python-version" ;;
      "-c "*) ;;
      "-m venv")
        echo "venv" >>"$LOG"
        rm -rf .venv; mkdir -p .venv/bin; ln "$ROOT/python" .venv/bin/python ;;
      "-m pip")
        echo "pip $*" >>"$LOG"
        [ ! -e "$ROOT/pip-broken" ] ;;
      scripts/missing_packages.py*) ! cat "$ROOT/services-lack" 2>/dev/null || rm "$ROOT/services-lack" ;;
      *) echo Python 3.11.2 ;;
    esac
"""


@dataclass(frozen=True)
class Sandbox:
    root: Path
    bin: Path
    checkout: Path

    @property
    def policy(self) -> Path:
        return self.root / "usr/sbin/policy-rc.d"

    @property
    def log(self) -> str:
        path = self.root / "log"
        return path.read_text() if path.exists() else ""

    def start(self, *options: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.checkout / "scripts/setup"), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that a test can kill all of it
            env={
                "PATH": str(self.bin),
                "AUTOTUNE_SYSROOT": str(self.root),
                "ROOT": str(self.root),
                "BIN": str(self.bin),
                "LOG": str(self.root / "log"),
            }
            | env,
        )

    def setup(self, *options: str, **env: str) -> tuple[int, str]:
        process = self.start(*options, **env)
        output, _ = process.communicate(timeout=240)
        return process.returncode, output

    def lack(self, *names: str) -> None:
        for name in names:
            if name.startswith("php-") and name != "php-fpm":
                modules = (self.root / "modules").read_text().split()
                modules.remove(name.removeprefix("php-"))
                (self.root / "modules").write_text("\n".join(modules))
            else:
                paths = {"php-fpm": "php-fpm8.2", "iproute2": "ss", "redis-tools": "redis-cli"}
                (self.root / "usr/sbin" / paths.get(name, name)).unlink()

    def distribution(self, text: str) -> None:
        (self.root / "etc/os-release").write_text(text.replace(" ", "\n"))


def executable(path: Path, script: str) -> None:
    path.write_text("#!/bin/sh\n" + textwrap.dedent(script).strip() + "\n")
    path.chmod(0o755)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    """A Debian 12 machine with everything there."""
    made = Sandbox(tmp_path / "root", tmp_path / "bin", tmp_path / "checkout")
    for folder in ("etc/init.d", "usr/sbin", "lib/systemd/system", "var/lib"):
        (made.root / folder).mkdir(parents=True)
    made.distribution("ID=debian VERSION_ID=12")
    (made.root / "python-version").write_text("(3, 11)")
    (made.root / "modules").write_text("memcached\nredis\nmysqli\n")
    made.bin.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (made.bin / tool).symlink_to(found)
    for name, script in STAND_INS.items():
        executable(made.bin / name, script)
    executable(made.root / "python", PYTHON)
    (made.bin / "python3").hardlink_to(made.root / "python")
    executable(made.root / "php-fpm", PHP_FPM)
    (made.root / "usr/sbin/php-fpm8.2").hardlink_to(made.root / "php-fpm")
    (made.root / MOD_PHP).parent.mkdir(parents=True)
    (made.root / MOD_PHP).touch()
    for program in (*PROGRAMS, *LAB):
        executable(made.root / "usr/sbin" / program, "exit 1" if program == "sudo" else ":")
    (made.root / "lib/systemd/system/memcached.service").touch()
    shutil.copytree(HERE / "scripts", made.checkout / "scripts")
    for folder in (HERE / "autotune/services").glob("*/"):
        (made.checkout / "autotune/services" / folder.name).mkdir(parents=True)
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        (made.checkout / name).write_text(f"# {name}\n")
    return made


# Packages


def test_a_machine_that_has_everything_needs_neither_root_nor_debian(sandbox: Sandbox) -> None:
    sandbox.distribution("ID=fedora VERSION_ID=43")
    status, output = sandbox.setup(SANDBOX_UID="1000")
    assert status == 0, output
    assert "apt-get" not in sandbox.log
    assert (sandbox.checkout / ".venv/autotune-setup").exists()


@pytest.mark.parametrize(
    ("lacking", "packages"),
    [(name, name) for name in ("nginx", "memcached", "redis-server", "httperf", "curl", "iproute2")]
    + [(name, name) for name in ("redis-tools", "php-memcached", "php-redis")]
    # Without an FPM there is none that has the modules.
    + [("php-fpm", "php-fpm php-memcached php-redis")],
)
def test_without_root_it_stops_with_the_command(
    sandbox: Sandbox, lacking: str, packages: str
) -> None:
    sandbox.lack(lacking)
    status, output = sandbox.setup(SANDBOX_UID="1000")
    assert status == 1
    assert f"  apt-get install --no-install-recommends {packages}\n" in output
    assert f"  scripts/install-packages {packages}\n" in output
    assert "neither root nor allowed to use sudo" in output
    assert sandbox.log == ""
    assert not (sandbox.checkout / ".venv").exists()


def test_a_python_that_is_too_old_counts_as_missing(sandbox: Sandbox) -> None:
    executable(sandbox.bin / "python3.new", "exit 1")
    (sandbox.bin / "python3.new").replace(sandbox.bin / "python3")
    status, output = sandbox.setup(SANDBOX_UID="1000")
    assert status == 1
    assert "  apt-get install --no-install-recommends python3 python3-venv\n" in output


@pytest.mark.parametrize(
    ("os_release", "has_apt"),
    [
        ("ID=fedora VERSION_ID=43", False),
        ("ID=debian VERSION_ID=11", True),
        ("ID=ubuntu VERSION_ID=22.04 ID_LIKE=debian", True),
        ("ID=linuxmint VERSION_ID=22 ID_LIKE=ubuntu", True),
        ("", False),
    ],
)
def test_on_another_distribution_it_stops_even_as_root(
    sandbox: Sandbox, os_release: str, has_apt: bool
) -> None:
    sandbox.lack("nginx", "php-redis")
    sandbox.distribution(os_release)
    status, output = sandbox.setup()
    assert status == 1
    assert "Missing: nginx php-redis\n" in output
    assert "Nothing was installed" in output
    assert ("apt-get install --no-install-recommends nginx php-redis" in output) is has_apt
    assert sandbox.log == ""
    assert not (sandbox.checkout / ".venv").exists()


def test_only_tests_need_apache_with_php(sandbox: Sandbox) -> None:
    (sandbox.root / MOD_PHP).unlink()
    assert sandbox.setup(SANDBOX_UID="1000")[0] == 0
    status, output = sandbox.setup("--dev", SANDBOX_UID="1000")
    assert status == 1
    assert "  apt-get install --no-install-recommends libapache2-mod-php\n" in output


def test_only_tests_need_every_service(sandbox: Sandbox) -> None:
    (sandbox.root / "services-lack").write_text("apache2\ncurl\n")
    assert sandbox.setup()[0] == 0
    assert "apt-get" not in sandbox.log
    status, output = sandbox.setup("--dev")
    assert status == 0, output
    assert "Going to install from the distribution: apache2 curl\n" in output
    calls = [line for line in sandbox.log.splitlines() if line.startswith("apt-get")]
    assert [call.partition(" install ")[2] for call in calls] == ["apache2 curl"] * 2


def test_only_root_needs_what_a_lab_is_made_of(sandbox: Sandbox) -> None:
    sandbox.lack(*LAB)
    assert sandbox.setup("--dev", SANDBOX_UID="1000")[0] == 0
    assert sandbox.setup()[0] == 0
    assert "apt-get" not in sandbox.log
    sandbox.distribution("ID=fedora VERSION_ID=43")
    assert sandbox.setup("--dev")[0] == 0
    sandbox.distribution("ID=debian VERSION_ID=12")
    _, output = sandbox.setup("--dev")
    assert output.startswith(f"Going to install from the distribution: {' '.join(LAB.values())}")


@pytest.mark.parametrize("version", ["debian VERSION_ID=12", "debian VERSION_ID=13"])
def test_it_says_and_installs_what_is_missing_and_no_more(sandbox: Sandbox, version: str) -> None:
    sandbox.distribution(f"ID={version}")
    sandbox.lack("httperf", "php-fpm", "iproute2")
    names = "php-fpm php-memcached php-redis httperf iproute2"
    status, output = sandbox.setup()
    assert status == 0, output
    assert output.startswith("Going to install from the distribution: " + names)
    calls = [line for line in sandbox.log.splitlines() if line.startswith("apt-get")]
    assert len(calls) == 2  # download, install; the lists were good enough
    for call in calls:
        assert call.endswith(f" install {names}")
        assert "--no-install-recommends" in call
        assert "--no-remove" in call


def test_package_lists_are_fetched_when_they_do_not_serve(sandbox: Sandbox) -> None:
    sandbox.lack("nginx")
    (sandbox.root / "stale").touch()
    status, output = sandbox.setup()
    assert status == 0, output
    assert sandbox.log.count("apt-get -qq update\n") == 1


def test_new_services_of_the_stack_are_disabled_and_others_left_alone(sandbox: Sandbox) -> None:
    sandbox.lack("nginx")
    status, output = sandbox.setup()
    assert status == 0, output
    changed = [
        line for line in sandbox.log.splitlines() if line.startswith(("deb-systemd", "update-rc"))
    ]
    assert changed == [
        "update-rc.d php8.2-fpm disable",
        "deb-systemd-helper disable nginx.service",
        "deb-systemd-helper disable redis-server.service",
    ]  # not memcached (there before), not sshd, not the template redis-server@


@pytest.mark.parametrize("broken", [False, True])
def test_the_policy_is_put_back_as_it_was(sandbox: Sandbox, broken: bool) -> None:
    sandbox.lack("nginx")
    executable(sandbox.policy, "exit 42")
    sandbox.policy.chmod(0o710)
    os.utime(sandbox.policy, (1_000_000_000, 1_000_000_000))
    before = sandbox.policy.stat()
    if broken:
        (sandbox.root / "broken").touch()
    status, output = sandbox.setup()
    assert status == (1 if broken else 0)
    assert ("E: disk full" in output) is broken
    assert "policy for this installation: 101\npolicy for others: 42\n" in sandbox.log
    after = sandbox.policy.stat()
    assert sandbox.policy.read_text() == "#!/bin/sh\nexit 42\n"
    assert (after.st_mode, after.st_mtime, after.st_ino, after.st_uid) == (
        before.st_mode,
        before.st_mtime,
        before.st_ino,
        before.st_uid,
    )
    assert stat.S_IMODE(after.st_mode) == 0o710
    assert sorted(path.name for path in sandbox.policy.parent.glob("policy*")) == ["policy-rc.d"]
    assert not (sandbox.root / "var/lib/autotune-setup").exists()


def test_no_policy_is_left_where_none_was(sandbox: Sandbox) -> None:
    sandbox.lack("nginx")
    assert sandbox.setup()[0] == 0
    assert "policy for this installation: 101\npolicy for others: 104\n" in sandbox.log
    assert not list(sandbox.policy.parent.glob("policy*"))


def start_and_stop_halfway(sandbox: Sandbox) -> subprocess.Popen[str]:
    for pipe in ("halfway", "go-on"):
        os.mkfifo(sandbox.root / pipe)
    process = sandbox.start()
    (sandbox.root / "halfway").read_text()  # returns once apt-get is in the middle
    return process


def test_a_signal_lets_dpkg_end_and_then_tidies_up(sandbox: Sandbox) -> None:
    sandbox.lack("nginx")
    executable(sandbox.policy, "exit 42")
    process = start_and_stop_halfway(sandbox)
    os.killpg(process.pid, signal.SIGINT)
    (sandbox.root / "go-on").write_text("\n")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 130, output
    assert "deb-systemd-helper disable nginx.service\n" in sandbox.log
    assert sandbox.policy.read_text() == "#!/bin/sh\nexit 42\n"
    assert not (sandbox.checkout / ".venv").exists()


def test_an_installation_that_was_killed_is_completed_by_the_next(sandbox: Sandbox) -> None:
    sandbox.lack("nginx")
    executable(sandbox.policy, "exit 42")
    process = start_and_stop_halfway(sandbox)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=240)
    assert "exit 42" not in sandbox.policy.read_text()
    assert "deb-systemd-helper" not in sandbox.log

    (sandbox.root / "halfway").unlink()
    status, output = sandbox.setup()
    assert status == 0, output
    assert "earlier installation was interrupted" in output
    assert "dpkg --configure -a" in sandbox.log
    assert "deb-systemd-helper disable nginx.service\n" in sandbox.log
    assert sandbox.policy.read_text() == "#!/bin/sh\nexit 42\n"
    assert not (sandbox.root / "var/lib/autotune-setup").exists()


def test_what_was_killed_is_completed_even_when_nothing_is_missing(sandbox: Sandbox) -> None:
    sandbox.lack("nginx")
    process = start_and_stop_halfway(sandbox)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=240)
    (sandbox.root / "halfway").unlink()
    executable(sandbox.root / "usr/sbin/nginx", ":")

    status, output = sandbox.setup(SANDBOX_UID="1000")
    assert status == 1
    assert "the rest of an interrupted installation" in output
    status, output = sandbox.setup()
    assert status == 0, output
    assert "deb-systemd-helper disable nginx.service\n" in sandbox.log
    assert not sandbox.policy.exists()


@pytest.mark.parametrize("allowed", [True, False])
def test_sudo_is_used_where_it_asks_no_password(sandbox: Sandbox, allowed: bool) -> None:
    sandbox.lack("nginx")
    executable(sandbox.bin / "true", ":")
    executable(
        sandbox.bin / "sudo",
        'echo "sudo $*" >>"$LOG"; ' + ('[ "$1" != -n ] || shift; "$@"' if allowed else "exit 1"),
    )
    status, output = sandbox.setup(SANDBOX_UID="1000")
    assert ("sudo scripts/install-packages nginx\n" in sandbox.log) is allowed
    assert (status == 0) is allowed, output
    assert ("with sudo" in output) is allowed


# Load generators of no distribution


def test_generators_are_built_once_and_only_where_they_are_asked_for(sandbox: Sandbox) -> None:
    for tool in ("cargo", "go"):
        executable(sandbox.bin / tool, f'echo "{tool} $*" >>"$LOG"')
    (sandbox.bin / "env").symlink_to("/usr/bin/env")
    assert sandbox.setup("--dev")[0] == 0
    assert "install" not in sandbox.log.replace("pip install", "")
    status, output = sandbox.setup("--dev", "--generators")
    assert status == 0, output
    cargo, go = sandbox.log.splitlines()[-2:]
    assert re.fullmatch(r"cargo install --quiet --locked --root build --version [\d.]+ oha", cargo)
    assert re.fullmatch(r"go install go\.k6\.io/k6@v[\d.]+", go)
    (sandbox.root / "log").unlink()
    for program in ("oha", "k6"):  # as their compilers would leave them
        executable(sandbox.checkout / "build/bin" / program, ":")
    assert sandbox.setup("--generators") == (0, "")
    assert sandbox.log == ""


def test_what_a_generator_is_built_with_is_asked_for(sandbox: Sandbox) -> None:
    status, output = sandbox.setup("--generators")
    assert status == 1
    assert "oha is built with cargo, which is not on this machine: https://rustup.rs\n" in output
    executable(sandbox.bin / "cargo", "exit 1")
    status, output = sandbox.setup("--generators")
    assert status == 1
    assert output.endswith("oha could not be built; see above.\n")


# .venv


def asked(sandbox: Sandbox) -> list[str]:
    """What was asked for since the last call, one word each."""
    words = {"venv": "venv", "--editable": "autotune", "requirements.lock": "run"}
    words["requirements-dev.lock"] = "dev"
    done = [words[word] for word in sandbox.log.split() if word in words]
    (sandbox.root / "log").unlink(missing_ok=True)
    return done


def test_packages_are_installed_by_hash_and_autotune_without_fetching(sandbox: Sandbox) -> None:
    assert sandbox.setup()[0] == 0
    locked, editable = [line for line in sandbox.log.splitlines() if line.startswith("pip")]
    assert locked.endswith("--require-hashes --requirement requirements.lock")
    assert editable.endswith("--no-deps --no-build-isolation --editable .")


def test_a_second_call_only_looks(sandbox: Sandbox) -> None:
    assert sandbox.setup()[0] == 0
    assert asked(sandbox) == ["venv", "run", "autotune"]
    assert sandbox.setup() == (0, "")
    assert sandbox.log == ""


def test_developing_adds_to_running_and_running_asks_no_more(sandbox: Sandbox) -> None:
    assert sandbox.setup()[0] == 0
    asked(sandbox)
    assert sandbox.setup("--dev")[0] == 0
    assert asked(sandbox) == ["dev", "autotune"]
    assert sandbox.setup("--dev") == (0, "")
    assert sandbox.setup() == (0, "")


@pytest.mark.parametrize(
    ("changed", "redone"),
    [
        ("checkout/requirements.lock", ["venv", "run", "autotune"]),
        ("checkout/requirements-dev.lock", ["venv", "run", "autotune"]),
        ("checkout/pyproject.toml", ["autotune"]),
        ("root/python-version", ["venv", "run", "autotune"]),
        ("checkout/README.md", []),
    ],
)
def test_a_change_redoes_what_it_touches(sandbox: Sandbox, changed: str, redone: list[str]) -> None:
    assert sandbox.setup()[0] == 0
    asked(sandbox)
    with (sandbox.root.parent / changed).open("a") as file:
        file.write("# changed\n")
    assert sandbox.setup()[0] == 0
    assert asked(sandbox) == redone
    assert sandbox.setup() == (0, "")


def test_a_checkout_that_was_moved_gets_a_new_environment(sandbox: Sandbox) -> None:
    assert sandbox.setup()[0] == 0
    asked(sandbox)
    moved = sandbox.checkout.rename(sandbox.checkout.with_name("moved"))
    assert Sandbox(sandbox.root, sandbox.bin, moved).setup()[0] == 0
    assert asked(sandbox) == ["venv", "run", "autotune"]


def test_an_environment_that_was_left_half_made_is_made_again(sandbox: Sandbox) -> None:
    (sandbox.root / "pip-broken").touch()
    assert sandbox.setup()[0] != 0
    assert asked(sandbox) == ["venv", "run"]
    (sandbox.root / "pip-broken").unlink()
    assert sandbox.setup()[0] == 0
    assert asked(sandbox) == ["venv", "run", "autotune"]


def test_an_environment_that_is_a_link_is_left_alone(sandbox: Sandbox) -> None:
    shared = sandbox.checkout.with_name("shared")
    shared.mkdir()
    (sandbox.checkout / ".venv").symlink_to(shared)
    status, output = sandbox.setup()
    assert (status, output) == (0, f".venv is a link to {shared}: used as it is.\n")
    assert list(shared.iterdir()) == []


def test_the_environment_alone_needs_no_packages(sandbox: Sandbox) -> None:
    sandbox.lack("nginx", "httperf")
    status, output = sandbox.setup("--dev", "--venv", SANDBOX_UID="1000")
    assert status == 0, output
    assert asked(sandbox) == ["venv", "dev", "autotune"]


def test_an_unknown_option_is_refused(sandbox: Sandbox) -> None:
    status, output = sandbox.setup("--devel")
    assert status == 2
    assert output.startswith("usage:")


# This machine


@pytest.mark.stack
def test_this_machine_has_what_set_up_installs(tmp_path: Path) -> None:
    shutil.copytree(HERE / "scripts", tmp_path / "scripts")
    (tmp_path / ".venv").symlink_to(tmp_path)
    done = subprocess.run(
        [tmp_path / "scripts/setup"], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f".venv is a link to {tmp_path}: used as it is.\n"
