"""`measure --tier cache` on the shipped topology, with a mutilate of the user's own on its load host.

`scripts/build-mutilate SOURCE build/bin/mutilate` makes it; `AUTOTUNE_MUTILATE` names another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.lab.lifecycle import build_ssh_host, remove_lab, start_lab
from autotune.lab.plan import derive_names
from autotune.lab.target_labs import build_lab_hosts
from autotune.loads import memcaslap, mutilate
from autotune.target.read_target import read_target
from autotune.transports.ssh import SshTransport

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(3600)]
SHIPPED = (Path(__file__).parents[2] / "targets" / "lab.yaml").read_text()
CHANGES = (
    ("198.18.0.", "198.19.31."),
    ("/var/lib/autotune/labs/lab/ssh_config", "CONFIG"),
    ("pairs: 100000", "pairs: 2000"),
    ("\ntiers:\n", "\nreplace: true\ntiers:\n"),
)
AT_ONCE = f"{memcaslap.CACHE_SHAPES[0].name}, 100 at once"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    path, lab = tmp_path / "ceilings.yaml", tmp_path / "lab"
    text = SHIPPED
    for change in CHANGES:
        assert change[0] in text
        text = text.replace(*change)
    path.write_text(text.replace("CONFIG", str(derive_names(lab).ssh_config)))
    try:
        start_lab(build_lab_hosts(read_target(path).target), lab)
        yield path
    finally:
        remove_lab(lab)


def measured(target: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "measure", str(target), "--tier", "cache", "--json",
         "--yes", "--studies", str(target.parent / "studies")],
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    ceilings: list[dict[str, Any]] = json.loads(done.stdout)["ceilings"]
    return ceilings


def test_the_caches_alone_carry_more_than_the_chain_asks_of_them(target: Path) -> None:
    program = Path(os.environ.get("AUTOTUNE_MUTILATE", "build/bin/mutilate"))
    assert program.exists(), "build one: scripts/build-mutilate SOURCE build/bin/mutilate"
    load = SshTransport(build_ssh_host(target.parent / "lab", "load1"))
    try:
        load.put(program.read_bytes(), "/usr/local/bin/mutilate", mode=0o755)
        peaks = measured(target)
        assert [peak["objects"] for peak in peaks] == [
            *(shape.name for shape in mutilate.CACHE_SHAPES), AT_ONCE]  # fmt: skip
        for peak in peaks:
            print(peak)
            assert peak["failed"] is None, peak
            assert peak["rate"] > 0
        assert all("mutilate" in peak["how"] for peak in peaks[:-1])

        load.run(("sh", "-c", ": >/etc/resolv.conf"))
        refused, *others = measured(target)
        assert "`nameserver 127.0.0.1`" in refused["failed"]
        assert [other["objects"] for other in others] == [
            *(shape.name for shape in memcaslap.CACHE_SHAPES), AT_ONCE]  # fmt: skip
        assert all(other["failed"] is None for other in others), others
    finally:
        load.close()
