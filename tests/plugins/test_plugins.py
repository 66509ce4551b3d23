"""A package of somebody else's, installed by pip: its service, generator and sampler are used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

SAMPLE = Path(__file__).parent / "sample"
TARGET = """\
name: sample
slo: {p99: 200ms}
hosts:
  h1: {address: 10.0.0.1}
  h2: {address: 10.0.0.2}
  h3: {address: 10.0.0.3}
  h4: {address: 10.0.0.4}
tiers:
  lb: {hosts: h1, service: nginx, forwards_to: web}
  web: {hosts: h2, service: pages, uses: [cache, store]}
  cache: {hosts: h3, service: memcached}
  store: {hosts: h4, service: redis}
load: {generator: metronome, timeout: 1s}
search: {sampler: dice}
budget: {trials: 4, time: 5m}
simulated: {seed: 1}
try: [{web.pages.threads: 3}]
"""
_READ = """
import socket, subprocess, sys, time
from autotune.loads.base import LoadSpec
from autotune.loads.registry import LOAD_GENERATORS
from autotune.loads.reading_run import take_reading
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.registry import SHIPPED
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
place = Endpoint("127.0.0.1", int(sys.argv[1]))
placement = Placement(tier="web", host="here", role=Role.WEB, directory=".", listen=place,
            programs={"python3": sys.executable})
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
server = subprocess.Popen(SHIPPED.deployable["pages"].build_start_command(placement, {}), **quiet)
try:
    for _ in range(2000):
        with socket.socket() as client:
            if client.connect_ex((place.host, place.port)) == 0:
                break
        time.sleep(0.05)
    spec = LoadSpec(40.0, 1.0, timeout=30.0, latency_limit=0.2, ramp_seconds=0.0)
    generator, request = LOAD_GENERATORS["metronome"], Request(place, "/")
    result = take_reading(generator, request, spec, LocalTransport(), max_rate=20_000.0)
finally:
    server.kill()
    server.wait()
print(result.intended, result.error_count, result.limited)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = shutil.copytree(SAMPLE, tmp_path_factory.mktemp("source") / "sample")
    place = tmp_path_factory.mktemp("site")
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    argv = [sys.executable, "-m", "pip", "install", *options, "--target", str(place), str(source)]
    subprocess.run(argv, check=True, capture_output=True)
    return place


def python(place: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(900)
def test_it_is_in_the_catalogue_and_in_a_study(installed: Path, tmp_path: Path) -> None:
    listed = python(installed, "-m", "autotune", "params", "pages", "--json")
    (parameter,) = json.loads(listed.stdout)["services"]["pages"]
    assert (parameter["name"], parameter["high"]) == ("threads", "4 * cpus")
    (tmp_path / "sample.yaml").write_text(TARGET)
    done = python(installed, "-m", "autotune", "run", "sample.yaml", "--yes", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    assert "sampler dice: set in the target" in done.stderr
    trials = sorted((tmp_path / "studies" / "sample" / "configs").iterdir())
    written = {re.sub(r"\D", "", p.read_text()) for t in trials for p in t.rglob("pages.conf")}
    assert {"2", "3"} <= written


@pytest.mark.long
def test_its_generator_loads_its_server(installed: Path, tmp_path: Path) -> None:
    read = python(installed, "-c", _READ, str(free_port()), cwd=tmp_path)
    assert read.stdout == "40 0 None\n", read.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (("CONTRACT = 1", "CONTRACT = 2"), "version 2 of the plug-in contract", "a newer autotune"),
        (("CONTRACT = 1", "CONTRACT = 0"), "autotune provides version 1",
         "pipx inject --force autotune autotune-sample`"),
        (("CONTRACT = 1", ""), "(AttributeError): ", "pipx uninject autotune autotune-sample"),
        (("deployment = \"pages\"", "deployment = 1 / 0"), "ZeroDivisionError", "pipx uninject"),
        (('name = "pages"', 'name = "nginx"'), "'nginx' in its services, but", "un"),
    ],
)  # fmt: skip
def test_one_that_does_not_fit_is_refused(
    installed: Path, tmp_path: Path, change: tuple[str, str], message: str, hint: str
) -> None:
    # Bytecode counts as that of the changed module, of the same size and in the same second.
    place = shutil.copytree(
        installed, tmp_path / "site", ignore=shutil.ignore_patterns("__pycache__")
    )
    module = place / "autotune_sample" / "service.py"
    assert change[0] in module.read_text()
    module.write_text(module.read_text().replace(*change))
    listed = python(place, "-m", "autotune", "params")
    assert listed.returncode == 1
    assert message in listed.stderr
    assert hint in listed.stderr
