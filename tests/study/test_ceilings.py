"""How ceilings are measured, on load hosts that answer from a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.deploy_result import DeployResult, SettingMismatch
from autotune.deploy.stack import Stack, StackContext, build_stack
from autotune.errors import AutotuneError, UsageError
from autotune.loads.base import LoadError
from autotune.services.base import Endpoint, Settings
from autotune.services.registry import list_target_services
from autotune.space.space import SearchSpace
from autotune.study import ceilings
from autotune.study.ceilings import CacheLoadTest, CeilingRequest, build_ceiling_request
from autotune.study.measure_capacity import ComparisonConfiguration, MeasurementRequest
from autotune.study.study_store import StudyStore
from autotune.target.model import Target
from autotune.target.read_target import read_target
from autotune.target.slo import Slo
from autotune.transports.base import CommandResult
from tests.modelled import noisy
from tests.space.targets import FLEET, GB, ROOMY
from tests.space.targets import fleet as fleet_space
from tests.study import simulated
from tests.study.simulated import FormulaFleet

CHILDREN = "web.php_fpm.max_children"
SETTINGS: Settings = {CHILDREN: 9}
NO_SIZES: Mapping[str, int] = {}
LOCAL = simulated.LOCAL.read_text(encoding="utf-8")
PATH = "path: /kv.php"


class Host:
    """Has ``programs``; what any other command prints is ``printed``."""

    name = "load1"

    def __init__(self, *programs: str, printed: str = "", status: int = 0) -> None:
        self.programs, self.printed, self.status = programs, printed, status
        self.ran: list[str] = []

    def run(self, argv: tuple[str, ...], **_: object) -> CommandResult:
        if argv[:2] == ("sh", "-c") and "timeout" not in argv:
            return CommandResult(argv, 0 if argv[-1] in self.programs else 1, "", "")
        self.ran.append(" ".join(argv))
        return CommandResult(argv, self.status, self.printed, "")

    def put(self, content: bytes, path: str) -> None:
        self.ran.append(f"put {path}")


def of_stack(
    host: Host,
    *clients: int,
    fleet: FormulaFleet | None = None,
    other_endpoints: tuple[Endpoint, ...] = (),
    space: SearchSpace | None = None,
    settings: Settings = SETTINGS,
    rss: Mapping[str, int] = NO_SIZES,
) -> ceilings.StackCeilings:
    notes: list[str] = []
    context: Any = SimpleNamespace(
        session=SimpleNamespace(fleet=fleet or FormulaFleet()),
        space=space or simulated.space(),
        progress=SimpleNamespace(note=notes.append),
    )
    request: Any = SimpleNamespace(
        url="http://127.0.0.1/", method="GET", headers=(), body=None,
        endpoint=Endpoint("127.0.0.1", 80), other_endpoints=other_endpoints,
    )  # fmt: skip
    begun: list[bool] = []

    def begin(*, is_deployed: bool) -> None:
        begun.append(is_deployed)

    meter: Any = SimpleNamespace(
        begin_measurement=begin, load_hosts=[host], request=request, timeout=2.0,
        max_rate=1000.0, answer_check=None,
    )  # fmt: skip
    wanted = CeilingRequest(settings, None, clients, rss=rss)
    measured = ceilings._measure_stack(context, meter, wanted)
    unloaded = ["the closed loop loads only the entry 127.0.0.1:80, not 127.0.0.2:80"]
    assert notes[: -len(clients)] == (unloaded if other_endpoints else [])
    assert begun == [False, True], "answers are checked anew once the configuration is deployed"
    return measured


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed-loop generator that gets 500 responses."""
    load: Any = SimpleNamespace(
        name="loop",
        packages=("loops",),
        is_paced=True,
        build_input=lambda _: None,
        build_command=lambda _, clients: ("loop", f"{clients.concurrency}", f"{clients.seconds:g}"),
        parse_checked=lambda _, clients: ceilings.ClosedLoopCeiling(
            clients.concurrency, clients.seconds, 500
        ),
    )
    monkeypatch.setattr(ceilings, "CLOSED_LOOP_GENERATORS", {"loop": load})


@pytest.mark.usefixtures("loop")
def test_a_stack_is_warmed_up_once_and_loaded_by_each_number_of_clients() -> None:
    host, fleet = Host("loop"), FormulaFleet()
    measured = of_stack(host, 1, 5, fleet=fleet)
    assert fleet.settings == simulated.space().build_candidate(SETTINGS).settings
    assert host.ran == ["loop 1 1", "loop 1 5", "loop 5 5"]
    assert measured.generator == "loop"
    assert [ceiling.rate for ceiling in measured.ceilings] == [100.0, 100.0]
    of_stack(host, 1, other_endpoints=(Endpoint("127.0.0.2", 80),))
    with pytest.raises(LoadError) as caught:
        of_stack(Host(), 1)
    assert caught.value.hint == "install loops on load1"


@pytest.mark.usefixtures("loop")
def test_a_ceiling_is_measured_with_the_process_sizes_of_the_export(tmp_path: Path) -> None:
    """By the assumed sizes, 20 processes fit into the memory; by the measured sizes, 104."""
    space, fleet = fleet_space(tmp_path, web2=replace(ROOMY, memory=GB)), FormulaFleet()
    sizes = {"web.php_fpm": 6 * 2**20}
    of_stack(Host("loop"), 1, fleet=fleet, space=space, settings={CHILDREN: 50}, rss=sizes)
    assert fleet.settings[CHILDREN] == 50


class LoweringFleet(FormulaFleet):
    """A fleet whose software starts four processes, whatever is requested."""

    def deploy(self, settings: Settings) -> DeployResult:
        self.settings = settings
        mismatch = SettingMismatch(CHILDREN, settings[CHILDREN], 4)
        return DeployResult({}, {}, {CHILDREN: 4}, (mismatch,))


@pytest.mark.usefixtures("loop")
def test_no_ceiling_is_reported_for_settings_that_did_not_take_effect() -> None:
    host = Host("loop")
    with pytest.raises(AutotuneError, match="requested 9, effective 4"):
        of_stack(host, 1, fleet=LoweringFleet())
    assert host.ran == []


def alone(host: Any, *, unpaced: bool = True) -> Iterator[Any]:
    servers = (Endpoint("127.0.0.1", 11211),)
    return CacheLoadTest(
        servers, {"127.0.0.1": host}, Slo(), 100, 50_000.0, unpaced
    ).measure_ceilings()


def test_caches_are_measured_by_what_the_load_host_has() -> None:
    host: Any = Host("memcaslap", printed="nothing of use")
    measured = list(alone(host))
    assert [c.shape for c in measured] == ["100 B", "2 KB", "4 KB", "100 B, 100 at once"]
    assert all("printed no result" in str(c.failure) for c in measured)
    assert sum("memcaslap --servers" in command for command in host.ran) == 4
    missing: Any = Host(status=127)
    with pytest.raises(LoadError, match="memcaslap is not installed on load1"):
        list(alone(missing))


def test_caches_that_mutilate_cannot_fill_are_measured_by_memcaslap() -> None:
    host: Any = Host("mutilate", "memcaslap", printed="mutilate.cc(790): evdns", status=255)
    of_mutilate, *others = alone(host)
    assert "could not fill the caches" in str(of_mutilate.failure)
    assert [c.shape for c in others] == ["100 B", "2 KB", "4 KB", "100 B, 100 at once"]
    host = Host("mutilate", status=255)
    assert [c.shape for c in alone(host)] == ["100 B"]


@pytest.mark.parametrize("text", ["", "0", "1,x", "501", "5,-1"])
def test_a_number_of_clients_is_from_1_to_500(text: str) -> None:
    assert ceilings._parse_client_counts("1,500") == (1, 500)
    with pytest.raises(AutotuneError, match="expected numbers from 1 to 500"):
        ceilings._parse_client_counts(text)


def build_request(
    directory: Path, target_text: str, cache_tier: str | None, request: MeasurementRequest
) -> CeilingRequest:
    path = directory / "target.yaml"
    path.write_text(target_text, encoding="utf-8")
    environment: Any = SimpleNamespace(file=read_target(path))
    return build_ceiling_request(environment, request, cache_tier, "1,5")


ALONE = MeasurementRequest(SETTINGS, None, 1, {"web.php_fpm": 6 * 2**20})
BASELINE = ComparisonConfiguration("baseline", {})


@pytest.mark.parametrize(("cache_tier", "client_counts"), [(None, (1, 5)), ("cache", ())])
@pytest.mark.parametrize("allow_unpaced", [False, True])
def test_a_ceiling_is_requested_for_the_stack_or_for_the_caches_of_a_tier(
    cache_tier: str | None, client_counts: tuple[int, ...], allow_unpaced: bool, tmp_path: Path
) -> None:
    text = LOCAL.replace("load: {", "load: {unpaced: true, ") if allow_unpaced else LOCAL
    expected = CeilingRequest(SETTINGS, cache_tier, client_counts, allow_unpaced, ALONE.rss)
    assert build_request(tmp_path, text, cache_tier, ALONE) == expected


@pytest.mark.parametrize(
    ("cache_tier", "measurement", "target_text", "message"),
    [
        (None, replace(ALONE, repeat=2), LOCAL, "--closed and --repeat cannot be combined"),
        ("cache", replace(ALONE, repeat=2), LOCAL, "--tier and --repeat cannot be combined"),
        (None, replace(ALONE, against=BASELINE), LOCAL, "--closed and --against cannot be"),
        ("cache", replace(ALONE, against=BASELINE), LOCAL, "--tier and --against cannot be"),
        (None, ALONE, noisy(""), "--closed needs a stack of servers, and the target is a model"),
        ("cache", ALONE, noisy(""), "--tier needs a stack of servers, and the target is a model"),
        (None, ALONE, LOCAL.replace(PATH, "uris: list"), "--closed requests only one page"),
        (None, ALONE, LOCAL.replace(PATH, "requests: list"), "--closed requests only one page"),
        (None, ALONE, LOCAL.replace(PATH, "method: POST, body: a"), "--closed needs GET requests"),
        ("web", ALONE, LOCAL, "tier 'web' does not use memcache"),
        ("cahce", ALONE, LOCAL, "tier 'cahce' does not exist"),
    ],
)
def test_an_impossible_ceiling_is_refused_with_the_name_of_its_option(
    cache_tier: str | None,
    measurement: MeasurementRequest,
    target_text: str,
    message: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=message):
        build_request(tmp_path, target_text, cache_tier, measurement)


TWO_CACHES = (
    FLEET.replace("uses: [cache, store]", "uses: [cache, sessions, store]")
    .replace("tiers:", "  mc2: {address: 198.18.0.6}\ntiers:")
    .replace("load:", "  sessions: {hosts: mc2, service: memcached}\nload:")
)


def build_two_caches(directory: Path) -> tuple[Target, Stack]:
    """Return a target with two tiers of memcached, and its stack."""
    path = directory / "two.yaml"
    path.write_text(TWO_CACHES, encoding="utf-8")
    target = read_target(path).target
    programs = {
        name: paths[0]
        for tier_service in list_target_services(target)
        for name, paths in tier_service.service.programs.items()
    }
    programs_by_host = dict.fromkeys(target.hosts, programs)
    facts = dict.fromkeys(target.hosts, ROOMY)
    context = StackContext("run", {}, programs_by_host, facts, installed=True)
    return target, build_stack(target, context)


def measure_caches(
    directory: Path,
    host: Host,
    tier: str,
    *,
    allow_unpaced: bool,
    peaks: simulated.Peaks = simulated.flat,
) -> Any:
    """Measure the caches of a tier, whose whole stack sustains 1,000 requests/s by default."""
    target, stack = build_two_caches(directory)
    meter: Any = SimpleNamespace(load_hosts=[host], stack=stack, slo=Slo(), max_rate=2000.0)
    request = CeilingRequest({}, tier, (), allow_unpaced)
    with closing(StudyStore(directory)) as store:
        store.record_study_start("s", LOCAL, source="s", facts={})
        context = simulated.context(store, peaks, FormulaFleet(), seed=1, pace=0.0)
        measured = ceilings._measure_caches(target, context, meter, request)
        assert len(store.state.trials) == 1
    return measured


@pytest.mark.parametrize(
    ("tier", "server"), [("cache", "198.18.0.4:11211"), ("sessions", "198.18.0.6:11211")]
)
def test_only_the_caches_of_the_requested_tier_are_measured(
    tier: str, server: str, tmp_path: Path
) -> None:
    host = Host("memcaslap", printed="nothing of use")
    measured = measure_caches(tmp_path, host, tier, allow_unpaced=True)
    assert measured.servers == (server,)
    commands = [command for command in host.ran if "memcaslap --servers" in command]
    assert len(commands) == 4
    assert all(f"--servers {server} " in command for command in commands)


@pytest.mark.parametrize(
    ("capacity", "is_known"),
    [(1000.0, True), (100_000.0, False), (1e-3, False)],
    ids=["measured", "limited by max_rate", "unmeetable"],
)
def test_caches_are_compared_only_with_a_known_capacity_of_the_stack(
    capacity: float, is_known: bool, tmp_path: Path
) -> None:
    host = Host("memcaslap", printed="nothing of use")
    measured = measure_caches(tmp_path, host, "cache", allow_unpaced=True, peaks=lambda _: capacity)
    assert measured.chain == (pytest.approx(100_000.0, rel=0.2) if is_known else 0.0)


@pytest.mark.parametrize(
    ("programs", "allow_unpaced", "is_refused"),
    [
        (("memcaslap",), False, True),
        (("memcaslap",), True, False),
        (("mutilate", "memcaslap"), False, False),
    ],
)
def test_only_a_target_that_allows_it_loads_caches_without_rate_control(
    programs: tuple[str, ...], allow_unpaced: bool, is_refused: bool, tmp_path: Path
) -> None:
    host = Host(*programs, status=255)
    if is_refused:
        with pytest.raises(LoadError, match="memcaslap has no rate control"):
            measure_caches(tmp_path, host, "cache", allow_unpaced=allow_unpaced)
        assert host.ran == []
    else:
        measured = measure_caches(tmp_path, host, "cache", allow_unpaced=allow_unpaced)
        assert all(ceiling.failed for ceiling in measured.ceilings)
