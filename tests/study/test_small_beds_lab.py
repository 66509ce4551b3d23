"""One study on two beds of three small hosts each, beside one on one of them in as many minutes.

How many configurations each measures, and what the CPUs allowed, is printed and not asserted:
``AUTOTUNE_MINUTES=15 pytest -m quiet -s tests/study/test_small_beds_lab.py`` (of each; 10 at least).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from autotune.lab import target_labs
from autotune.lab.cgroups import parse_mounts, read_mountinfo
from autotune.lab.lifecycle import remove_lab, start_lab
from autotune.lab.plan import derive_names
from autotune.monitor.process_table import TICKS_PER_SECOND
from autotune.study.study_state import Phase, State
from autotune.study.study_store import load_state
from autotune.target.beds import build_bed_target
from autotune.target.read_target import read_target
from tests.deploy.lab import autotune, differing
from tests.lab.pictures import picture
from tests.lab.shared import settled
from tests.stolen import ticks

pytestmark = [pytest.mark.lab, pytest.mark.quiet, pytest.mark.timeout(7200)]
MINUTES = int(os.environ.get("AUTOTUNE_MINUTES", "10"))
# CPUs and memory of a bed's three hosts and of the one that makes its load: both beds fit in two CPUs.
HOSTS = {
    "load": (0.2, "192MB"),
    "lb": (0.15, "192MB"),
    "web": (0.35, "768MB"),
    "data": (0.2, "384MB"),
}


def hosts(network: str) -> str:
    return json.dumps({
        name: {"address": f"{network}.{number}", "cpus": cpus, "memory": memory}
        for number, (name, (cpus, memory)) in enumerate(HOSTS.items(), start=11)
    })  # fmt: skip


# Most requests wait for the disk behind the store, so that five children of PHP-FPM are too few.
TARGET = f"""\
name: small
slo: {{p95: 200ms, errors: 0.1%}}
hosts: {hosts("198.18.50")}
beds:
  a: {{}}
  b: {{hosts: {hosts("198.18.51")}}}
ssh: {{config: CONFIG}}
replace: true
tiers:
  lb:    {{hosts: lb, service: nginx, forwards_to: web}}
  web:   {{hosts: web, service: nginx+php-fpm, app: reference, uses: [cache, store]}}
  cache: {{hosts: data, service: memcached}}
  store: {{hosts: data, service: redis}}
parameters:
  cache.memcached.memory: {{range: [5MB, 7MB], default: 7MB}}
load: {{generator: httperf, hosts: load, path: /kv.php, max_rate: 600/s}}
data: {{pairs: 100000, keys_per_request: 20, store_latency: 40ms}}
budget: {{trials: 100, time: {MINUTES}m}}
"""


@dataclass(frozen=True)
class Spent:
    """Seconds since the machine was booted, and of CPU time: by all on it, by the lab's hosts, by
    commands that have ended; and what was stolen from it."""

    passed: float
    used: float
    hosts: float
    commands: float
    stolen: float

    @classmethod
    def now(cls, lab: Path) -> Spent:
        by_kind = ticks(Path("/proc/stat").read_text())
        idle, stolen = by_kind["idle"] + by_kind["iowait"], by_kind["steal"]
        used = sum(by_kind.values()) - idle - stolen
        ended = getrusage(RUSAGE_CHILDREN)
        (tree,) = (
            mount.path for mount in parse_mounts(read_mountinfo()) if mount.kind == "cgroup2"
        )
        usage = (
            (tree / derive_names(lab).cgroup / "cpu.stat").read_text(encoding="ascii").split()[1]
        )
        return cls(
            time.monotonic(),
            used / TICKS_PER_SECOND,
            int(usage) * 1e-6,
            ended.ru_utime + ended.ru_stime,
            stolen / TICKS_PER_SECOND,
        )

    def until(self, later: Spent) -> str:
        """CPUs in use, on average, between the two."""
        passed = later.passed - self.passed
        return (
            f"{(later.used - self.used) / passed:.2f} of {os.cpu_count()} CPUs in use"
            f" ({(later.hosts - self.hosts) / passed:.2f} by hosts,"
            f" {(later.commands - self.commands) / passed:.2f} by autotune),"
            f" {(later.stolen - self.stolen) / passed:.2f} stolen, for {passed:.0f} s;"
            f" load average {os.getloadavg()[1]:.1f}"
        )


@dataclass(frozen=True)
class Lab:
    """Hosts of both beds, and the target that has them."""

    directory: Path
    target: Path
    hosts: tuple[str, ...]

    def pictures(self) -> dict[str, list[str]]:
        return {host: picture(derive_names(self.directory), host) for host in self.hosts}

    def studied(self, beds: str) -> State:
        name, began = f"on-{beds}", Spent.now(self.directory)
        words = ("run", str(self.target), "--beds", beds, "--name", name, "--yes")
        tuner = autotune(*words, cwd=self.target.parent)
        output = tuner.communicate(timeout=3000)[0]
        ended = Spent.now(self.directory)
        print(f"{output}\n--beds {beds}: {began.until(ended)}")
        assert tuner.returncode == 0, output
        return load_state(self.target.parent / "studies" / name)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    path, directory = tmp_path / "small.yaml", tmp_path / "lab"
    path.write_text(TARGET.replace("CONFIG", str(derive_names(directory).ssh_config)))
    target = read_target(path).target
    of_beds = [
        replace(host, name=f"{bed}-{host.name}")
        for bed in target.beds
        for host in target_labs.build_lab_hosts(build_bed_target(target, bed))
    ]
    try:
        start_lab(of_beds, directory)
        lab = Lab(directory, path, tuple(host.name for host in of_beds))
        settled(directory, lab.hosts)
        yield lab
    finally:
        remove_lab(directory)


def configurations(state: State) -> int:
    """Those that were measured to the end or pruned."""
    return sum(trial.peak is not None for trial in state.list_counted_trials())


def test_a_study_on_both_beds_confirms_its_claim_on_both(lab: Lab) -> None:
    before = lab.pictures()
    alone = lab.studied("a")
    assert differing(before, lab.pictures()) == []
    both = lab.studied("all")
    assert differing(before, lab.pictures()) == []

    assert {trial.bed for trial in alone.trials} == {"a"}
    assert {trial.bed for trial in both.list_finished_trials(Phase.BASELINE)} == {"a", "b"}
    for name, state in (("a", alone), ("a and b", both)):
        seconds = ", ".join(f"{kind} {s:.0f} s" for kind, s in state.average_seconds.items())
        print(f"{name}: {configurations(state)} configurations, {state.measured_count} measurements"
              f" in {state.elapsed_seconds / 60:.1f} min ({seconds})")  # fmt: skip
    print(f"{configurations(both) / configurations(alone):.2f} times the configurations,"
          f" {both.measured_count / alone.measured_count:.2f} times the measurements")  # fmt: skip
    assert configurations(both) > len(both.beds)
    assert both.verdict is not None
    assert both.verdict.verdict == "improved"
    assert set(both.verdict.beds) == {"a", "b"}
