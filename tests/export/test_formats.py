"""Exports in the terms of other tools, from a study of the modelled chain."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.deploy.backup import SYSCTL_FILE
from autotune.deploy.deploy_result import OriginalHost
from autotune.deploy.host_state import format_sysctl_file
from autotune.errors import AutotuneError
from autotune.export import ansible as role
from autotune.export.host_files import MODEL_NOTICE, ExportedHosts, list_changed_hosts
from autotune.export.scripts import export_patch
from autotune.export.writer import ALL_FORMATS, build_export, write_export
from autotune.report.studies import Study, open_study
from autotune.study.study_state import Phase
from autotune.target.model import Host, Ssh

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parents[1] / "report" / "studies"
PATCH = "--- a/sites-enabled/site\n+++ b/sites-enabled/site\n@@ -1 +1 @@\n-old\n+new\n"


def exported(study: Study, fmt: str, *, everything: bool = True) -> dict[str, bytes]:
    return build_export(study, study.state.find_trial(1), fmt, include_unchanged=everything)


def written(content: dict[str, bytes], directory: Path) -> None:
    for path, data in content.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def document(content: dict[str, bytes], path: str) -> Any:
    """Tasks of blocks are among the others."""
    loaded = YAML(typ="safe").load(content[f"ansible/{path}"].decode())
    if "/tasks/" not in path:
        return loaded
    return [task for entry in loaded
            for task in (*entry.get("block", [entry]), *entry.get("rescue", ()))]  # fmt: skip


def scripted(task: dict[str, Any]) -> list[str]:
    """The words of a task that runs the script of its host; none for any other task."""
    command = task.get("ansible.builtin.command", {})
    return command["argv"][3:] if "stdin" in command else []


def test_the_role_writes_every_file_of_every_host_with_the_script_of_the_host(
    modelled: Study,
) -> None:
    content, scripts = exported(modelled, "ansible"), exported(modelled, "shell")
    places = [path.removeprefix("files/").partition("/")
              for path in exported(modelled, "files") if path.startswith("files/")]  # fmt: skip
    groups = document(content, "inventory.yml")["all"]["children"]
    for tier, group in groups.items():
        tasks = document(content, f"roles/autotune/tasks/{tier}.yml")
        written = [words[3] for words in map(scripted, tasks) if "--write" in " ".join(words)]
        kernel_tasks = [task for task in tasks if scripted(task)[3:] == [SYSCTL_FILE]]
        assert all(role.LOAD_KERNEL_HANDLER in task["notify"] for task in kernel_tasks)
        for host in group["hosts"]:
            script = content[f"ansible/roles/autotune/files/{host}.sh"]
            assert script == scripts[f"shell/{host}.sh"]
            files = [f"/{path}" for part, _, path in places if f".{host}." in part]
            files += [SYSCTL_FILE] if SYSCTL_FILE in scripts[f"shell/{host}.sh"].decode() else []
            assert sorted(written) == sorted(files)


def test_every_handler_that_is_notified_is_there_and_no_other(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    known = {handler["name"] for handler in document(content, "roles/autotune/handlers/main.yml")}
    tasks = [t for tier in modelled.target.tiers
             for t in document(content, f"roles/autotune/tasks/{tier}.yml")]  # fmt: skip
    notified = {name for task in tasks for name in task.get("notify", [])}
    assert notified == known
    scripts = [data.decode() for path, data in content.items() if path.endswith(".sh")]
    assert any(re.search(r"(?m)^  validate '?[ \d]+'? \S*(nginx|apache)", text) for text in scripts)


def test_a_unit_is_reloaded_where_that_is_all_it_needs(modelled: Study) -> None:
    trial = modelled.state.find_trial(1)
    every = list_changed_hosts(modelled, trial, include_unchanged=True)
    files = tuple(replace(file, units=dict.fromkeys(file.units, "reload"), original="0" * 64)
                  for file in every.files)  # fmt: skip
    before = {host: OriginalHost(units=units) for host, units in every.units.items()}
    running = ExportedHosts(files, every.units, {host: {} for host in every.units}, before)
    stopped = replace(running, before={h: OriginalHost() for h in before})
    restarting = replace(running, files=tuple(
        replace(file, units=dict.fromkeys(file.units, "restart")) for file in files))  # fmt: skip
    for hosts, reloads in ((running, True), (stopped, False), (restarting, False)):
        content = role.export_ansible(modelled, trial, hosts)
        handlers = document(content, "roles/autotune/handlers/main.yml")
        states = {h["ansible.builtin.systemd_service"]["state"] for h in handlers}
        names = {handler["name"].partition(" ")[0] for handler in handlers}
        assert names == ({"Reload"} if reloads else {"Restart"})
        expected = "{{ 'restarted' if autotune_overwrite | bool else 'reloaded' }}"
        assert states == {expected if reloads else "restarted"}
        notified = {name for tier in modelled.target.tiers
                    for task in document(content, f"roles/autotune/tasks/{tier}.yml")
                    for name in task.get("notify", [])}  # fmt: skip
        assert notified == {handler["name"] for handler in handlers}


def test_the_role_needs_nothing_but_ansible_core(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    modules = {key for path in content if "/tasks/" in path or "/handlers/" in path
               for task in document(content, path.removeprefix("ansible/"))
               for key in task if "." in key}  # fmt: skip
    assert modules
    assert all(re.fullmatch(r"ansible\.builtin\.\w+", module) for module in modules)
    assert b"ansible.builtin" in content["README.md"]


def test_a_host_of_two_tiers_has_tasks_of_its_own(
    modelled: Study,
) -> None:
    """The cache beside one of two web hosts: memcached is not started on the other."""
    of_one = list_changed_hosts(modelled, modelled.state.find_trial(1), include_unchanged=True)
    cache = [replace(file, host="web1") for file in of_one.list_files("mc1")]
    second = [replace(file, host="web2") for file in of_one.list_files("web1")]
    units, kernel = of_one.units, of_one.sysctls["web1"]
    both = ExportedHosts(
        (
            *of_one.list_files("lb1"),
            *of_one.list_files("db1"),
            *of_one.list_files("web1"),
            *cache,
            *second,
        ),
        {**units, "web1": {**units["web1"], **units["mc1"]}, "web2": units["web1"]},
        {**of_one.sysctls, "web2": kernel},
    )
    tiers = dict(modelled.target.tiers)
    tiers["web"] = tiers["web"].model_copy(update={"hosts": ("web1", "web2")})
    tiers["cache"] = tiers["cache"].model_copy(update={"hosts": ("web1",)})
    every = {**modelled.target.hosts, "web2": modelled.target.hosts["web1"]}
    target = modelled.target.model_copy(update={"tiers": tiers, "hosts": every})
    study = replace(modelled, target=target)
    content = role.export_ansible(study, modelled.state.find_trial(1), both)
    for name, runs in (("web1", True), ("web2", False)):
        assert (
            b"Run memcached.service" in content[f"{role.ROLE_DIRECTORY}/tasks/{name}.yml"]
        ) == runs
    included = {task["ansible.builtin.include_tasks"]: task["when"]
                for task in document(content, "roles/autotune/tasks/main.yml")}  # fmt: skip
    assert included == {
        "web1.yml": "inventory_hostname in ['web1']",
        "web2.yml": "inventory_hostname in ['web2']",
        "store.yml": "inventory_hostname in ['db1']",
        "lb.yml": "inventory_hostname in ['lb1']",
    }


def test_the_servers_of_a_load_balancer_change_before_it(modelled: Study) -> None:
    (play,) = document(exported(modelled, "ansible"), "site.yml")
    order = play["hosts"].split(":")
    assert sorted(order) == sorted(modelled.target.tiers)
    for name, tier in modelled.target.tiers.items():
        assert all(order.index(other) < order.index(name) for other in tier.required_tiers)


def test_the_role_validates_and_backs_up_before_it_changes_anything(modelled: Study) -> None:
    content = exported(modelled, "ansible")
    for tier in modelled.target.tiers:
        loaded = YAML(typ="safe").load(content[f"ansible/roles/autotune/tasks/{tier}.yml"].decode())
        requests = [scripted(task)[1:2] for task in loaded if "block" not in task]
        assert requests == [["--check"], [], ["--prepare"]]
        (block,) = [task for task in loaded if "block" in task]
        assert scripted(block["rescue"][0])[1] == "--restore"


def test_hosts_are_reached_as_the_target_reaches_them(modelled: Study) -> None:
    hosts = {
        **modelled.target.hosts,
        "web1": Host(address="web1.example", user="tuner", port=2222),
        "db1": Host(transport="local"),
    }
    ssh = Ssh(config="keys/ssh config")
    target = modelled.target.model_copy(update={"hosts": hosts, "ssh": ssh})
    study, trial = replace(modelled, target=target), modelled.state.find_trial(1)
    content = role.export_ansible(study, trial, list_changed_hosts(study, trial))
    found = document(content, "inventory.yml")["all"]
    config = modelled.target_path.parent / "keys" / "ssh config"
    assert found["vars"] == {"ansible_ssh_common_args": f"-F '{config}'"}
    assert found["children"]["web"]["hosts"]["web1"] == {
        "ansible_host": "web1.example", "ansible_user": "tuner", "ansible_port": 2222,
    }  # fmt: skip
    assert found["children"]["store"]["hosts"]["db1"] == {"ansible_connection": "local"}


def test_an_ssh_configuration_is_not_taken_from_someone_elses_study(
    modelled: Study, tmp_path: Path
) -> None:
    directory = tmp_path / "studies" / "stranger"
    shutil.copytree(modelled.directory, directory)
    (directory / "seal").unlink()
    target = modelled.target.model_copy(update={"ssh": Ssh(config="/tmp/theirs")})
    study, trial = replace(open_study(directory), target=target), modelled.state.find_trial(1)
    with pytest.raises(AutotuneError, match="was chosen by the author of the study"):
        role.export_ansible(study, trial, list_changed_hosts(study, trial))


def test_an_ssh_configuration_is_not_taken_from_a_directory_of_studies(modelled: Study) -> None:
    """It is a file of the study, whose content has no seal."""
    path = modelled.directory.parent / "other" / "config"
    target = modelled.target.model_copy(update={"ssh": Ssh(config=str(path))})
    study, trial = replace(modelled, target=target), modelled.state.find_trial(1)
    with pytest.raises(AutotuneError, match="is in the directory of studies"):
        role.export_ansible(study, trial, list_changed_hosts(study, trial))


@pytest.mark.parametrize("everything", [False, True])
def test_the_role_passes_ansible_lint(everything: bool, modelled: Study, tmp_path: Path) -> None:
    written(exported(modelled, "ansible", everything=everything), tmp_path)
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
        contents = set(re.findall(r"<<'AUTOTUNE'\n(.*?)AUTOTUNE\n", text, re.S))
        mine = {data.decode() for path, data in files.items() if f".{Path(name).stem}." in path}
        assert mine <= contents


def differing(study: Study) -> tuple[set[tuple[str, str]], dict[str, set[str]]]:
    """What trial 1 has otherwise than the baseline, from the journal and the files alone."""
    trees = [{path.relative_to(top).as_posix(): path.read_bytes()
              for path in top.rglob("*") if path.is_file()}
             for top in (study.directory / "configs" / number for number in "01")]  # fmt: skip
    paths = {path for path in trees[1] if trees[0].get(path) != trees[1][path]}
    files = {(path.split(".")[1], path.partition("/")[2]) for path in paths}
    deployed = {r["trial"]: r["hosts"] for r in study.records if r["event"] == "deployed"}
    kernel = {host: {name for name, value in of_host["sysctls"].items()
                     if value != deployed[0][host]["sysctls"].get(name)}
              for host, of_host in deployed[1].items()}  # fmt: skip
    return files, {host: names for host, names in kernel.items() if names}


@pytest.mark.parametrize("fmt", ["ansible", "shell", "patch"])
def test_only_what_changed_is_exported(fmt: str, modelled: Study) -> None:
    files, kernel = differing(modelled)
    content = exported(modelled, fmt, everything=False)
    hosts = json.loads(content["manifest.json"])["hosts"]
    assert {(host, file["path"].removeprefix("/")) for host, entry in hosts.items()
            for file in entry["files"]} == files  # fmt: skip
    assert {h: set(entry["sysctls"]) for h, entry in hosts.items() if entry["sysctls"]} == kernel
    assert set(hosts) == {host for host, _ in files} | set(kernel)
    text = b"".join(content.values()).decode()
    deployed = list_changed_hosts(modelled, modelled.state.find_trial(1), include_unchanged=True)
    every = set().union(*deployed.sysctls.values())
    for name in every - set().union(*kernel.values()):
        assert f"{name} = " not in text


def test_a_change_of_one_directive_touches_its_file_and_its_unit(modelled: Study) -> None:
    """As `explain --measure` leaves it: the baseline with one change of the winner's."""
    baseline = modelled.state.find_trial(0)
    study = replace(modelled, directory=modelled.directory.with_name("minimal"))
    shutil.copytree(modelled.directory, study.directory)
    place = "web.web1.apache/etc/apache2/apache2.conf"
    shutil.copytree(study.directory / "configs/0", study.directory / "configs/99")
    text = (study.directory / "configs/99" / place).read_text()
    changed = re.sub(r"(?m)^MaxRequestWorkers \d+", "MaxRequestWorkers 7", text)
    (study.directory / "configs/99" / place).write_text(changed)
    digests = {**baseline.files, place: sha256(changed.encode()).hexdigest()}
    record = next(r for r in study.records if r["event"] == "deployed" and r["trial"] == 0)
    study = replace(study, records=(*study.records, {**record, "trial": 99}))
    hosts = list_changed_hosts(study, replace(baseline, number=99, files=digests))
    assert [(file.host, file.path) for file in hosts.files] == [
        ("web1", "/etc/apache2/apache2.conf")
    ]
    assert hosts.units == {"web1": {"apache2.service": True}}
    assert hosts.sysctls == {"web1": {}}


def test_a_patch_makes_the_exported_of_the_baselines_files(modelled: Study, tmp_path: Path) -> None:
    content = exported(modelled, "patch", everything=False)
    files, _ = differing(modelled)
    for host in {host for host, _ in files}:
        root = tmp_path / host
        for path in (modelled.directory / "configs/0").glob(f"*.{host}.*"):
            shutil.copytree(path, root, dirs_exist_ok=True)
        patch = content[f"patch/{host}.patch"]
        subprocess.run(["patch", "-p1", "-d", str(root)], input=patch, check=True)
        for path in (modelled.directory / "configs/1").glob(f"*.{host}.*"):
            for file in (file for file in path.rglob("*") if file.is_file()):
                assert (root / file.relative_to(path)).read_bytes() == file.read_bytes()


def run_readme(
    readme: str, directory: Path, *, safe: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run the README's commands for a host, whose files are in ``directory`` / root."""
    (commands,) = re.findall(r"```sh\n(sh HOST\.paths\.sh.*?)```", readme, re.DOTALL)
    (directory / "HOST.paths.sh").write_text(f"exit {0 if safe else 1}\n")
    (directory / "HOST.patch").write_text(PATCH)
    commands = commands.replace("-d / ", f"-d {directory}/root ")
    commands = re.sub(r"/var/backups/[\w.-]+", f"{directory}/kept", commands)
    return subprocess.run(
        ["sh", "-c", commands], cwd=directory, capture_output=True, text=True, check=False
    )


def test_a_patch_is_applied_with_a_backup_elsewhere(modelled: Study, tmp_path: Path) -> None:
    """nginx loads each file in `sites-enabled`. `sha256sum --check` refuses an empty list."""
    readme = exported(modelled, "patch")["README.md"].decode()
    place = tmp_path / "root" / "sites-enabled"
    place.mkdir(parents=True)
    (place / "site").write_text("old\n")
    (tmp_path / "HOST.sha256").write_text("# a comment\n")
    done = run_readme(readme, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in place.iterdir()] == ["site"]
    assert (place / "site").read_text() == "new\n"
    assert (tmp_path / "kept" / "sites-enabled" / "site").read_text() == "old\n"
    assert "systemctl daemon-reload" in readme


@pytest.mark.parametrize("safe", [True, False])
def test_a_patch_is_not_applied_after_a_failed_check(
    safe: bool, modelled: Study, tmp_path: Path
) -> None:
    readme = exported(modelled, "patch")["README.md"].decode()
    place = tmp_path / "root" / "sites-enabled"
    place.mkdir(parents=True)
    (place / "site").write_text("old\n")
    digest = sha256(b"changed\n" if safe else b"old\n").hexdigest()
    (tmp_path / "HOST.sha256").write_text(f"{digest}  {place / 'site'}\n")
    assert run_readme(readme, tmp_path, safe=safe).returncode != 0
    assert (place / "site").read_text() == "old\n"


def test_a_file_whose_original_is_not_recorded_is_not_created(modelled: Study) -> None:
    hosts = list_changed_hosts(modelled, modelled.state.find_trial(1), include_unchanged=True)
    file = replace(hosts.files[0], path="/etc/other.conf", original="0" * 64)
    changed = replace(hosts, files=(file,), units={file.host: hosts.units[file.host]})
    with pytest.raises(AutotuneError, match=r"the original content of /etc/other\.conf"):
        export_patch(modelled, modelled.state.find_trial(1), changed)


def test_a_models_export_says_so_everywhere_and_is_asked_for(
    modelled: Study, tmp_path: Path
) -> None:
    with pytest.raises(AutotuneError, match="measured a model") as raised:
        write_export(modelled, tmp_path / "out", "ansible", "1")
    assert "--of-a-model" in (raised.value.hint or "")
    for fmt in ALL_FORMATS:
        out = tmp_path / fmt
        for path in write_export(modelled, out, fmt, "1", allow_simulated=True):
            if "files" in path.parts:
                continue  # a configuration file, byte for byte what was deployed
            text = (out / path).read_text()
            assert MODEL_NOTICE in text or "simulated" in text, path


def test_the_readme_of_a_model_names_no_command_that_refuses_it(modelled: Study) -> None:
    readme = exported(modelled, "files")["README.md"].decode()
    assert "\nautotune apply" not in readme
    assert "`autotune apply` refuses this export" in readme


@pytest.mark.parametrize("fmt", ["files", "ansible", "shell", "patch"])
def test_a_baseline_that_was_never_deployed_hinders_no_export(
    fmt: str, modelled: Study, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(modelled.directory, tmp_path / "study"))
    shutil.rmtree(directory / "configs/0")
    trials = tuple(
        replace(trial, peak=None, failure="it does not start", effective={}, files={})
        if trial.phase is Phase.BASELINE else trial
        for trial in modelled.state.trials
    )  # fmt: skip
    study = replace(modelled, directory=directory, state=replace(modelled.state, trials=trials))
    content = build_export(study, study.state.find_trial(1), fmt)
    assert any(path.startswith(f"{fmt}/") for path in content)


def test_nothing_changed_is_nothing_to_export(modelled: Study) -> None:
    for fmt in ("ansible", "shell", "patch"):
        with pytest.raises(AutotuneError, match="changes nothing on its hosts") as raised:
            build_export(modelled, modelled.state.find_trial(0), fmt)
        assert "--all" in (raised.value.hint or "")


def test_private_processes_have_no_hosts_to_configure() -> None:
    study = open_study(RECORDED / "improved")
    for fmt in ("ansible", "shell"):
        with pytest.raises(AutotuneError) as raised:
            build_export(study, study.state.find_trial(1), fmt)
        assert "private processes" in raised.value.message


def test_kernel_values_as_sysctl_reads_them() -> None:
    content = format_sysctl_file({"net.ipv4.ip_local_port_range": "1024 65535"})
    assert content.endswith(b"net.ipv4.ip_local_port_range = 1024 65535\n")


def test_kernel_values_override_those_of_the_distribution(modelled: Study) -> None:
    """Debian 12 reads /etc/sysctl.conf as 99-sysctl.conf, and `sysctl --system` reads it last."""
    scripts = {path: data.decode() for path, data in exported(modelled, "shell").items()}
    kernel_files = {file for text in scripts.values()
                    for file in re.findall(r"/etc/sysctl\.d/[\w.-]+", text)}  # fmt: skip
    assert kernel_files == {SYSCTL_FILE}
    assert SYSCTL_FILE > "/etc/sysctl.d/99-sysctl.conf"
    readme = exported(modelled, "patch")["README.md"].decode()
    assert f"`sysctl --load {SYSCTL_FILE}`" in readme


def test_the_role_has_the_licence_of_the_project(modelled: Study) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    meta = document(exported(modelled, "ansible"), "roles/autotune/meta/main.yml")
    assert meta["galaxy_info"]["license"] == project["license"]
