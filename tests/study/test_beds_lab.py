"""One study on two lab hosts, each with a whole stack: deployed to at once, restored bit for bit."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.lab.plan import derive_names
from autotune.study.study_state import Phase, State
from autotune.study.study_store import load_state
from tests.deploy.lab import Ground, autotune, differing, renewed
from tests.lab.shared import NETWORK, SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(900)]

TARGET = f"""\
name: twins
slo: {{p99: 50ms, errors: 0.1%}}
hosts: {{box: {{address: {NETWORK}.21}}}}
beds:
  a: {{}}
  b: {{hosts: {{box: {{address: {NETWORK}.22}}}}}}
ssh: {{config: CONFIG}}
replace: true
tiers:
  web:   {{hosts: box, service: nginx+php-fpm, app: reference, uses: [cache, store]}}
  cache: {{hosts: box, service: memcached}}
  store: {{hosts: box, service: redis}}
load: {{generator: httperf, path: /kv.php, max_rate: 300/s}}
data: {{pairs: 2000}}
"""


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        yield ground


def target(ground: Ground, budget: str) -> Path:
    path = ground.directory / "twins.yaml"
    text = TARGET.replace("CONFIG", str(derive_names(ground.lab).ssh_config))
    path.write_text(f"{text}budget: {budget}\n")
    return path


def until(reached: Callable[[State], bool], ground: Ground, tuner: subprocess.Popen[str]) -> None:
    study = ground.directory / "studies" / "twins"
    while not ((study / "events.jsonl").exists() and reached(load_state(study))):
        assert tuner.poll() is None, tuner.communicate()[0]
        time.sleep(0.1)


def both_deployed(state: State) -> bool:
    return {t.bed for t in state.trials if t.files} == {"a", "b"}


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_two_beds_stopped_in_their_trials_are_restored(
    ground: Ground, ending: signal.Signals
) -> None:
    path, before = target(ground, "{trials: 5, time: 5m}"), ground.pictures()
    tuner = autotune("run", str(path), "--beds", "all", "--yes", cwd=ground.directory)
    until(both_deployed, ground, tuner)
    tuner.send_signal(ending)
    output = tuner.communicate(timeout=120)[0]
    if ending == signal.SIGKILL:
        assert differing(before, ground.pictures())
        restored = autotune("restore", "twins", cwd=ground.directory)
        output = restored.communicate(timeout=120)[0]
        assert restored.returncode == 0, output
        assert "bed a: " in output
        assert "bed b: " in output
    assert differing(before, ground.pictures()) == [], output


def test_a_study_on_two_beds_confirms_its_claim_on_both(ground: Ground) -> None:
    path, before = target(ground, "{trials: 6, time: 4m}"), ground.pictures()
    tuner = autotune("run", str(path), "--beds", "all", "--yes", cwd=ground.directory)
    output = tuner.communicate(timeout=800)[0]
    assert tuner.returncode == 0, output
    state = load_state(ground.directory / "studies" / "twins")
    assert state.verdict is not None
    assert {t.bed for t in state.list_finished_trials(Phase.BASELINE)} == {"a", "b"}
    assert set(state.verdict.beds) == {"a", "b"}, output
    assert differing(before, ground.pictures()) == [], output
