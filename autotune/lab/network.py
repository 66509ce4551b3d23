"""The bridge the hosts of a lab share with this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Network

from autotune.errors import AutotuneError
from autotune.lab.lock import alone_with_links, run_checked
from autotune.lab.plan import LabHost, LabPlan, Names

_BRIDGE = 0xFFFF  # the number its address is made of; hosts count from 0


def make_bridge(plan: LabPlan) -> None:
    """Make the lab's bridge, with this machine's address on it; leaves one that is there alone.

    Raises ``AutotuneError`` if another link already leads to the lab's addresses.
    """
    with alone_with_links():
        if plan.names.bridge not in links(plan.names):
            _add_bridge(plan)


def _add_bridge(plan: LabPlan) -> None:
    bridge = plan.names.bridge
    routes = json.loads(run_checked(["ip", "-json", "-4", "route", "show", "table", "all"]))
    device = overlapping(routes, plan.network)
    if device is not None:
        raise AutotuneError(
            f"{plan.network} is already reached through {device}",
            hint="another lab may be up: bring it down, or give these hosts other addresses",
        )
    run_checked(
        ["ip", "-batch", "-"],
        text=f"link add {bridge} address {hardware_address(plan.names, _BRIDGE)} type bridge\n"
        f"addr add {plan.interface(str(plan.gateway))} dev {bridge}\n"
        f"link set {bridge} up\n",
    )


def hardware_address(names: Names, number: int) -> str:
    """A locally administered Ethernet address (IEEE 802) that is nobody else's.

    It stays the same when a host stops and starts again, as that of a network card does: a
    neighbour that remembered another one would not find the host for a while.
    """
    tag = [names.tag[i : i + 2] for i in (0, 2, 4)]
    return ":".join(["02", *tag, f"{number >> 8:02x}", f"{number & 0xFF:02x}"])


def cables(plan: LabPlan, pids: Mapping[str, int]) -> str:
    """The ``ip -batch`` input that ties the network namespaces of ``pids`` to the bridge."""
    numbers = {host.name: number for number, host in enumerate(plan.hosts)}
    lines = []
    for name, pid in pids.items():
        link = plan.names.link(numbers[name])
        card = hardware_address(plan.names, numbers[name])
        lines.append(f"link add {link} type veth peer name eth0 address {card} netns {pid}")
        lines.append(f"link set {link} master {plan.names.bridge} up")
    return "\n".join(lines) + "\n"


def links(names: Names) -> tuple[str, ...]:
    """Links of this lab that exist, whoever made them; the bridge comes last."""
    existing = [link["ifname"] for link in json.loads(run_checked(["ip", "-json", "link", "show"]))]
    own = [name for name in existing if name.startswith(names.link_prefix)]
    return tuple(sorted(own, key=lambda name: (name == names.bridge, name)))


def remove_links(names: Names) -> None:
    """Delete every link of the lab."""
    for link in links(names):
        _remove(names, link)


def remove_cable(plan: LabPlan, host: LabHost) -> None:
    """Delete the cable of a host that has ended, which the kernel would do a little later."""
    link = plan.names.link(plan.hosts.index(host))
    if link in links(plan.names):
        _remove(plan.names, link)


def _remove(names: Names, link: str) -> None:
    try:
        run_checked(["ip", "link", "delete", link])
    except AutotuneError:  # it may have vanished meanwhile, with its namespace
        if link in links(names):
            raise


def overlapping(routes: list[dict[str, str]], network: IPv4Network) -> str | None:
    """The device of a route into ``network`` (as ``ip -json route`` lists them), if any."""
    for route in routes:
        destination = route.get("dst", "default")
        if destination == "default":
            continue
        if IPv4Network(destination, strict=False).overlaps(network):
            return route.get("dev", destination)
    return None
