from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.space import kernel
from autotune.space.dimension import AdoptedValues
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from tests.space.targets import KERNEL, ROOMY, fleet

OTHER = replace(ROOMY, kernel_values={**KERNEL, "net.core.somaxconn": "128"})


def test_the_baseline_is_what_the_host_has(tmp_path: Path) -> None:
    space = fleet(tmp_path)
    found = {d.name.removeprefix("web.sysctl."): d for d in space.dimensions
             if d.name.startswith("web.sysctl.")}  # fmt: skip
    assert {name: d.baseline for name, d in found.items()} == {
        "net.core.somaxconn": 4096,
        "net.ipv4.tcp_tw_reuse": 2,
        "net.ipv4.ip_local_port_range": "32768 60999",
        "net.ipv4.tcp_congestion_control": "bbr",
    }
    assert found["net.ipv4.tcp_congestion_control"].choices == ("bbr", "reno", "cubic")
    assert found["net.ipv4.ip_local_port_range"].recommended == "16384 65535"


@pytest.mark.parametrize(
    ("more", "choices"),
    [
        ({"net.ipv4.tcp_allowed_congestion_control": "reno"}, ("bbr", "reno")),
        ({"net.ipv4.tcp_allowed_congestion_control": "reno", "net.core.netdev_max_backlog": "1000"},
         ("bbr", "reno", "cubic")),
    ],
    ids=["a network of its own", "the whole machine"],
)  # fmt: skip
def test_a_container_chooses_from_what_the_kernel_lets_it_have(
    tmp_path: Path, more: dict[str, str], choices: tuple[str, ...]
) -> None:
    space = fleet(tmp_path, web1=replace(ROOMY, kernel_values={**KERNEL, **more}))
    name = "web.sysctl.net.ipv4.tcp_congestion_control"
    assert next(d.choices for d in space.dimensions if d.name == name) == choices


def test_what_cannot_be_set_is_left_out_with_a_line_that_says_why(tmp_path: Path) -> None:
    space = fleet(tmp_path, "parameters: {web.sysctl.net.ipv4.tcp_tw_recycle: {fixed: 1}}\n")
    absent, fixed = (line for line in space.excluded if "web.sysctl" in line)
    assert "net.ipv4.tcp_tw_recycle" in absent
    assert absent.endswith(": this kernel does not support it (lb1, web1, mc1, db1)")
    assert fixed.endswith(
        " without fs.file-max: it cannot be written on this host (lb1, web1, mc1, db1)"
    )
    assert not any("tcp_tw_recycle" in name for name in space.baseline)


@pytest.mark.parametrize(
    ("rule", "value", "tunable"),
    [
        ("vm.swappiness: {range: [0, 60]}", 60, True),
        ("vm.swappiness: {fixed: 10}", 10, False),
        ("net.core.somaxconn: {fixed: 1024}", 1024, False),
        ("net.ipv4.tcp_rmem: {choices: [4096 131072 33554432, 4096 16384 4194304]}",
         "4096 131072 33554432", True),
    ],
)  # fmt: skip
def test_the_target_may_ask_for_more_and_fix_what_it_likes(
    tmp_path: Path, rule: str, value: object, tunable: bool
) -> None:
    space = fleet(tmp_path, f"parameters: {{web.sysctl.{rule}}}\n")
    name = f"web.sysctl.{rule.partition(':')[0]}"
    assert space.baseline[name] == value
    assert (name in {d.name for d in space.tunable_dimensions}) is tunable


def test_hosts_of_a_tier_that_differ_are_pointed_out(tmp_path: Path) -> None:
    space = fleet(tmp_path, web2=OTHER)
    assert space.baseline["web.sysctl.net.core.somaxconn"] == 4096
    assert (
        "web.sysctl.net.core.somaxconn is 4096 on web1 and 128 on web2: "
        "the baseline uses the value of web1" in space.excluded
    )


def test_a_host_has_one_kernel_however_many_tiers(tmp_path: Path) -> None:
    space = fleet(tmp_path, "", ("hosts: mc1", "hosts: web1"))
    assert "web.sysctl.net.core.somaxconn" in space.baseline
    assert "cache.sysctl.net.core.somaxconn" not in space.baseline
    (line,) = (line for line in space.excluded if line.startswith("cache.sysctl: "))
    assert line.endswith("the kernel of web1 is tuned as part of tier web")


def test_private_processes_leave_the_kernel_and_limits_alone(tmp_path: Path) -> None:
    everywhere = ("service: ", "runtime: embedded, service: ")
    space = fleet(tmp_path, "", everywhere)
    assert not any(".sysctl." in name or ".limits." in name for name in space.baseline)
    assert space.excluded == ()


def test_limits_reach_what_the_host_allows(tmp_path: Path) -> None:
    space = fleet(tmp_path, web2=replace(ROOMY, nofile=30_000))
    limits = {d.name: (d.baseline, d.high) for d in space.dimensions if ".limits." in d.name}
    assert limits["web.limits.nofile"] == (1024, 30_000)
    assert limits["lb.limits.nofile"] == (1024, 100_000)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "web.sysctl.net.ipv4.tcp_congestion_control: {default: cubic}",
        "web.sysctl.net.core.somaxconn: {default: 4096}",
        "web.sysctl.vm.swappiness: {default: 60}",
    ],
)
def test_a_resumed_study_keeps_the_baselines_that_it_recorded(tmp_path: Path, rule: str) -> None:
    """A killed session leaves its last values on the hosts.

    Optuna accepts no other order of choices in a resumed study.
    """
    kernel_values = {
        **KERNEL,
        "net.core.somaxconn": "100",  # below the range of the catalogue
        "net.ipv4.tcp_available_congestion_control": "reno bbr cubic htcp",
        "vm.swappiness": "30",
    }
    host = replace(ROOMY, kernel_values=kernel_values)
    left_values = {"net.core.somaxconn": "65535", "net.ipv4.tcp_congestion_control": "cubic"}
    hosts = ("lb1", "web1", "web2", "mc1", "db1")
    fleet(tmp_path, f"parameters: {{{rule}}}\n")
    target_file = read_target(tmp_path / "fleet.yaml")
    first = build_space(target_file, dict.fromkeys(hosts, host))
    facts = dict.fromkeys(hosts, replace(host, kernel_values={**kernel_values, **left_values}))
    recorded = AdoptedValues(
        kernel.list_host_values(target_file.target, first.dimensions, dict.fromkeys(hosts, host))
    )
    resumed = build_space(target_file, facts, recorded)
    assert resumed.dimensions == first.dimensions
    assert build_space(target_file, facts).baseline != first.baseline
