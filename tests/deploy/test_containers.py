"""Compose projects: what is asked of their engine, and a real one of Podman tuned and put back.

`make test-containers` runs those with Podman (marker `containers`), as root.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.desired_state import build_desired_state
from autotune.deploy.host_commands import STATE_DIRECTORY, CommandFailed
from autotune.deploy.host_state import HostState, ObservedHost, list_differences
from autotune.discovery.host_reading import list_config_paths
from autotune.environments.preparation import prepare
from autotune.environments.stack import StackEnvironment
from autotune.errors import AutotuneError
from autotune.runtimes.containers import (
    FILES_DIRECTORY,
    RUNTIME,
    SERVICE_MANAGER,
    VALIDATION_DIRECTORY,
    parse_units,
)
from autotune.services.base import AdoptedConfig, ConfigFile, TrialStart
from autotune.space.facts import HostFacts
from autotune.target.model import Target
from autotune.target.read_target import TargetFile, read_target
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport
from tests.deploy.doubles import Here

IMAGE = "localhost/autotune-test-nginx"
PROJECT = ACCOUNT = "autotune-test"
PORT = 18090
COMPOSE = f"""\
services:
  web: &web
    image: {IMAGE}
    command: [nginx, -g, "daemon off;"]
    network_mode: host
    environment: {{GREETING: "hello  world"}}
    ulimits: {{nofile: {{soft: 4096, hard: 4096}}, nproc: 1000}}
    volumes: ["./nginx.conf:/etc/nginx/nginx.conf:ro", "./page:/var/www/html:ro"]
  other:
    <<: *web
    command: [sleep, "10000"]
"""
NGINX = f"""\
user www-data;
worker_processes 2;
events {{
    worker_connections 700;
}}
http {{
    keepalive_timeout 60;
    server {{
        listen {PORT};
        root /var/www/html;
    }}
}}
"""
TARGET = f"""\
name: project
slo: {{p99: 500ms}}
hosts: {{box: {{transport: local}}}}
project: {{engine: podman, name: {PROJECT}, files: FILE}}
tiers: {{web: {{hosts: box, service: nginx, runtime: containers, port: {PORT}}}}}
load: {{path: /index.html, max_rate: 100/s}}
parameters: {{web.container.memory: {{range: [64, 512], default: 512}}}}
budget: {{trials: 3, time: 60s}}
"""
UNIT = "podman:autotune-test:/srv/shop/compose.yaml:web"


def target(
    tmp_path: Path, text: str = TARGET, compose: str = "/srv/shop/compose.yaml"
) -> TargetFile:
    path = tmp_path / "project.yaml"
    path.write_text(text.replace("FILE", compose))
    return read_target(path)


class Asked(LocalTransport):
    """Does nothing, and keeps what it was asked."""

    script = ""

    def run(self, *argv: Any, **how: Any) -> CommandResult:
        self.script = how["input"].decode()
        return CommandResult((), 0, "", "")


# -- what needs no engine --------------------------------------------------------------------------


def test_the_state_of_containers_is_read() -> None:
    units = parse_units(
        ("a", "b", "c"),
        "yes running 4711 2 image=1a environment=2b \nyes exited 0 0 image=1a\nno absent 0 0\n",
    )
    assert (units["a"].active, units["a"].pid, units["a"].restarts) == (True, 4711, 2)
    assert units["a"].definition == "image=1a environment=2b"
    assert [unit.active for unit in units.values()] == [True, False, False]
    assert [unit.exists for unit in units.values()] == [True, True, False]


def test_data_and_applications_are_never_read_out_of_a_container() -> None:
    paths = list_config_paths(["postgresql"])
    assert [path for path in paths if "/systemd/" not in path] == ["/etc/postgresql"]
    paths = list_config_paths(["gunicorn", "nginx+php-fpm"])
    assert "/etc" in paths
    assert [path for path in paths if path != "/etc" and "/systemd/" not in path] == []


def test_what_is_read_out_of_a_container_is_bounded() -> None:
    script = f"""{SERVICE_MANAGER.shell_functions}
container() {{ echo 1; }}
engine() {{ cat /dev/zero; }}
packed {UNIT} /etc/nginx | wc -c"""
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert 64 * 2**20 < int(printed.stdout) < 96 * 2**20


def test_a_copy_that_a_killed_check_left_is_removed_by_the_next_check(tmp_path: Path) -> None:
    killed = subprocess.Popen(["true"])
    killed.wait()
    names = [f"autotune-check-{os.getpid()}", f"my-autotune-check-{killed.pid}",
             "autotune-check-web", f"autotune-check-{killed.pid}", "autotune-check-"]  # fmt: skip
    script = f"""{SERVICE_MANAGER.shell_functions}
engine() {{
    case $1 in
        ps) printf '%s\\n' {" ".join(names)} ;;
        rm) echo "$*" >>{tmp_path}/removed ;;
    esac
}}
container() {{ :; }}
aside {UNIT} 30 --entrypoint true --"""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == f"{PROJECT} has no container of web: \n"
    assert (tmp_path / "removed").read_text() == f"rm -f autotune-check-{killed.pid}\n"


@pytest.mark.parametrize(
    ("name", "children", "is_child"),
    [("tini", 1, True), ("docker-init", 1, True), ("nginx", 1, False), ("tini", 2, False)],
)
def test_a_reload_concerns_the_processes_of_the_server_not_those_of_an_init_process(
    tmp_path: Path, name: str, children: int, is_child: bool
) -> None:
    """With `init: true`, the server is the only child of the container's first process."""
    program = tmp_path / name
    program.write_text("#!/bin/sh\n" + "sleep 100 &\n" * children + "wait\n")
    program.chmod(0o755)
    with subprocess.Popen([program], start_new_session=True) as first:
        listed = Path(f"/proc/{first.pid}/task/{first.pid}/children")
        while len(pids := listed.read_text().split()) < children:
            time.sleep(0.01)
        script = f"""{SERVICE_MANAGER.shell_functions}
children() {{ cat {listed}; }}
server_of {first.pid}"""
        printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        os.killpg(first.pid, signal.SIGKILL)
    assert printed.stdout.split() == [pids[0] if is_child else str(first.pid)]


def test_the_id_of_a_container_is_part_of_its_control_group() -> None:
    script = f"""{SERVICE_MANAGER.shell_functions}
as_owner() {{ echo '{"9f" * 32} shop_web_1 False'; }}
group {UNIT}"""
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout == "9f" * 32 + "\n"


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_container_of_a_single_command_is_not_that_of_the_service(engine: str) -> None:
    """`docker compose run` and `podman-compose run` label their containers with the service, too."""
    script = f"""{SERVICE_MANAGER.shell_functions}
as_owner() {{
    case "$*" in *--format*) ;; *) printf '%s\\n' 1 2 3; return ;; esac
    printf '%s\\n' '1 {PROJECT}_web_1 False' '2 {PROJECT}-web-run-9f True' '3 {PROJECT}_web_tmp80 '
}}
of_unit {engine}:{PROJECT}:/srv/shop/compose.yaml:web
container"""
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert printed.stdout == "1\n"


ENGINE = """\
as_owner() {
    label=BEFORE
    [ ! -e FILES/created ] || label=LABEL
    case "$*" in
        'podman-compose version') echo 'podman-compose version VERSION' ;;
        'podman-compose '*) echo "$*" >>FILES/created ;;
        *' --format '*oneoff*) echo 'web1 autotune-test_web_1 ' ;;
        *' ps -aq '*) printf '%s\\n' web1 db1 ;;
        *printf*) echo 'image same' ;;
        *Config.Image*) echo shop-web ;;
        *'{{.Image}} '*) echo 1a ;;
        *' image inspect '*shop-web) echo sha256:IMAGE ;;
        *Dependencies*) printf '%s\\n' pod1 db1 ;;
        *Labels*) echo "$label" ;;
        *.Name*db1) echo autotune-test_db_1 ;;
    esac
}
"""


def restarted(
    files: Path, version: str, label: str = "ef01", *, before: str = "", image: str = "1a"
) -> subprocess.CompletedProcess[str]:
    """Restart a service whose container must be recreated. ``label`` is that of the new container, and
    ``before`` that of the old one. ``image`` is what the name of its image refers to.
    """
    override = files / PROJECT / "web" / "override.json"
    override.parent.mkdir(parents=True)
    override.write_text(' "autotune": "ef01"\n')
    functions = ENGINE.replace("FILES", str(files)).replace("VERSION", version)
    for word, text in (("LABEL", label), ("BEFORE", before), ("IMAGE", image)):
        functions = functions.replace(word, text)
    script = f"{SERVICE_MANAGER.shell_functions}\nmounted={files}\n{functions}\nrestart {UNIT}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "replaced"),
    [("1.0.3", False), ("1.3.0", False), ("", False), ("1.4.0", True), ("1.10.0", True)],
)
def test_containers_on_which_a_service_depends_are_never_replaced(
    tmp_path: Path, version: str, replaced: bool
) -> None:
    """`podman-compose up --no-deps` before 1.4 removes them, with their data outside of volumes."""
    done = restarted(tmp_path, version)
    assert (done.returncode == 0, (tmp_path / "created").exists()) == (replaced, replaced)
    assert replaced or "also replace container autotune-test_db_1," in done.stdout


def test_a_container_that_was_not_recreated_is_an_error(tmp_path: Path) -> None:
    """podman-compose cannot remove a container on which others depend, and starts it again."""
    done = restarted(tmp_path, "1.4.0", label="")
    assert (done.returncode, (tmp_path / "created").exists()) == (1, True)
    assert "web of autotune-test was not recreated" in done.stdout


@pytest.mark.parametrize(
    ("image", "before", "is_recreated"),
    [("1a", "", True), ("2b", "", False), ("2b", "ab12", True)],
    ids=["the same image", "another image", "created by autotune"],
)
def test_a_container_is_not_recreated_from_another_image(
    tmp_path: Path, image: str, before: str, is_recreated: bool
) -> None:
    """A pull or a build may have moved the name of the image since the container was created."""
    done = restarted(tmp_path, "1.4.0", before=before, image=image)
    assert (done.returncode == 0, (tmp_path / "created").exists()) == (is_recreated, is_recreated)
    assert is_recreated or "shop-web no longer refers to the image of web of" in done.stdout


@pytest.mark.parametrize(("label", "is_replaced"), [("", True), ("ef01", False)])
def test_a_container_without_the_files_of_a_deployment_was_replaced_by_others(
    tmp_path: Path, label: str, is_replaced: bool
) -> None:
    override = tmp_path / PROJECT / "web" / "override.json"
    override.parent.mkdir(parents=True)
    override.touch()
    script = f"""{SERVICE_MANAGER.shell_functions}
mounted={tmp_path}
container() {{ echo web1; }}
look_into() {{
    case $1 in *Labels*) echo '{label}' ;; *State*) echo running 1 0 ;; *) echo image same ;; esac
}}
units {UNIT}"""
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout.endswith(" replaced=yes\n") == is_replaced


CREATED_FROM = """\
as_owner() {
    [ ! -e FILES/created ] || label=ef01
    case "$*" in
        'docker compose '*) echo "$*" >>FILES/created ;;
        *' --format '*oneoff*) echo '1 autotune-test-web-1 False' ;;
        *printf*) echo 'image same' ;;
        *config_files*) echo 'FROM' ;;
        *working_dir*) echo 'PLACE' ;;
        *environment_file*) echo 'VARIABLES' ;;
        *Labels*) echo "$label" ;;
    esac
}
label=
"""


@pytest.mark.parametrize(
    ("created_from", "place", "variables", "outcome"),
    [
        ("FILES/compose.yaml", "FILES/site", "",
         "--project-directory FILES/site -f FILES/link.yaml -f FILES/mounted"),
        ("compose.yaml,gone.yaml", "FILES", "FILES/a.env,FILES/b.env",
         "--project-directory FILES --env-file FILES/a.env --env-file FILES/b.env -f FILES/link.yaml"),
        ("<no value>", "<no value>", "<no value>", "-f FILES/link.yaml"),
        ("/gone/compose.yaml", "/gone", "", "-f FILES/link.yaml"),  # the project was moved
        ("compose.yaml,other.yaml", "FILES", "",
         "web of autotune-test was also created from FILES/other.yaml:"),
    ],
)  # fmt: skip
def test_a_container_is_recreated_from_its_own_files_and_variables(
    tmp_path: Path, created_from: str, place: str, variables: str, outcome: str
) -> None:
    """Its paths are relative to the directory that it was created in, which may contain no file."""
    override = tmp_path / "mounted" / PROJECT / "web" / "override.json"
    override.parent.mkdir(parents=True)
    override.write_text(' "autotune": "ef01"\n')
    for name in ("compose.yaml", "other.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "link.yaml").symlink_to("compose.yaml")
    (tmp_path / "site").mkdir()
    functions = CREATED_FROM.replace("FROM", created_from).replace("VARIABLES", variables)
    functions = functions.replace("PLACE", place)
    unit = f"docker:{PROJECT}:FILES/link.yaml:web"
    script = (
        f"{SERVICE_MANAGER.shell_functions}\nmounted=FILES/mounted\n{functions}\nrestart {unit}"
    )
    script = script.replace("FILES", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    created = tmp_path / "created"
    printed = created.read_text() if created.exists() else done.stdout
    command = "" if outcome.startswith("web") else f"compose -p {PROJECT} "
    assert f"{command}{outcome}".replace("FILES", str(tmp_path)) in printed
    assert (done.returncode == 0) == created.exists()


class FullDisk(Here):
    """A host that cannot write the content of a file."""

    script = b""

    def rewritten(self, script: bytes) -> bytes:
        self.script = script
        directory = str(self.place / "check").encode()
        return b'sync() { [ ! -f "$2" ]; }\n' + script.replace(
            VALIDATION_DIRECTORY.encode(), directory
        )


def test_files_of_a_check_have_the_mode_of_the_real_ones_and_none_is_left(tmp_path: Path) -> None:
    path, facts = "/etc/nginx/nginx.conf", {"box": HostFacts(cpus=2, memory=2**32)}
    adopted = AdoptedConfig((ConfigFile(path, "nginx.conf", 0o600, "a secret"),), "127.0.0.1:80")
    stack = RUNTIME.build_stack(
        target(tmp_path), "", facts, {"box": {"nginx": "nginx"}}, {"web.box.nginx": adopted}
    )
    cases = [(part, {path: b"a secret"}) for part in stack.instances if part.placement.adopted]
    host = FullDisk(tmp_path)
    with pytest.raises(CommandFailed):
        RUNTIME.find_validation_errors(host, cases)
    assert re.search(rf"step stage '' \S+{path} 0600 0:0 ", host.script.decode())
    assert not (tmp_path / "check").exists()


def test_no_message_of_a_check_repeats_what_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, facts = "/etc/nginx/nginx.conf", {"box": HostFacts(cpus=2, memory=2**32)}
    adopted = AdoptedConfig((ConfigFile(path, "nginx.conf", 0o600, "x"),), "127.0.0.1:80")
    stack = RUNTIME.build_stack(
        target(tmp_path), "", facts, {"box": {"nginx": "nginx"}}, {"web.box.nginx": adopted}
    )
    content = b"worker_processes 4;\nenv SHOP_ID=hunter2hunter2;\n"
    cases = [(part, {path: content}) for part in stack.instances if part.placement.adopted]
    monkeypatch.setattr(
        "autotune.runtimes.containers.run_required",
        lambda _, commands, **__: [
            CommandResult(each.argv, int(each.argv[0] != "stage"), "no hunter2hunter2 here", "")
            for each in commands
        ],
    )
    assert RUNTIME.find_validation_errors(Here(tmp_path), cases) == ["no (masked) here"]


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    file = target(tmp_path)
    facts = {"box": HostFacts(cpus=2, memory=2**32)}
    stack = RUNTIME.build_stack(file, "", facts, {"box": {"nginx": "nginx"}}, {})
    cases = [(part, {"/etc/nginx/nginx.conf": b"x"})
             for part in stack.instances if part.service.name == "nginx"]  # fmt: skip
    asked = [Asked(), Asked()]
    for transport in asked:
        with pytest.raises(AutotuneError):
            RUNTIME.find_validation_errors(transport, cases)
    first, second = (
        set(re.findall(rf"{VALIDATION_DIRECTORY}/(\w+)", each.script)) for each in asked
    )
    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.parametrize("answer", ["", "yes running\n", "yes running x 0\n", "a\nb\n"])
def test_an_answer_that_makes_no_sense_is_an_error(answer: str) -> None:
    with pytest.raises(AutotuneError, match="output from the host about containers"):
        parse_units(("a",), answer)


def test_a_container_that_came_back_otherwise_is_named() -> None:
    observed = parse_units((UNIT,), "yes running 1 0 image=9 mounts=2\n")
    desired = HostState(units={UNIT: True}, definitions={UNIT: "image=1 mounts=2"})
    assert list_differences(desired, ObservedHost(units=observed)) == [f"{UNIT} (image)"]


def test_files_are_mounted_over_those_of_the_image_and_limits_only_where_asked(
    tmp_path: Path,
) -> None:
    file = target(tmp_path)
    facts = {"box": HostFacts(cpus=2, memory=2**32)}
    stack = RUNTIME.build_stack(file, "", facts, {"box": {"nginx": "nginx"}}, {})
    settings = {"web.container.memory": 128, "web.container.cpus": 0.0}
    ((unit, (path, content)),) = RUNTIME.layout.build_unit_files(stack.instances, settings).items()
    assert (unit, path) == (UNIT, f"{FILES_DIRECTORY}/{PROJECT}/web/override.json")
    web = json.loads(content)["services"]["web"]
    assert web["volumes"] == [
        f"{FILES_DIRECTORY}/{PROJECT}/web/files/etc/nginx/nginx.conf:/etc/nginx/nginx.conf:ro"
    ]
    assert (web["mem_limit"], web["labels"]["autotune.signal"], "cpus" in web) == (
        "128m",
        "HUP",
        False,
    )
    other = RUNTIME.layout.build_unit_files(stack.instances, {"web.container.memory": 64})[unit][1]
    assert json.loads(other)["services"]["web"]["labels"]["autotune"] != web["labels"]["autotune"]


def test_every_mounted_file_exists(tmp_path: Path) -> None:
    """For a missing file, the engine would create and mount a directory."""
    path, new = "/etc/nginx/nginx.conf", "/etc/nginx/conf.d/new.conf"
    adopted = AdoptedConfig(
        (ConfigFile(path, "nginx.conf"), ConfigFile(new, "new.conf", optional=True)), "127.0.0.1:80"
    )
    facts = {"box": HostFacts(cpus=2, memory=2**32)}
    stack = RUNTIME.build_stack(
        target(tmp_path), "", facts, {"box": {"nginx": "nginx"}}, {"web.box.nginx": adopted}
    )
    desired = build_desired_state(
        {},
        stack,
        lambda part: {path: b"as it was", new: b""} if part.placement.adopted else {},
        RUNTIME.layout,
    )
    files = desired.hosts["box"].files
    override = files[f"{FILES_DIRECTORY}/{PROJECT}/web/override.json"].content
    volumes = json.loads(override or b"")["services"]["web"]["volumes"]
    mounted = [volume.partition(":")[0] for volume in volumes]
    assert [files[place].content for place in mounted] == [b"as it was", b""]


def test_words_of_a_check_are_never_a_shell_s(tmp_path: Path) -> None:
    file = target(tmp_path)
    facts = {"box": HostFacts(cpus=2, memory=2**32)}
    stack = RUNTIME.build_stack(file, "", facts, {"box": {"nginx": "nginx"}}, {})
    (site,) = (part.placement for part in stack.instances if part.service.name == "nginx")
    assert SERVICE_MANAGER.validate_command is not None
    how = ("nginx", "-t", "$(reboot)")
    words = SERVICE_MANAGER.validate_command(site, how, ["/etc/a", "/etc/b"], ["/etc/b"])
    place = f"{FILES_DIRECTORY}/{PROJECT}/web/files/etc"
    assert words == (
        "aside", UNIT, "30", f"--volume={place}/a:/etc/a:ro",
        f"--volume={place}/.b.autotune-new:/etc/b:ro", "--entrypoint", "nginx", "--", "-t", "$(reboot)",
    )  # fmt: skip
    assert SERVICE_MANAGER.validate_command(site, TrialStart(how, "s"), [], [])[:2] == (
        "aside",
        "starts",
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("project: {engine: podman, name: autotune-test, files: FILE}\n", "", "project"),
        ("service: nginx,", "service: [nginx, haproxy],", "the container image determines"),
        (
            "runtime: containers,",
            "runtime: containers, replace: true,",
            "existing files of this software",
        ),
    ],
)
def test_what_a_project_cannot_be_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = target(tmp_path, TARGET.replace(old, new))
    with pytest.raises(AutotuneError, match=message):
        RUNTIME.create_transports(file)


def test_what_separates_words_of_a_unit_is_in_none_of_them(tmp_path: Path) -> None:
    for compose in ("/srv/a:b.yaml", "/srv/a,b.yaml", "compose.yaml"):
        with pytest.raises(AutotuneError, match="the absolute path of a Compose file"):
            target(tmp_path, compose=f"'{compose}'")


def test_kernels_and_units_of_hosts_are_not_tuned_for_containers(tmp_path: Path) -> None:
    from autotune.services.registry import list_target_services

    described: Target = target(tmp_path).target
    assert {place.service.name for place in list_target_services(described)} == {
        "container",
        "nginx",
    }


# -- Podman ----------------------------------------------------------------------------------------


def real(test: Callable[..., None]) -> Callable[..., None]:
    """With an engine: of the servers, and in a stage of its own."""
    return pytest.mark.stack(pytest.mark.containers(test))


def as_owner(account: str, *words: str, check: bool = True) -> str:
    """What a command prints, as root or as the ``account`` whose containers they are."""
    place = f"XDG_RUNTIME_DIR=/run/user/{pwd.getpwnam(account).pw_uid}" if account else ""
    argv = ["runuser", "-u", account, "--", "env", place, *words] if account else [*words]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False, timeout=120)
    assert not check or done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.strip()


def podman(*words: str, check: bool = True, account: str = "") -> str:
    return as_owner(account, "podman", *words, check=check)


@pytest.fixture(scope="session")
def root_file_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of this distribution's own packages; no registry of images is asked."""
    root = tmp_path_factory.mktemp("image") / "root.tar"
    argv = [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--include=nginx-light",
        "bookworm",
        str(root),
    ]
    subprocess.run(argv, check=True, timeout=500)
    yield root
    root.unlink()


@pytest.fixture(scope="session")
def image(root_file_system: Path) -> Iterator[str]:
    podman("import", "-q", str(root_file_system), IMAGE)
    yield IMAGE
    podman("rmi", "-f", IMAGE)


@pytest.fixture
def project(image: str, tmp_path: Path) -> Iterator[Path]:
    with running(tmp_path / "shop") as directory:
        yield directory


@contextmanager
def running(directory: Path, account: str = "") -> Iterator[Path]:
    """A project that runs; afterwards nothing of it or of autotune is there."""
    (directory / "page").mkdir(parents=True)
    (directory / "page" / "index.html").write_text("a page\n")
    (directory / "nginx.conf").write_text(NGINX)
    (directory / "compose.yaml").write_text(COMPOSE)
    compose = ["podman-compose", "-p", PROJECT, "-f", str(directory / "compose.yaml")]

    def all_of_it() -> tuple[str, str]:
        return podman("ps", "-aq", account=account), podman("volume", "ls", "-q", account=account)

    before = all_of_it()
    try:
        as_owner(account, *compose, "up", "-d")
        yield directory
    finally:
        as_owner(account, *compose, "down", "-t", "1", check=False)
        podman("pod", "rm", "-f", f"pod_{PROJECT}", check=False, account=account)
    assert all_of_it() == before
    assert not Path(FILES_DIRECTORY).exists()
    # Labs of others are kept beside what a study leaves on a host.
    assert {path.name for path in Path(STATE_DIRECTORY).glob("*")} <= {"labs"}


@pytest.fixture
def account(root_file_system: Path) -> Iterator[str]:
    """One without privileges that has an engine and the image, and leaves nothing."""
    subprocess.run(["useradd", "--create-home", ACCOUNT], check=True)
    entry = pwd.getpwnam(ACCOUNT)
    # systemd-logind makes it where an account logs in.
    runtime = Path(f"/run/user/{entry.pw_uid}")
    try:
        runtime.mkdir(mode=0o700, parents=True)
        shutil.chown(runtime, ACCOUNT, ACCOUNT)
        copy = shutil.copy(root_file_system, entry.pw_dir)
        shutil.chown(copy, ACCOUNT)
        podman("import", "-q", copy, IMAGE, account=ACCOUNT)
        yield ACCOUNT
    finally:
        podman("system", "reset", "-f", check=False, account=ACCOUNT)
        podman("system", "migrate", check=False, account=ACCOUNT)  # ends its pause process
        subprocess.run(["userdel", "--remove", ACCOUNT], check=True, stderr=subprocess.DEVNULL)
        shutil.rmtree(runtime)
        Path(f"/dev/shm/libpod_rootless_lock_{entry.pw_uid}").unlink(missing_ok=True)


def picture(container: str = "web", account: str = "") -> dict[str, Any]:
    """What a container is made of and whether it runs, as the engine tells it."""
    (all_of_it,) = json.loads(podman("inspect", f"{PROJECT}_{container}_1", account=account))
    config, host = all_of_it["Config"], all_of_it["HostConfig"]
    environment = sorted(e for e in config["Env"] if not e.startswith("HOSTNAME="))
    mounts = sorted((m["Source"], m["Destination"], m["RW"]) for m in all_of_it["Mounts"])
    return {
        "image": all_of_it["Image"], "environment": environment, "command": config["Cmd"],
        "mounts": mounts, "memory": host["Memory"], "cpus": host["NanoCpus"],
        "running": all_of_it["State"]["Running"], "labels": {*config["Labels"]},
    }  # fmt: skip


def identifier(container: str = "web", account: str = "") -> str:
    return podman("inspect", "--format", "{{.Id}}", f"{PROJECT}_{container}_1", account=account)


def described(project: Path) -> TargetFile:
    return target(project.parent, compose=str(project / "compose.yaml"))


@real
def test_a_project_is_tuned_and_put_back(project: Path, tmp_path: Path) -> None:
    before, other = picture(), identifier("other")
    environment = prepare(described(project))
    assert isinstance(environment, StackEnvironment)
    baseline = environment.space.complete_without_repair({}).settings
    assert baseline["web.nginx.worker_connections"] == 700
    fleet = environment.create_deployment(tmp_path / "study", lambda _: None)
    fleet.lock_hosts()
    try:
        fleet.deploy(baseline)
        first = identifier()
        assert podman("exec", first, "cat", "/etc/nginx/nginx.conf") + "\n" == NGINX
        assert picture()["memory"] == 512 * 2**20

        # A reload: the same container, with what is in effect read back from inside.
        deployed = fleet.deploy({**baseline, "web.nginx.worker_connections": 900})
        assert (identifier(), deployed.mismatches) == (first, ())
        assert deployed.effective["web.nginx.worker_connections"] == 900

        # What the software refuses changes nothing.
        with pytest.raises(DeployFailed, match="keepalive_timeout"):
            fleet.deploy({**baseline, "web.nginx.keepalive_timeout": "nonsense"})
        assert "worker_connections 900;" in podman("exec", first, "cat", "/etc/nginx/nginx.conf")

        # Limits are part of what a container is made from.
        fleet.deploy({**baseline, "web.container.memory": 128})
        assert (identifier() != first, picture()["memory"]) == (True, 128 * 2**20)
    finally:
        fleet.restore()
    assert picture() == before
    assert identifier("other") == other
    assert (project / "nginx.conf").read_text() == NGINX


@real
def test_a_project_of_an_account_without_privileges_is_tuned_and_put_back(
    account: str, tmp_path: Path
) -> None:
    """Without limits: with cgroups v1 Podman ignores them for such accounts."""
    text = re.sub(r"(?m)^parameters: .*\n", "", TARGET)
    text = text.replace("engine: podman,", f"engine: podman, account: {account},")
    with running(Path(pwd.getpwnam(account).pw_dir) / "shop", account) as project:
        before, other = picture(account=account), identifier("other", account)
        file = target(tmp_path, text, str(project / "compose.yaml"))
        environment = prepare(file)
        assert isinstance(environment, StackEnvironment)
        baseline = environment.space.complete_without_repair({}).settings
        fleet = environment.create_deployment(tmp_path / "study", lambda _: None)
        fleet.lock_hosts()
        try:
            fleet.deploy(baseline)
            first = identifier(account=account)
            deployed = fleet.deploy({**baseline, "web.nginx.worker_connections": 900})
            assert (identifier(account=account), deployed.mismatches) == (first, ())
            assert deployed.effective["web.nginx.worker_connections"] == 900
            with pytest.raises(DeployFailed, match="keepalive_timeout"):
                fleet.deploy({**baseline, "web.nginx.keepalive_timeout": "nonsense"})
        finally:
            fleet.restore()
        assert picture(account=account) == before
        assert identifier("other", account) == other
        assert (project / "nginx.conf").read_text() == NGINX


@real
def test_a_killed_study_is_put_back_by_restore(project: Path, tmp_path: Path) -> None:
    before, file = picture(), described(project).path
    command = [sys.executable, "-m", "autotune"]
    study = subprocess.Popen(
        [*command, "run", str(file), "--yes", "--studies", str(tmp_path / "studies")],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while Path(FILES_DIRECTORY).exists() is False and study.poll() is None:
            time.sleep(0.05)
        assert study.poll() is None, "it ended before it changed anything"
    finally:
        os.killpg(study.pid, signal.SIGKILL)
        study.wait()
    argv = [*command, "restore", str(file), "--studies", str(tmp_path / "studies")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert picture() == before


@real
def test_data_in_a_volume_without_a_name_is_not_lost(project: Path, tmp_path: Path) -> None:
    of_image = f"{IMAGE}-with-volume"  # Compose gives the volumes of its own files names
    podman("commit", "-q", "--change", "VOLUME /var/data", identifier(), of_image)
    compose = project / "compose.yaml"
    compose.write_text(COMPOSE.replace(IMAGE, of_image))
    up = ["podman-compose", "-p", PROJECT, "-f", str(compose), "up", "-d", "--force-recreate"]
    subprocess.run(up, check=True, capture_output=True, timeout=120)
    first = identifier()
    try:
        environment = prepare(described(project))
        assert isinstance(environment, StackEnvironment)
        fleet = environment.create_deployment(tmp_path / "study", lambda _: None)
        fleet.lock_hosts()
        try:
            with pytest.raises(DeployFailed, match="volume without a name at /var/data"):
                fleet.deploy(environment.space.complete_without_repair({}).settings)
        finally:
            fleet.restore()
        assert identifier() == first
    finally:
        volumes = [m["Name"] for c in ("web", "other")
                   for m in json.loads(podman("inspect", f"{PROJECT}_{c}_1"))[0]["Mounts"]
                   if m["Type"] == "volume"]  # fmt: skip
        podman("rm", "-f", "-t", "1", f"{PROJECT}_web_1", f"{PROJECT}_other_1")
        podman("volume", "rm", "-f", *volumes)
        podman("rmi", "-f", of_image)
