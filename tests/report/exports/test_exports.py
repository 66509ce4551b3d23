"""Exports in the terms of other tools, from a study of the modelled chain."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.errors import AutotuneError
from autotune.report.export import export_files
from autotune.report.exports.handed import kernel_file
from autotune.report.studies import Study, open_study

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).parents[1] / "studies"


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
                    assert re.fullmatch("0[0-7]{3}", copy["mode"])


def test_every_handler_that_is_notified_is_there(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    known = {handler["name"] for handler in document(content, "roles/autotune/handlers/main.yml")}
    tasks = [t for tier in modelled.target.tiers
             for t in document(content, f"roles/autotune/tasks/{tier}.yml")]  # fmt: skip
    notified = {name for task in tasks for name in task.get("notify", [])}
    assert notified <= known
    assert {name for name in notified if name.startswith("Restart")}
    copies = [t["ansible.builtin.copy"] for t in tasks if "ansible.builtin.copy" in t]
    checks = [copy["validate"] for copy in copies if "validate" in copy]
    assert checks
    assert all(" %s" in check for check in checks)


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
