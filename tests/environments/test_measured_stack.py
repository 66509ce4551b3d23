"""`autotune measure` of the real local stack: ceilings, what it says and what stays on record."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.environments.stack import prepare
from autotune.report.studies import open_study
from autotune.study.ceiling_records import CacheCeilings
from autotune.study.record_codec import encode
from autotune.target.read_target import read_target
from tests.printed import printed

pytestmark = pytest.mark.stack
# Any machine answers at this rate, so that few readings find it.
MOST = "150/s"
LOCAL = Path(__file__).parents[2] / "targets" / "local.yaml"
# A command whose ceilings take two seconds of load instead of five, because memcaslap occupies all CPUs.
BRIEF = """
import sys
from autotune.cli import main
from autotune.study import ceilings
ceilings.LOAD_SECONDS = 2.0
sys.argv[0] = "autotune"
main()
"""


def measure(*words: str, cwd: Path) -> dict[str, object]:
    # An objective that any machine meets at some load: what is said is tested, not how fast it is.
    patient = cwd / "local.yaml"
    text = LOCAL.read_text().replace("p99: 50ms", "p50: 100ms")
    # No mutilate is there, and memcaslap keeps no rate.
    text = text.replace(
        "path: /kv.php, max_rate: 8000/s", f"path: /kv.php, unpaced: true, max_rate: {MOST}"
    )
    if "--closed" in words:  # ab gives all of it up with the first request
        text = text.replace("path: /kv.php", "path: /kv.php, timeout: 30s")
    patient.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", BRIEF, "measure", str(patient), "--yes", "--json", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = printed("ceilings", done.stdout)
    return found


@pytest.mark.timeout(900)
def test_closed_loops_are_ceilings_and_stay_on_record(tmp_path: Path) -> None:
    found = measure("--closed", "--concurrency", "1,5", cwd=tmp_path)
    ceilings = found["ceilings"]
    assert isinstance(ceilings, list)
    assert [one["concurrency"] for one in ceilings] == [1, 5]
    assert all(one["rate"] > 0 and one["percentiles"] for one in ceilings)
    (kept,) = open_study(tmp_path / "studies" / "local-measured").state.ceilings
    assert [encode(one) for one in kept.ceilings] == ceilings


@pytest.mark.timeout(900)
def test_the_caches_alone_stand_beside_the_chain(tmp_path: Path) -> None:
    found = measure("--tier", "cache", cwd=tmp_path)
    ceilings = found["ceilings"]
    assert isinstance(ceilings, list)
    assert ceilings[-1]["together"] == 100
    assert all(one["failed"] or one["rate"] > 0 for one in ceilings)
    state = open_study(tmp_path / "studies" / "local-measured").state
    # On a busy machine, no rate may meet the SLO.
    assert bool(found["chain"]) is state.trials[-1].meets_slo
    (kept,) = state.ceilings
    assert isinstance(kept, CacheCeilings)
    assert kept.chain == found["chain"]


def test_check_asks_for_no_generator_that_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all generators, only httperf is on the PATH here."""
    unused = {"ab", "wrk", "oha", "memcaslap", "mutilate"}
    which = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **more: None if name in unused else which(name, **more)
    )
    environment = prepare(read_target(LOCAL))
    assert not unused & {name for programs in environment.programs.values() for name in programs}
    text = LOCAL.read_text().replace("generator: httperf", "generator: oha")
    mine = tmp_path / "local.yaml"
    mine.write_text(text)
    with pytest.raises(Exception, match="not installed: oha") as caught:
        prepare(read_target(mine))
    assert "cargo install oha" in str(getattr(caught.value, "hint", ""))
