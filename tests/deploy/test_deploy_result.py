"""What a deployment records of its files: digests of the host's own, and lines without their words."""

from __future__ import annotations

import dataclasses
import json
from hashlib import sha256
from pathlib import Path

import pytest

from autotune.deploy.deploy_result import DeployedFile, HostRecord, build_host_records
from autotune.deploy.desired_state import DesiredState
from autotune.deploy.host_state import FileState, HostState
from autotune.masking import mask_secret_bytes
from autotune.services.base import AdoptedConfig, ConfigFile
from autotune.unified_diff import Hunk
from tests.deploy.test_desired_state import CONF, wanted

SECRET = "hunter2hunter2"
REAL = f"""\
# the key is {SECRET}
events {{
    worker_connections 768;
}}
http {{
    proxy_set_header X-Key {SECRET};
}}
"""
TUNED = REAL.replace("768", "2000")


def edited(directory: Path, real: str, tuned: str) -> tuple[DesiredState, HostState]:
    """A deployment that edits the balancer's own file, and the host before it."""
    desired = wanted(directory)
    own = AdoptedConfig((ConfigFile(CONF, "own.j2"),), "")
    parts = tuple(
        dataclasses.replace(part, placement=dataclasses.replace(part.placement, adopted=own))
        if part.name == "lb.lb1.nginx" else part for part in desired.instances
    )  # fmt: skip
    with_own = dataclasses.replace(desired, instances=parts)
    shown = mask_secret_bytes(tuned.encode(), with_own.find_outliner("lb1", CONF))
    state = desired.hosts["lb1"]
    files = {**state.files, CONF: FileState(tuned.encode())}
    rendered = {**desired.rendered_files, "lb.lb1.nginx": {CONF: shown}}
    hosts = {**desired.hosts, "lb1": dataclasses.replace(state, files=files)}
    before = HostState({CONF: FileState(real.encode())})
    return dataclasses.replace(with_own, rendered_files=rendered, hosts=hosts), before


def recorded(desired: DesiredState, before: HostState) -> HostRecord:
    return build_host_records(desired, {"lb1": before})["lb1"]


def test_an_edited_file_has_its_digests_and_its_lines_on_record(tmp_path: Path) -> None:
    record = recorded(*edited(tmp_path, REAL, TUNED))
    hunk = Hunk(3, ("    worker_connections 768;\n",), ("    worker_connections 2000;\n",))
    assert record.files[CONF] == DeployedFile(sha256(TUNED.encode()).hexdigest(), (hunk,))
    assert record.original.files == {CONF: sha256(REAL.encode()).hexdigest()}


def test_no_word_of_the_host_is_on_record(tmp_path: Path) -> None:
    tuned = TUNED.replace("X-Key", "X-Other").replace("the key", "a key")
    record = recorded(*edited(tmp_path, REAL, tuned))
    hunks = record.files[CONF].edits
    assert hunks is not None
    assert [hunk.start_line for hunk in hunks] == [1, 3, 6]
    assert SECRET not in json.dumps(dataclasses.asdict(record))


def test_a_file_that_was_not_there_has_no_edits(tmp_path: Path) -> None:
    desired, _ = edited(tmp_path, REAL, TUNED)
    record = recorded(desired, HostState({CONF: FileState()}))
    assert record.files[CONF].edits is None
    assert record.original.files == {CONF: None}


@pytest.mark.parametrize("is_baseline", [True, False])
def test_the_settings_before_are_on_record_if_the_files_were_the_baselines(
    tmp_path: Path, is_baseline: bool
) -> None:
    desired, before = edited(tmp_path, TUNED, TUNED)
    files = desired.hosts["lb1"].files | {CONF: before.files[CONF]}
    if not is_baseline:
        files |= {CONF: FileState(b"others'\n")}
    record = build_host_records(desired, {"lb1": HostState(files)}, desired)["lb1"]
    settings = record.original.settings
    if not is_baseline:
        assert settings is None
        return
    assert settings is not None
    assert (
        settings["lb.nginx.worker_connections"] == desired.settings["lb.nginx.worker_connections"]
    )
    assert all(name.startswith("lb.") for name in settings)
