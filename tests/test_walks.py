"""The walks in docs/architecture.md, compared with a deployment on a lab host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.environments.stack import prepare
from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.loads.base import LoadProcess, LoadResult, LoadSpec
from autotune.loads.httperf import HttperfOutput
from autotune.loads.load_commands import LoadCommand
from autotune.measure.reading import Reading
from autotune.services.base import Parameter
from autotune.space.dimension import Dimension
from autotune.study import trial_context
from autotune.study.reading_records import RecordedReading
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import Phase
from autotune.study.trial import run_trial
from autotune.study.trial_context import TrialContext
from autotune.target.read_target import read_target
from autotune.transports.base import CommandResult
from autotune.transports.ssh import SshTransport
from tests.deploy.lab import Ground, News
from tests.lab.shared import HOSTS, SharedLab
from tests.undisturbed import undisturbed
from tests.walks import Contents, Mark, Walk

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
ROW = re.compile(
    r"^\| \d+ \| `([\w.]+)` \| \[`autotune/([\w/]+)\.py`\]\(\.\./autotune/\2\.py\) \|", re.M
)
# Walks may become shorter, but not longer.
LIMITS = {"a parameter": 46, "a reading": 20, "a restore": 19}
WEB = HOSTS[0]
PARAMETER, FULL_NAME, VALUE = "worker_connections", "web.nginx.worker_connections", 1777
ORIGINAL = "a line that only the original file contains"
PREPARE = f"""
set -e
systemctl start nginx
echo '# {ORIGINAL}' >>/etc/nginx/nginx.conf
systemctl reload nginx
"""
TARGET = f"""\
name: walk
slo: {{p99: 900ms, errors: 0.1%}}
hosts:
  {WEB.name}: {{address: {WEB.address}}}
ssh: {{config: CONFIG}}
tiers:
  web: {{hosts: {WEB.name}, service: nginx}}
load: {{path: /, max_rate: 100/s}}
"""
READING_FORMS = (
    LoadSpec, LoadProcess, LoadCommand, HttperfOutput, LoadResult, Reading, RecordedReading,
)  # fmt: skip
OUTPUT = "Connection lifetime histogram"


WRITTEN = Mark(f"{PARAMETER} {VALUE}")
PARAMETER_STARTS = ("build_space", "SearchSpace.build_candidate", "Deployment.deploy")


def is_parameter(value: object) -> bool:
    """True for the declared parameter, its dimension, its value by name, and the line in a file."""
    if isinstance(value, Parameter):
        return value.name == PARAMETER
    if isinstance(value, Dimension):
        return value.name == FULL_NAME
    if isinstance(value, Mapping):
        return VALUE in (value.get(PARAMETER), value.get(FULL_NAME))
    return WRITTEN(value)


def is_reading(value: object) -> bool:
    if isinstance(value, CommandResult):
        return OUTPUT in value.stdout
    return isinstance(value, READING_FORMS) or (isinstance(value, str) and OUTPUT in value)


@pytest.fixture(scope="module")
def walks(
    shared_lab: SharedLab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Walk]]:
    """Yield the walks of a deployment with one reading, which is restored afterwards."""
    shared_lab.renew()
    directory = tmp_path_factory.mktemp("walk")
    transport = SshTransport(build_ssh_host(shared_lab.directory, WEB.name))
    ground = Ground(shared_lab.directory, directory, {WEB.name: transport})
    print(ground.sh(WEB.name, f"exec 2>&1\n{PREPARE}"))
    found = ground.sh(WEB.name, "cat /etc/nginx/nginx.conf")
    parameter = Walk(Contents(is_parameter), PARAMETER_STARTS)
    restore = Walk(Contents(Mark(ORIGINAL)), ("restore",))
    reading = deploy_and_measure(ground, directory / "studies" / "walk", parameter)
    assert f"{PARAMETER} {VALUE};" in ground.sh(WEB.name, "cat /etc/nginx/nginx.conf")
    with restore:
        done = CliRunner().invoke(app, ["restore", "walk", "--studies", str(directory / "studies")])
    assert done.exit_code == 0, done.output
    assert ground.sh(WEB.name, "cat /etc/nginx/nginx.conf") == found
    yield {"a parameter": parameter, "a reading": reading, "a restore": restore}
    transport.close()


def deploy_and_measure(ground: Ground, study: Path, parameter: Walk) -> Walk:
    """Return the walk of a reading; ``parameter`` traces the deployment."""
    path = ground.directory / "walk.yaml"
    path.write_text(TARGET.replace("CONFIG", str(derive_names(ground.lab).ssh_config)))
    study.parent.mkdir()
    with parameter:
        environment = prepare(read_target(path))
    with trial_context.open_session(environment, study, News()) as context:
        trial_context.begin_study(environment, context, study)
        fleet = context.session.fleet
        fleet.deploy(context.space.build_candidate({}).settings)
        with parameter:
            candidate = context.space.build_candidate({FULL_NAME: VALUE})
            deployed = fleet.deploy(candidate.settings)
        assert deployed.effective[FULL_NAME] == VALUE
        step = MeasureStep(Phase.MEASURE, candidate.settings)
        # On a busy machine, some readings need a longer ramp-up or miss part of their load.
        reading = undisturbed(
            partial(trace_reading, step, context),
            lambda walk: list_names(walk) == documented("a reading"),
            most=12,
        )
        fleet.keep_deployed()
    return reading


def trace_reading(step: MeasureStep, context: TrialContext) -> Walk:
    """Return the walk of the first reading of a trial."""
    walk = Walk(Contents(is_reading), ("search_peak",), "StudyStore.record_reading")
    with walk:
        run_trial(step, context, None, None, max_seconds=15.0)
    return walk


def list_names(walk: Walk) -> list[tuple[str, str]]:
    return [(function.name, function.module) for function in walk.functions]


@pytest.mark.parametrize("thing", LIMITS)
def test_a_walk_is_as_documented(walks: dict[str, Walk], thing: str) -> None:
    functions = walks[thing].functions
    print("\n".join(f"{number:3} {each}" for number, each in enumerate(functions, start=1)))
    assert list_names(walks[thing]) == documented(thing)
    assert len(functions) <= LIMITS[thing]


def documented(thing: str) -> list[tuple[str, str]]:
    """Return the functions of a walk, with their modules, in the order of the page."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[re.search(rf"^## Walk \d: {thing}$", text, re.M).start() :]
    return ROW.findall(section[: section.index("\n## ", 1)])
