"""What a lab is going to be, before any of it is made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import AutotuneError
from autotune.lab import network
from autotune.lab.plan import (
    LAB_NETWORK,
    LabHost,
    build_plan,
    decode_plan,
    derive_names,
    encode_plan,
    read_plan,
    write_plan,
)

LAB = [
    LabHost("load1", "198.18.0.10"),
    LabHost("lb1", "198.18.0.11", cpus=0.5),
    LabHost("web1", "198.18.0.12", memory=1 << 30),
]


def test_a_small_lab_takes_a_small_subnet() -> None:
    made = build_plan(LAB, Path("/var/lib/lab"))
    assert str(made.network) == "198.18.0.0/24"
    assert str(made.gateway) == "198.18.0.1"
    assert made.format_interface_address("198.18.0.10") == "198.18.0.10/24"


@pytest.mark.parametrize(
    ("addresses", "subnet", "gateway"),
    [
        (["198.18.0.1"], "198.18.0.0/24", "198.18.0.2"),
        (["198.18.0.10", "198.18.1.10"], "198.18.0.0/23", "198.18.0.1"),
        (["198.18.3.10", "198.18.4.10"], "198.18.0.0/21", "198.18.0.1"),
        (["198.18.0.10", "198.19.0.10"], "198.18.0.0/15", "198.18.0.1"),
    ],
)
def test_the_subnet_holds_every_host(addresses: list[str], subnet: str, gateway: str) -> None:
    hosts = [LabHost(f"host{number}", address) for number, address in enumerate(addresses)]
    made = build_plan(hosts, Path("/lab"))
    assert (str(made.network), str(made.gateway)) == (subnet, gateway)


# Within a /24 whose ends are no hosts' addresses.
_ADDRESSES = st.ip_addresses(network=str(LAB_NETWORK)).filter(lambda one: 0 < int(one) % 256 < 255)


@given(st.lists(_ADDRESSES, min_size=1, max_size=6, unique=True))
def test_no_address_is_given_twice(addresses: list[Any]) -> None:
    hosts = [LabHost(f"host{number}", str(address)) for number, address in enumerate(addresses)]
    made = build_plan(hosts, Path("/lab"))
    assert made.gateway not in addresses
    assert made.network.subnet_of(LAB_NETWORK)
    assert all(address in made.network for address in addresses)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([], "the target contains no SSH hosts"),
        ([LabHost("web 1", "198.18.0.1")], "is not a valid lab host name"),
        ([LabHost("../x", "198.18.0.1")], "is not a valid lab host name"),
        ([LabHost("a" * 64, "198.18.0.1")], "is not a valid lab host name"),
        ([LabHost("web1", "10.0.0.1")], "outside 198.18.0.0/15"),
        ([LabHost("web1", "web1")], "not an IPv4 address"),
        ([LabHost("web1", "198.18.0.0")], "is reserved in 198.18.0.0/24"),
        ([LabHost("web1", "198.18.0.255")], "is reserved in 198.18.0.0/24"),
        ([LabHost("web1", "198.18.0.1", cpus=0.001)], "not enough to boot"),
        ([LabHost("web1", "198.18.0.1", memory=1 << 20)], "not enough to boot"),
        ([LabHost("a", "198.18.0.1"), LabHost("a", "198.18.0.2")], "share the name a"),
        ([LabHost("a", "198.18.0.1"), LabHost("b", "198.18.0.1")], "the address 198.18.0.1"),
    ],
)
def test_what_cannot_be_made_is_refused(hosts: list[LabHost], message: str) -> None:
    with pytest.raises(AutotuneError, match=message):
        build_plan(hosts, Path("/lab"))


def test_names_derive_from_the_directory_alone(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert derive_names(tmp_path / "link") == derive_names(tmp_path)
    assert derive_names(tmp_path).tag != derive_names(tmp_path / "other").tag
    made = derive_names(tmp_path)
    for link in (made.bridge, made.format_link_name(0), made.format_link_name(254)):
        assert len(link) <= 15  # IFNAMSIZ
        assert link.startswith(made.link_prefix)


def test_a_host_of_the_lab_is_found_by_name() -> None:
    made = build_plan(LAB, Path("/lab"))
    assert made.find_host("lb1").address == "198.18.0.11"
    with pytest.raises(AutotuneError, match="no host web9") as error:
        made.find_host("web9")
    assert "load1, lb1, web1" in str(error.value.hint)


def test_the_journal_gives_back_what_was_written(tmp_path: Path) -> None:
    made = build_plan(LAB, tmp_path)
    assert read_plan(made.names) is None
    write_plan(made)
    assert read_plan(made.names) == made
    assert [path.name for path in tmp_path.iterdir()] == ["lab.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 99}', '{"schema": 1}'])
def test_a_journal_that_cannot_be_read_is_said_so(tmp_path: Path, text: str) -> None:
    made = derive_names(tmp_path)
    made.plan_file.write_text(text)
    with pytest.raises(AutotuneError, match="cannot be read") as error:
        read_plan(made)
    assert "lab down" in str(error.value.hint)


def test_the_journal_is_plain_json() -> None:
    made = build_plan(LAB, Path("/lab"))
    record = json.loads(json.dumps(encode_plan(made)))
    assert decode_plan(record, made.names) == made
    assert record["hosts"][1] == {
        "name": "lb1",
        "address": "198.18.0.11",
        "cpus": 0.5,
        "memory": None,
    }


def test_each_host_gets_a_cable_and_a_card_of_its_own() -> None:
    made = build_plan(LAB, Path("/lab"))
    lines = network.format_link_batch(made, {"web1": 42, "load1": 41}).splitlines()
    tag = made.names.tag
    (other, card) = (network.derive_hardware_address(made.names, number) for number in (0, 2))
    assert lines == [
        f"link add at{tag}-2 type veth peer name eth0 address {card} netns 42",
        f"link set at{tag}-2 master at{tag}-br up",
        f"link add at{tag}-0 type veth peer name eth0 address {other} netns 41",
        f"link set at{tag}-0 master at{tag}-br up",
    ]


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_cards_are_local_single_and_different(one: int, other: int) -> None:
    lab = derive_names(Path("/lab"))
    address = network.derive_hardware_address(lab, one)
    assert int(address[:2], 16) & 0b11 == 0b10  # locally administered, one station
    assert (address == network.derive_hardware_address(lab, other)) == (one == other)
    assert address != network.derive_hardware_address(replace(lab, tag="000000"), one)


@pytest.mark.parametrize(
    ("destination", "taken"),
    [
        ("default", False),
        ("10.0.0.0/8", False),
        ("128.0.0.0/1", False),  # half of a default route of OpenVPN
        ("198.18.1.0/24", False),
        ("198.18.0.0/15", True),
        ("198.18.0.0/24", True),
        ("198.18.0.77", True),
    ],
)
def test_a_route_into_the_subnet_is_noticed(destination: str, taken: bool) -> None:
    routes = [{"dst": "default", "dev": "eth0"}, {"dst": destination, "dev": "other"}]
    found = network.find_overlapping_route(routes, build_plan(LAB, Path("/lab")).network)
    assert found == ("other" if taken else None)
