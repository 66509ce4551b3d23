"""The shipped lab, exported in each format and applied: its hosts have files of an administrator."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.environments.stack import StackEnvironment, prepare
from autotune.export.writer import write_export
from autotune.lab.target_labs import remove_target_lab, start_target_lab
from autotune.masking import has_placeholder
from autotune.report.studies import open_study
from autotune.study import trial_context
from autotune.study.study_state import Phase
from autotune.target.read_target import read_target
from autotune.transports.base import Transport
from tests.deploy.lab import News
from tests.lab.shared import NETWORK

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(1800)]
SHIPPED = Path(__file__).parents[2] / "targets" / "lab.yaml"
EDITED = "/etc/nginx/nginx.conf"
LOG = "/var/log/nginx/access.log"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackEnvironment]:
    directory = tmp_path_factory.mktemp("shipped")
    target, lab = directory / "lab.yaml", directory / "lab"
    text = SHIPPED.read_text().replace("198.18.0.", f"{NETWORK}.")
    target.write_text(re.sub(r"ssh: \{config: .*\}", f"ssh: {{config: {lab}/ssh_config}}", text))
    try:
        start_target_lab(target, lab)
        bed = prepare(read_target(target))
        yield bed
        for transport in bed.transports.values():
            transport.close()
    finally:
        remove_target_lab(str(target), lab)


@pytest.fixture(scope="module")
def exports(bed: StackEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories ``FORMAT-TRIAL``: what is recommended for each deployment of the lab."""
    directory = tmp_path_factory.mktemp("exports")
    study = directory / "lab"
    presets = [bed.space.preset_settings("recommended", each) for each in bed.space.deployments]
    with trial_context.open_session(bed, study, News()) as bench:  # type: ignore[arg-type]  # takes every call
        trial_context.begin_study(bed, bench, study)
        for phase, settings in ((Phase.BASELINE, {}), *((Phase.RECOMMENDED, p) for p in presets)):
            candidate = bed.space.build_candidate(settings)
            trial = bench.store.begin_trial(phase, candidate)
            bench.store.record_deployment(trial, bench.session.fleet.deploy(candidate.settings))
    for number in range(1, len(presets) + 1):
        for name in ("ansible", "shell", "patch"):
            write_export(open_study(study), directory / f"{name}-{number}", name, str(number))
    return directory


def run(transport: Transport, script: Path, *options: str) -> str:
    argv = ["sh", "-s", "--", *options]
    done = transport.run(argv, input=script.read_bytes(), timeout=240.0)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(transport: Transport, path: str = EDITED) -> str:
    return transport.run(["cat", path], timeout=60.0).stdout


def test_masked_words_are_in_no_export(exports: Path) -> None:
    texts = [path.read_bytes() for path in exports.rglob("*") if path.is_file() and "-" in str(path)
             and path.relative_to(exports).parts[0] != "lab"]  # fmt: skip
    assert any(map(has_placeholder, texts))
    assert not any(f"access_log {LOG}".encode() in text for text in texts)


@pytest.mark.parametrize("host", ["lb1", "web1"])
def test_scripts_and_patches_edit_the_same_lines(
    bed: StackEnvironment, exports: Path, host: str
) -> None:
    transport, script = bed.transports[host], exports / "shell-1" / "shell" / f"{host}.sh"
    before = read(transport)
    assert LOG not in run(transport, script, "--check")
    run(transport, script)
    after = read(transport)
    assert f"access_log {LOG} combined buffer=64k flush=5s;" in after
    backup = transport.run(
        ["sh", "-c", "ls -d /var/backups/autotune-*"], timeout=60.0
    ).stdout.split()[-1]
    run(transport, script, "--restore", backup)
    assert read(transport) == before
    patch = run(transport, exports / "patch-1" / "patch" / f"{host}.patch.sh").encode()
    for options, content in (("", after), ("--reverse", before)):
        argv = ["sh", "-c", f"patch -p1 -d / {options}"]
        assert transport.run(argv, input=patch, timeout=60.0).returncode == 0
        assert read(transport) == content


def test_the_role_configures_every_host(bed: StackEnvironment, exports: Path) -> None:
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [playbook, "-i", "inventory.yml", "site.yml", "--diff"],
        cwd=exports / "ansible-1" / "ansible", capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert LOG not in done.stdout
    for host in ("lb1", "web1", "web2", "cache1", "store1"):
        script = exports / "shell-1" / "shell" / f"{host}.sh"
        assert run(bed.transports[host], script, "--check") == ""
