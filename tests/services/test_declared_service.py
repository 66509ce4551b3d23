"""Services declared in YAML alone: the same as those that ship, and edited as they lie on a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.deploy.desired_state import render_files
from autotune.deploy.templates import render_text
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.host_templates import build_host_templates
from autotune.environments import name_checks
from autotune.errors import TargetError
from autotune.masking import restore_secrets
from autotune.services.base import (
    Action,
    ConfigFile,
    Endpoint,
    Parameter,
    Role,
    Service,
    Settings,
    Value,
)
from autotune.services.registry import SHIPPED, catalogue_of, extend_catalogue, find_outliner
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.space.tier_dimensions import build_tier_dimensions
from autotune.target.declared_service import ServiceSpec
from autotune.target.model import Data, Tier
from autotune.target.read_target import TargetFile, read_target, validate_document
from autotune.target.yaml_document import load_yaml
from tests.discovery.places import host
from tests.printed import printed
from tests.services.test_conformance import site_of

HAPROXY = Path(__file__).parent / "declared_haproxy.yaml"
STYLES = Path(__file__).parents[1] / "discovery" / "styles"
PRINTED = (Path(__file__).parent / "fixtures" / "haproxy.txt").read_text()
MAIN = "/etc/haproxy/haproxy.cfg"
FACTS = HostFacts(2, 4 * 2**30, 65_536)
TARGET = """\
name: shop
hosts: {lb1: {address: 10.0.0.9}, web1: {address: 10.0.0.1}}
slo: {p99: 50ms}
tiers:
  lb: {hosts: lb1, service: SERVICE, forwards_to: web}
  web: {hosts: web1, service: nginx, replace: true}
"""
SMALL = """\
services:
  quick:
    role: web
    port: 8080
    unit: quick.service
    files: {/etc/quick.conf: {}}
    parameters:
      threads: {meaning: Threads., default: 4, range: [1, 4 * cpus], directive: "threads = {}"}
"""


BALANCER = {"balancer": validate_document(load_yaml(HAPROXY), ServiceSpec)}
CATALOGUE = extend_catalogue(BALANCER)


def declared() -> Service:
    return CATALOGUE.deployable["balancer"]


def target(directory: Path, text: str) -> TargetFile:
    path = directory / "target.yaml"
    path.write_text(text)
    return read_target(path)


def with_quick(directory: Path, *changes: tuple[str, str]) -> TargetFile:
    text = TARGET.replace("SERVICE", "quick") + SMALL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return target(directory, text)


def space(file: TargetFile, *hosts: DiscoveredHost) -> SearchSpace:
    running = build_host_templates(file, {each.name: each for each in hosts}).adopted_values
    return build_space(file, dict.fromkeys(file.target.hosts, FACTS), running)


# -- the one that ships, in YAML alone -------------------------------------------------------------


def as_declared(parameter: Parameter) -> Parameter:
    """The parameter without what a declaration has no place for."""
    return replace(parameter, decides=frozenset(), special_values={})


def test_its_parameters_are_those_of_the_one_that_ships() -> None:
    shipped = SHIPPED.deployable["haproxy"]
    assert declared().parameters == tuple(map(as_declared, shipped.parameters))
    assert replace(declared().needs, source="") == replace(shipped.needs, source="")
    tiers = [Tier(hosts=("h1",), service=(name,)) for name in ("balancer", "haproxy")]
    own, other = (
        [replace(d, name="", parameter=as_declared(d.parameter))
         for d in build_tier_dimensions("lb", tier, FACTS, CATALOGUE)]
        for tier in tiers
    )  # fmt: skip
    assert own == other


@pytest.mark.parametrize("changed", [
    {}, {"maxconn": 900, "shards": 2, "server_maxconn": 7},
    {"busy_polling": True, "dontlog_normal": True, "http_server_close": True, "balance": "random"},
])  # fmt: skip
def test_its_files_are_those_of_the_one_that_ships(changed: dict[str, Value]) -> None:
    written = {}
    for name, service in (
        ("balancer", declared()),
        ("haproxy", SHIPPED.deployable["haproxy"]),
    ):
        tier = Tier(hosts=("h1",), service=(name,))
        dimensions = build_tier_dimensions("t", tier, FACTS, CATALOGUE)
        stock = {d.name: d.baseline for d in dimensions}
        settings = {**stock, **{f"t.{name}.{key}": value for key, value in changed.items()}}
        site = site_of(service, Role.PROXY, "systemd")
        written[name] = render_files(service, site, settings, Data())
        assert service.build_validation(site, written[name]) == (
            "/usr/sbin/haproxy",
            "-c",
            "-f",
            MAIN,
        )
    assert written["balancer"] == written["haproxy"]


def test_it_reads_back_what_the_one_that_ships_does() -> None:
    read_back = []
    for service in (declared(), SHIPPED.deployable["haproxy"]):
        site = replace(site_of(service, Role.PROXY, "systemd"), listen=Endpoint("10.0.0.1", 80))
        values: dict[str, Value] = {}
        for readback in service.list_readbacks(site):
            listening = "LISTEN 0 300 0.0.0.0:80 0.0.0.0:*\n"
            values |= readback.parse(listening if "ss" in readback.argv[0] else PRINTED)
        read_back.append(values)
    assert read_back[0] == read_back[1]
    assert len(read_back[0]) == 6


def test_it_is_asked_for_its_counters() -> None:
    query = CATALOGUE.find_diagnosis(declared().name).counter_query
    assert query is not None
    assert query.parse_counters("CumConns: 7\nIdle_pct: 93\n") == {
        "CumConns": 7.0,
        "Idle_pct": 93.0,
    }


FRONT = (
    "\nfrontend http\n\tbind :80\n\tdefault_backend web\n\nbackend web\n\tserver web1 10.0.0.1:80\n"
)


def deployed(service: Service, file: ConfigFile, own: str, values: Mapping[str, object]) -> str:
    """A host's own file with other values, as it is deployed."""
    text = render_text(file.text or "", values).encode()
    return restore_secrets(
        text, own.encode(), file.path, find_outliner(service, file.path)
    ).decode()


@pytest.mark.parametrize("changed", [
    {"timeout_server": 700}, {"backlog": 300, "nbthread": 1}, {"balance": "random", "retries": 5},
])  # fmt: skip
def test_a_host_s_own_file_is_edited_as_for_the_one_that_ships(
    tmp_path: Path, changed: dict[str, Value]
) -> None:
    text = (STYLES / "haproxy-debian.cfg").read_text() + FRONT
    there = host("lb1", "10.0.0.9", {MAIN: text}, "haproxy.service")
    there = replace(there, processors=2, backlogs={"80": 4096}, catalogue=CATALOGUE)
    edited = []
    for name in ("balancer", "haproxy"):
        file = target(tmp_path, TARGET.replace("SERVICE", name))
        file = replace(file, target=file.target.model_copy(update={"services": BALANCER}))
        files = build_host_templates(file, {"lb1": there})
        (config,) = files.adopted_configs[f"lb.lb1.{name}"].files
        assert config.text
        bare = {key.rpartition(".")[2]: value for key, value in files.adopted_values.values.items()}
        values: Settings = {**bare, "nbthread": 2} if name == "balancer" else bare
        service = CATALOGUE.list_by_name(name)[0]
        assert deployed(service, config, text, values) == text
        after = deployed(service, config, text, {**values, **changed})
        edited.append({line.strip() for line in {*after.splitlines()} - {*text.splitlines()}})
    own, other = edited
    # A default over the host, as that of nbthread, is not compared with: no line comes.
    assert own == {line for line in other if not line.startswith("nbthread")}


# -- what a user declares --------------------------------------------------------------------------


def quick(file: TargetFile, text: str) -> DiscoveredHost:
    found = host("lb1", "10.0.0.9", {"/etc/quick.conf": text}, "quick.service")
    return replace(found, catalogue=catalogue_of(file.target))


def quick_service(file: TargetFile) -> Service:
    return catalogue_of(file.target).deployable["quick"]


@pytest.mark.parametrize(
    ("text", "baseline", "after"),
    [
        ("# threads = 9\nthreads = 2\nport = 1\n", 2, "# threads = 9\nthreads = 7\nport = 1\n"),
        ("threads=2 # why\n", 2, "threads=7 # why\n"),
        ("port = 1\n", 4, "port = 1\nthreads = 7\n"),
        ("port = 1", 4, "port = 1\nthreads = 7"),
    ],
)
def test_a_directive_in_place(tmp_path: Path, text: str, baseline: int, after: str) -> None:
    file = with_quick(tmp_path)
    built = space(file, quick(file, text))
    assert built.baseline["lb.quick.threads"] == baseline
    own = build_host_templates(file, {"lb1": quick(file, text)}).adopted_configs["lb.lb1.quick"]
    assert deployed(quick_service(file), own.files[0], text, {"threads": baseline}) == text
    assert deployed(quick_service(file), own.files[0], text, {"threads": 7}) == after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("threads = 2\nthreads = 3\n", "several values"),
        ("threads = many\n", "is not a valid baseline value"),
    ],
)
def test_what_stays_as_it_is_is_told(tmp_path: Path, text: str, why: str) -> None:
    file = with_quick(tmp_path)
    left = build_host_templates(file, {"lb1": quick(file, text)}).adopted_values.skipped
    assert why in left["lb.quick.threads"]


@pytest.mark.parametrize(
    ("directive", "text", "after"),
    [
        ("limit {}M;", "limit  64M;\n", "limit  70M;\n"),
        ("limit {}M;", "x 1\n", "x 1\nlimit 70M;\n"),
        ("listen * backlog={}", "listen :80 ssl backlog=64\n", "listen :80 ssl backlog=70\n"),
        ('say "{{%" {}', 'say "{{%" 64 }}\n', 'say "{{%" 70 }}\n'),
    ],
)  # fmt: skip
def test_what_a_directive_may_look_like(
    tmp_path: Path, directive: str, text: str, after: str
) -> None:
    written = (
        ('"threads = {}"', f"'{directive}'"),
        ("4, range: [1, 4 * cpus]", "64, range: [1, 99]"),
    )
    file = with_quick(tmp_path, *written)
    own = build_host_templates(file, {"lb1": quick(file, text)}).adopted_configs["lb.lb1.quick"]
    assert deployed(quick_service(file), own.files[0], text, {"threads": 64}) == text
    assert deployed(quick_service(file), own.files[0], text, {"threads": 70}) == after


@pytest.mark.parametrize("section", ["quick", "[quick]"])
@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("[quick]\nthreads = 2\n[other]\nthreads = 9\n",
         "[quick]\nthreads = 7\n[other]\nthreads = 9\n"),
        ("[quick-old]\nthreads = 9\n[quick]\nthreads = 2\n",
         "[quick-old]\nthreads = 9\n[quick]\nthreads = 7\n"),
        ("[quick:old]\nthreads = 2\n", None),
        ("[quick.old]\nthreads = 2\n", None),
    ],
)  # fmt: skip
def test_a_section_has_exactly_the_declared_name(
    tmp_path: Path, section: str, text: str, after: str | None
) -> None:
    file = with_quick(tmp_path, ("directive:", f"section: '{section}', directive:"))
    templates = build_host_templates(file, {"lb1": quick(file, text)})
    if after is None:
        assert "is missing" in templates.adopted_values.skipped["lb.quick.threads"]
        return
    (own,) = templates.adopted_configs["lb.lb1.quick"].files
    assert deployed(quick_service(file), own, text, {"threads": 2}) == text
    assert deployed(quick_service(file), own, text, {"threads": 7}) == after


@pytest.mark.parametrize(
    ("parameter", "output", "values"),
    [
        ("default: 4, range: [1, 9]", "threads: 5\n", {"threads": 5}),
        ("default: 4, range: [1, 9]", "threads: unlimited\n", {}),
        ("default: true, choices: [true, false]", "threads: TRUE\n", {"threads": True}),
        ("default: true, choices: [true, false]", "threads: yes\n", {}),
        ("default: a, choices: [a, b]", "threads: b\n", {"threads": "b"}),
    ],
)
def test_only_values_that_a_pattern_finds_are_read_back(
    tmp_path: Path, parameter: str, output: str, values: Settings
) -> None:
    pattern = "'^threads: (?:unlimited|([0-9A-Za-z]+))$'"
    answers = f"{{command: [quick, -v], values: {{threads: {pattern}}}}}"
    file = with_quick(
        tmp_path,
        ("default: 4, range: [1, 4 * cpus]", parameter),
        ("    files", f"    read: [{answers}]\n    counters: {answers}\n    files"),
    )
    service = quick_service(file)
    (readback,) = service.list_readbacks(site_of(service, Role.WEB, "systemd"))
    assert readback.parse(output) == values
    query = catalogue_of(file.target).find_diagnosis(service.name).counter_query
    assert query is not None
    numbers = {name: value for name, value in values.items() if type(value) is int}
    assert query.parse_counters(output) == numbers


def test_a_drop_in_comes_with_the_first_value_that_differs(tmp_path: Path) -> None:
    path = "/etc/systemd/system/quick.service.d/workers.conf"
    text = '{text: "[Service]\\nEnvironment=WORKERS={{ threads }}\\n", mode: "0600"}'
    file = with_quick(
        tmp_path, ("/etc/quick.conf: {}", f"{path}: {text}"), (', directive: "threads = {}"', "")
    )
    templates = build_host_templates(file, {"lb1": quick(file, "")})
    (own,) = templates.adopted_configs["lb.lb1.quick"].files
    assert (own.path, own.mode) == (path, 0o600)
    assert render_text(own.text or "", {"threads": 4}) == ""
    assert render_text(own.text or "", {"threads": 6}) == "[Service]\nEnvironment=WORKERS=6\n"


def test_what_a_change_needs(tmp_path: Path) -> None:
    file = with_quick(
        tmp_path,
        ("unit: quick.service", "unit: quick.service\n    reload: true"),
        ("threads: {", "threads: {action: reload, "),
    )
    service = quick_service(file)
    assert service.reload_signal
    assert service.parameters[0].action is Action.RELOAD


def test_a_script_that_applies_values_elsewhere(tmp_path: Path) -> None:
    change = ("unit: quick.service", "unit: quick.service\n    listens: false")
    service = quick_service(with_quick(tmp_path, change))
    site = site_of(service, Role.WEB, "systemd")
    assert service.get_socket(site) is None
    assert quick_service(with_quick(tmp_path)).get_socket(site) == site.listen


CONTROL = ("directive:", "choices: [a, b], directive:")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("quick", "nginx"), "autotune already contains a service nginx"),
        (("4 * cpus", "4 * cores"), "unknown name 'cores'"),
        (("4 * cpus", "4 *"), "expected a value"),
        (("4 * cpus", "64MB"), "this parameter has no unit"),
        (CONTROL, "`range` or `choices`"),
        (("threads = {}", "threads ="), "must contain `{}` once, in place of the value"),
        (("/etc/quick.conf", "/etc/../quick.conf"), "is not the absolute path of a file"),
        (("/etc/quick.conf", "/-delete"), "is not the absolute path of a file"),
        (("quick.service", "--now"), "is not the name of a unit"),
        (
            ("    files", "    read: [{command: [x], values: {threads: '^x'}}]\n    files"),
            "exactly one group",
        ),
        (("    files", "    helps: {cpu: workers+}\n    files"), "unknown parameter 'workers'"),
        (("    files", "    needs: {memory: workers * 1 MB}\n    files"), "unknown name 'workers'"),
        (("service: quick", "service: quick, replace: true"), "lacks `text` and `template`"),
        (("service: quick", "service: quick, runtime: embedded"), "can run only as"),
    ],
)  # fmt: skip
def test_what_cannot_be_declared(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(TargetError) as raised:
        name_checks.check_names(with_quick(tmp_path, change))
    every = (raised.value, *raised.value.others)
    assert any(message in error.message for error in every), [error.message for error in every]
    assert all(":" in error.message.removeprefix(str(tmp_path)) for error in every)


def test_a_file_of_the_user_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = tmp_path / "autotune" / "services" / "balancer.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(HAPROXY.read_text())
    file = target(tmp_path, TARGET.replace("SERVICE", "balancer"))
    assert file.target.services["balancer"].unit == "haproxy.service"
    name_checks.check_names(file)
    place.write_text("role: proxy\nprot: 80\n")
    with pytest.raises(TargetError, match=r"balancer.yaml:2:1: unknown key 'prot'"):
        read_target(tmp_path / "target.yaml")


@pytest.mark.parametrize("value", ["$(reboot)", "; reboot", "{{ 7 * 7 }}", "{% if %}"])
def test_a_value_is_a_value_in_files_and_no_part_of_commands(tmp_path: Path, value: str) -> None:
    file = with_quick(tmp_path, ("default: 4, range: [1, 4 * cpus]",
                                 f"default: a, choices: [a, '{value}']"))  # fmt: skip
    (own,) = (
        build_host_templates(file, {"lb1": quick(file, "threads = a\n")})
        .adopted_configs["lb.lb1.quick"]
        .files
    )
    assert render_text(own.text or "", {"threads": value}) == f"threads = {value}\n"


def test_it_is_listed_and_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_quick(tmp_path)
    path = str(tmp_path / "target.yaml")
    listed = CliRunner().invoke(app, ["params", "quick", "--target", path, "--json"])
    (parameter,) = printed("parameters", listed.stdout)["services"]["quick"]
    assert (parameter["high"], parameter["stock"]) == ("4 * cpus", 4)
    line = f"autotune sweep {path} --over lb.q"
    environment = {"_AUTOTUNE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "4"}
    offered = CliRunner(env=environment).invoke(app, prog_name="autotune")
    assert offered.stdout.split() == ["lb.quick.threads"]


def everything(service: Service) -> Any:
    return {name: getattr(service, name) for name in ("name", "role", "parameters", "needs")}


def test_targets_do_not_share_what_they_declare(tmp_path: Path) -> None:
    first, other = (
        with_quick(tmp_path, *changes) for changes in ((), (("default: 4", "default: 5"),))
    )
    assert everything(quick_service(first)) != everything(quick_service(other))
    for file in (first, other):
        services = catalogue_of(file.target).services
        assert [service for service in services if service not in SHIPPED.services] == [
            quick_service(file)
        ]
    assert "quick" not in SHIPPED.deployable
    again = with_quick(tmp_path)
    assert catalogue_of(again.target) is catalogue_of(first.target)


def test_what_ships_is_not_replaced() -> None:
    assert extend_catalogue({}) is SHIPPED
    extended = extend_catalogue({"haproxy": BALANCER["balancer"]})
    assert extended.deployable["haproxy"] is SHIPPED.deployable["haproxy"]
