"""What a user may write of a sweep: axes, host counts, sweep files; and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError, UsageError
from autotune.space.facts import HostFacts
from autotune.space.target_space import build_space
from autotune.sweep import request
from autotune.sweep.plan import SweepPlan
from tests.sweep import modelled

SWEEPS = Path(__file__).parents[2] / "targets" / "sweeps"


def build_plan(tmp_path: Path, *over: str, **more: list[str]) -> SweepPlan:
    path = modelled.written(tmp_path)
    file, wanted = request.build_request(
        path, over, more.get("hosts"), more.get("with_"), [100.0], None, peak=False
    )
    return request.build_plan(file, wanted, prepare(file).space)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("100:500:100", ["100", "200", "300", "400", "500"]),
        ("5:50:20", ["5", "25", "45"]),
        ("1.05:1.25:0.1", ["1.05", "1.15", "1.25"]),
        ("7", ["7"]),
        ("poll, epoll", ["poll", "epoll"]),
    ],
)
def test_values_are_spread(text: str, values: list[str]) -> None:
    assert request.expand_values(text) == values


@pytest.mark.parametrize("text", ["1:2", "2:1:1", "1:2:0", "a:b:c", "1:9999999:1", "1:2:3:4"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(AutotuneError, match="range"):
        request.expand_values(text)


def test_values_are_those_of_their_parameter(tmp_path: Path) -> None:
    plan = build_plan(
        tmp_path,
        "lb.nginx.worker_connections=1000:2000:500",
        "web.nginx.use=poll,epoll",
        "lb.nginx.multi_accept=off,on",
        "cache.memcached.memory=64MB,1GB",
    )
    values = {axis.name: [choice.label for choice in axis.choices] for axis in plan.axes}
    assert values == {
        "lb.nginx.worker_connections": [1000, 1500, 2000],
        "web.nginx.use": ["poll", "epoll"],
        "lb.nginx.multi_accept": [False, True],
        "cache.memcached.memory": [64, 1024],
    }
    assert plan.keys == 100


def test_service_is_every_deployment(tmp_path: Path) -> None:
    plan = build_plan(tmp_path, "service=all", hosts=["web=1,2"])
    assert len(plan.points) == 8
    assert plan.points[3].settings == {
        "lb.service": "apache", "web.service": "apache+mod_php",
    }  # fmt: skip
    one = build_plan(tmp_path, "service=apache/nginx+php-fpm")
    assert one.points[0].labels == {"service": "apache, nginx+php-fpm"}


@pytest.mark.parametrize(
    ("over", "more", "said"),
    [
        ("lb.nginx.worker_connection=1,2", {}, "no parameter"),
        ("lb.nginx.worker_connections=many", {}, "not a number"),
        ("lb.nginx.worker_connections=10.5", {}, "not a whole number"),
        ("lb.nginx.use=kqueue", {}, "cannot be kqueue"),
        ("lb.nginx.use", {}, "missing values"),
        ("service=varnish/nginx", {}, "unknown service"),
        ("lb.nginx.use=epoll", {"hosts": ["web=1,3"]}, "lists 2 hosts, not 3"),
        ("lb.nginx.use=epoll", {"hosts": ["app=1"]}, "unknown tier"),
        ("lb.nginx.use=epoll", {"hosts": ["web=few"]}, "expected numbers"),
        ("lb.nginx.use=epoll", {"with_": ["lb.service"]}, "missing value"),
        ("lb.apache.ServerLimit=100,200", {}, "no effect"),
        ("lb.nginx.use=epoll", {"hosts": ["web=1,1"]}, "--hosts web: 1 is listed twice"),
        ("cache.memcached.memory=1024MB,1GB", {}, "memcached.memory: 1024 is listed twice"),
        ("service=nginx/nginx+php-fpm,nginx/nginx+php-fpm", {}, "--over service: .* twice"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, over: str, more: dict[str, list[str]], said: str
) -> None:
    with pytest.raises(AutotuneError, match=said):
        build_plan(tmp_path, over, **more)


ADOPTED = """\
name: shop
slo: {p99: 50ms}
hosts: {lb1: {address: 10.0.0.9}, web1: {address: 10.0.0.1}, web2: {address: 10.0.0.2}}
tiers:
  lb: {hosts: lb1, service: nginx, forwards_to: web}
  web: {hosts: [web1, web2], service: nginx+php-fpm}
load: {path: /}
"""


@pytest.mark.parametrize(
    ("old", "new", "counts", "refused"),
    [
        ("load:", "load:", "web=1,2", "lb"),
        ("nginx, forwards_to", "nginx, replace: true, forwards_to", "web=1,2", None),
        ("lb1, service: nginx", "lb1, replace: true, templates: own, service: nginx", "lb=1", None),
        ("service: nginx", "templates: own, service: nginx", "web=1,2", "lb"),
        ("load:", "load:", "web=2", None),
        ("load:", "replace: true\nload:", "web=1,2", None),
        ("load:", "load:", "lb=1", None),
    ],
)
def test_hosts_whose_own_files_name_them_are_not_left_out(
    tmp_path: Path, old: str, new: str, counts: str, refused: str | None
) -> None:
    path, record = tmp_path / "shop.yaml", tmp_path / "own" / "files.json"
    path.write_text(ADOPTED.replace(old, new))
    record.parent.mkdir()
    record.write_text('{"lb.lb1.nginx": {"files": {}, "listen": ""}}')
    file, wanted = request.build_request(path, None, [counts], None, [100.0], None, peak=False)
    space = build_space(file, dict.fromkeys(file.target.hosts, HostFacts(2, 2**31, 65_536)))
    if refused is None:
        assert request.build_plan(file, wanted, space).points
        return
    with pytest.raises(UsageError, match=rf"^--hosts.*: tier {refused} keeps its hosts' own files"):
        request.build_plan(file, wanted, space)


def test_a_grid_that_would_take_days_is_refused(tmp_path: Path) -> None:
    over = ("lb.nginx.worker_connections=1000:1999:1", "web.php_fpm.max_children=10:20:1")
    with pytest.raises(UsageError, match="contains 11,000 points, and the maximum is 10,000"):
        build_plan(tmp_path, *over)


def test_a_command_has_no_grid_of_rates(tmp_path: Path) -> None:
    path = tmp_path / "command.yaml"
    path.write_text(
        "name: toy\ncommand: [cat]\nmaximize: rows\nparameters: {threads: {range: [1, 8]}}\n"
    )
    for rates in ([100.0], []):
        with pytest.raises(UsageError, match="needs a stack, and the target is a command"):
            request.build_request(path, ["threads=1,2"], None, None, rates, None, peak=not rates)


def test_a_setting_that_makes_an_axis_matter_is_told(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError) as caught:
        build_plan(tmp_path, "lb.apache.ServerLimit=100,200")
    assert caught.value.hint == "add --set lb.service=apache"
    plan = build_plan(tmp_path, "lb.apache.ServerLimit=100,200", with_=["lb.service=apache"])
    assert plan.settings == {"lb.service": "apache"}


def test_rate_and_peak_exclude_each_other_and_one_is_needed(tmp_path: Path) -> None:
    path = modelled.written(tmp_path)
    over = ["lb.nginx.use=epoll,poll"]
    with pytest.raises(AutotuneError, match="cannot be combined"):
        request.build_request(path, over, None, None, [100.0], None, peak=True)
    with pytest.raises(AutotuneError, match="missing --rate or --peak"):
        request.build_request(path, over, None, None, None, None, peak=False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ovr: {lb.nginx.use: [epoll]}", "unknown key 'ovr'"),
        ("over: 5", "over: must be a mapping, not 5"),
        ("over:", "over: must be a mapping, not nothing"),
        ("over: {lb.nginx.use: }", "nothing is not a valid value"),
        ("over: {lb.nginx.use: [[epoll]]}", "a list is not a valid value"),
        ("over: {lb.nginx.use: ','}", "contains no value"),
        ("over: {lb.nginx.use: [epoll]}\nseconds: 0s", "seconds: must be above 0"),
        ("over: {lb.nginx.use: [epoll]}\nseconds: 61m", "seconds: must be at most 1h"),
        ("over: {lb.nginx.use: '1:2'}", "not a range"),
        ("over: {lb.nginx.use: [epoll]}\nrates: 100rps", "rates: unknown unit 'rps'"),
        ("over: {lb.nginx.use: [epoll]}\nrates: [1/s, 1]", "rates: must list each rate once"),
        ("over: {lb.nginx.use: [epoll]}\nhosts: {web: two}", "host counts"),
        ("over: {lb.nginx.use: [epoll]}\nrepeat: 0", "repeat"),
        ("over: {lb.nginx.use: [epoll]}\nseconds: 5", "seconds"),
    ],
)
def test_a_mistake_in_a_sweep_file_is_shown_in_its_line(
    tmp_path: Path, line: str, said: str
) -> None:
    modelled.written(tmp_path)
    path = tmp_path / "sweep.yaml"
    path.write_text(f"target: modelled.yaml\n{line}\n")
    with pytest.raises(AutotuneError, match=said) as caught:
        request.read_sweep_file(path)
    assert caught.value.message.startswith(f"{path}:")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("over: {lb.nginx.used: [epoll]}", "sweep.yaml:2:8: the target has no parameter"),
        ("over: {lb.nginx.use: [epol]}", "sweep.yaml:2:8: lb.nginx.use cannot be epol"),
        ("over: {lb.nginx.use: [epoll]}\nhosts: {wbe: 1}", "sweep.yaml:3:9: unknown tier 'wbe'"),
        ("over: {lb.nginx.use: [epoll]}\nhosts: {web: 9}", "sweep.yaml:3:9: tier web lists"),
        ("over: {lb.nginx.use: [epoll]}\nwith: {lb.service: x}", "sweep.yaml:3:8: lb.service"),
        ("over: {lb.nginx.use: [epoll, epoll]}", "sweep.yaml:2:8: epoll is listed twice"),
        (
            "over: {lb.nginx.use: [epoll]}\nhosts: {web: [2, 2]}",
            "sweep.yaml:3:9: 2 is listed twice",
        ),
    ],
)
def test_a_mistake_found_with_the_target_is_shown_in_its_line_too(
    tmp_path: Path, line: str, said: str
) -> None:
    modelled.written(tmp_path)
    path = tmp_path / "sweep.yaml"
    path.write_text(f"target: modelled.yaml\n{line}\nrates: 100/s\n")
    file, wanted = request.build_request(path, None, None, None, None, None, peak=False)
    with pytest.raises(AutotuneError) as caught:
        request.build_plan(file, wanted, prepare(file).space)
    assert said in caught.value.message


def test_a_sweep_without_a_title_has_the_name_of_its_file(tmp_path: Path) -> None:
    modelled.written(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text("target: modelled.yaml\ntitle:\nover: {lb.nginx.use: [epoll]}\n")
    _, wanted = request.read_sweep_file(path)
    assert wanted is not None
    assert wanted.title == "mine"


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*figure*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_sweep_fits_its_target(path: Path) -> None:
    file, wanted = request.read_sweep_file(path)
    assert wanted is not None
    facts = {
        name: HostFacts(host.cpus or 1, host.memory or 2**29, 65_536)
        for name, host in file.target.hosts.items()
    }
    plan = request.build_plan(file, wanted, build_space(file, facts))
    assert plan.points
    assert max(plan.rates) <= file.target.load.max_rate


def test_each_reference_figure_is_there_twice() -> None:
    numbers = set(range(2, 11))
    assert {f"figure-{n}.yaml" for n in numbers} <= {p.name for p in SWEEPS.iterdir()}
    # One sweep measures figures 8 to 10.
    lab_numbers = numbers - {9, 10}
    assert {f"lab-figure-{n}.yaml" for n in lab_numbers} <= {p.name for p in SWEEPS.iterdir()}
