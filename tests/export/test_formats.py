"""Exports in the terms of other tools, from a study of the modelled chain."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.errors import AutotuneError
from autotune.export import ansible as role
from autotune.export.host_files import SYSCTL_FILE, Hosts, hosts_of, kernel_file
from autotune.export.write import export_files
from autotune.report.studies import Study, open_study
from autotune.target.model import Host, Ssh

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parents[1] / "report" / "studies"


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A short study of targets/paper.yaml, whose files are those of real hosts."""
    directory = tmp_path_factory.mktemp("exports")
    text = (ROOT / "targets" / "paper.yaml").read_text()
    target = directory / "short.yaml"
    target.write_text(re.sub(r"budget: .*", "budget: {trials: 3, time: 20m}", text))
    argv = [sys.executable, "-m", "autotune", "run", str(target), "--yes", "--json"]
    subprocess.run(argv, cwd=directory, check=True, capture_output=True, timeout=200)
    return open_study(directory / "studies" / "paper")


def exported(study: Study, fmt: str) -> dict[str, bytes]:
    return export_files(study, study.state.by_number(1), fmt)


def written(content: dict[str, bytes], directory: Path) -> None:
    for path, data in content.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def document(content: dict[str, bytes], path: str) -> Any:
    return YAML(typ="safe").load(content[f"ansible/{path}"].decode())


def test_the_role_copies_every_file_of_every_host(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    for path, data in exported(modelled, "files").items():
        if path.startswith("files/"):
            part, _, place = path.removeprefix("files/").partition("/")
            host = part.split(".")[1]
            assert content[f"ansible/roles/autotune/files/{host}/{place}"] == data
    groups = document(content, "inventory.yml")["all"]["children"]
    for tier, group in groups.items():
        for task in document(content, f"roles/autotune/tasks/{tier}.yml"):
            if copy := task.get("ansible.builtin.copy"):
                for host in group["hosts"]:
                    source = copy["src"].replace("{{ inventory_hostname }}", host)
                    assert f"ansible/roles/autotune/files/{source}" in content
                    assert re.search(r"\b0[0-7]{3}\b", copy["mode"])


def test_every_handler_that_is_notified_is_there_and_no_other(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    known = {handler["name"] for handler in document(content, "roles/autotune/handlers/main.yml")}
    tasks = [t for tier in modelled.target.tiers
             for t in document(content, f"roles/autotune/tasks/{tier}.yml")]  # fmt: skip
    notified = {name for task in tasks for name in task.get("notify", [])}
    assert notified == known
    copies = [t["ansible.builtin.copy"] for t in tasks if "ansible.builtin.copy" in t]
    checks = [copy["validate"] for copy in copies if "validate" in copy]
    assert checks
    assert all(" %s" in check for check in checks)


def test_the_role_needs_nothing_but_ansible_core(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    modules = {key for path in content if "/tasks/" in path or "/handlers/" in path
               for task in document(content, path.removeprefix("ansible/"))
               for key in task if "." in key}  # fmt: skip
    assert modules
    assert all(re.fullmatch(r"ansible\.builtin\.\w+", module) for module in modules)
    assert b"ansible.builtin" in content["ansible/README.md"]


def test_the_role_leaves_owners_and_bits_of_what_is_there(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    for task in document(content, "roles/autotune/tasks/store.yml"):
        if (file := task.get("ansible.builtin.file")) and file["state"] == "directory":
            assert re.fullmatch(r"not autotune_found\.results\[\d+\]\.stat\.exists", task["when"])
        if (copy := task.get("ansible.builtin.copy")) and copy["dest"] != SYSCTL_FILE:
            assert "owner" not in copy
            assert ".stat.mode | default('0644')" in copy["mode"]
    for path, data in exported(modelled, "shell").items():
        if path.startswith("shell/"):
            assert b'chown --reference="$1" "$1$staged"' in data


def test_a_host_of_two_tiers_has_tasks_of_its_own(
    modelled: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache beside one of two web hosts: memcached is not started on the other."""
    of_one = hosts_of(modelled, modelled.state.by_number(1))
    cache = [replace(file, host="web1") for file in of_one.of("mc1")]
    second = [replace(file, host="web2") for file in of_one.of("web1")]
    units, kernel = of_one.units, of_one.sysctls["web1"]
    both = Hosts(
        (*of_one.of("lb1"), *of_one.of("db1"), *of_one.of("web1"), *cache, *second),
        {**units, "web1": {**units["web1"], **units["mc1"]}, "web2": units["web1"]},
        {**of_one.sysctls, "web2": kernel},
    )
    tiers = dict(modelled.target.tiers)
    tiers["web"] = tiers["web"].model_copy(update={"hosts": ("web1", "web2")})
    tiers["cache"] = tiers["cache"].model_copy(update={"hosts": ("web1",)})
    every = {**modelled.target.hosts, "web2": modelled.target.hosts["web1"]}
    target = modelled.target.model_copy(update={"tiers": tiers, "hosts": every})
    monkeypatch.setattr(role, "hosts_of", lambda *_: both)
    content = role.ansible(replace(modelled, target=target), modelled.state.by_number(1))
    for name, runs in (("web1", True), ("web2", False)):
        assert (b"Run memcached.service" in content[f"{role.ROLE}/tasks/{name}.yml"]) == runs
    included = {task["ansible.builtin.include_tasks"]: task["when"]
                for task in document(content, "roles/autotune/tasks/main.yml")}  # fmt: skip
    assert included == {
        "web1.yml": "inventory_hostname in ['web1']",
        "web2.yml": "inventory_hostname in ['web2']",
        "store.yml": "inventory_hostname in ['db1']",
        "lb.yml": "inventory_hostname in ['lb1']",
    }


def test_hosts_are_reached_as_the_target_reaches_them(modelled: Study) -> None:
    hosts = {
        **modelled.target.hosts,
        "web1": Host(address="web1.example", user="tuner", port=2222),
        "db1": Host(transport="local"),
    }
    ssh = Ssh(config="keys/ssh config")
    target = modelled.target.model_copy(update={"hosts": hosts, "ssh": ssh})
    content = role.ansible(replace(modelled, target=target), modelled.state.by_number(1))
    found = document(content, "inventory.yml")["all"]
    config = modelled.source.parent / "keys" / "ssh config"
    assert found["vars"] == {"ansible_ssh_common_args": f"-F '{config}'"}
    assert found["children"]["web"]["hosts"]["web1"] == {
        "ansible_host": "web1.example", "ansible_user": "tuner", "ansible_port": 2222,
    }  # fmt: skip
    assert found["children"]["store"]["hosts"]["db1"] == {"ansible_connection": "local"}


def test_the_role_passes_ansible_lint(modelled: Study, tmp_path: Path) -> None:
    written(exported(modelled, "ansible"), tmp_path)
    lint = Path(sys.executable).with_name("ansible-lint")
    done = subprocess.run(
        [str(lint), "--offline", "--profile", "production", "--nocolor"],
        cwd=tmp_path / "ansible",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_script_carries_every_file_of_its_host(modelled: Study) -> None:
    scripts = exported(modelled, "shell")
    names = {path for path in scripts if path.startswith("shell/")}
    assert names == {f"shell/{host}.sh" for host in modelled.target.hosts}
    files = exported(modelled, "files")
    for name in names:
        text = scripts[name].decode()
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
        packed = re.findall(r"<<'AUTOTUNE'\n(.*?)\nAUTOTUNE\n", text, re.S)
        contents = {base64.b64decode(block) for block in packed}
        mine = {data for path, data in files.items() if f".{Path(name).stem}." in path}
        assert mine <= contents


def test_a_script_puts_back_what_it_replaced_when_a_service_fails(
    modelled: Study, tmp_path: Path
) -> None:
    root, tools = tmp_path / "root", tmp_path / "bin"
    script = exported(modelled, "shell")["shell/mc1.sh"].decode()
    script = re.sub(r"(?<![\w.])(/etc\b|/var/backups)", lambda m: f"{root}{m[1]}", script)
    script = script.replace("chown root:root", ": chown")
    conf = root / "etc" / "memcached.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("as it was\n")
    tools.mkdir()
    (tools / "systemctl").write_text('#!/bin/sh\n[ "$1" != restart ]\n')
    (tools / "sysctl").write_text("#!/bin/sh\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    path = f"{tools}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = subprocess.run(
        ["sh"], input=script, text=True, env={"PATH": path}, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert "everything is put back" in done.stderr
    assert conf.read_text() == "as it was\n"
    assert not list(root.rglob("*.autotune-new"))
    assert not (root / "etc/sysctl.d/99-autotune.conf").exists()


def test_private_processes_have_no_hosts_to_configure() -> None:
    study = open_study(RECORDED / "improved")
    for fmt in ("ansible", "shell"):
        with pytest.raises(AutotuneError) as raised:
            export_files(study, study.state.by_number(1), fmt)
        assert "private processes" in raised.value.message


def test_kernel_values_as_sysctl_reads_them() -> None:
    content = kernel_file({"net.ipv4.ip_local_port_range": "1024 65535"})
    assert content.endswith(b"net.ipv4.ip_local_port_range = 1024 65535\n")


def test_the_role_has_the_licence_of_the_project(modelled: Study) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    meta = document(exported(modelled, "ansible"), "roles/autotune/meta/main.yml")
    assert meta["galaxy_info"]["license"] == project["license"]
