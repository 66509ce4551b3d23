"""Bridge that connects the hosts of a lab with this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Network

from autotune.errors import AutotuneError
from autotune.lab.lock import alone_with_links, run_checked
from autotune.lab.plan import LabHost, LabPlan, Names

_BRIDGE = 0xFFFF  # number in the bridge's hardware address; hosts count from 0


def make_bridge(plan: LabPlan) -> None:
    """Create the lab's bridge with this machine's address, unless it exists.

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
            f"network {plan.network} is already in use by {device}",
            hint="remove the other lab, or choose other addresses for these hosts",
        )
    run_checked(
        ["ip", "-batch", "-"],
        text=f"link add {bridge} address {hardware_address(plan.names, _BRIDGE)} type bridge\n"
        f"addr add {plan.interface(str(plan.gateway))} dev {bridge}\n"
        f"link set {bridge} up\n",
    )


def hardware_address(names: Names, number: int) -> str:
    """Return a unique, locally administered Ethernet address (IEEE 802).

    It does not change when a host restarts, like the address of a network card. Otherwise
    neighbours would use a stale address for a while.
    """
    tag = [names.tag[i : i + 2] for i in (0, 2, 4)]
    return ":".join(["02", *tag, f"{number >> 8:02x}", f"{number & 0xFF:02x}"])


def cables(plan: LabPlan, pids: Mapping[str, int]) -> str:
    """Return the ``ip -batch`` input that connects the namespaces of ``pids`` to the bridge."""
    numbers = {host.name: number for number, host in enumerate(plan.hosts)}
    lines = []
    for name, pid in pids.items():
        link = plan.names.link(numbers[name])
        card = hardware_address(plan.names, numbers[name])
        lines.append(f"link add {link} type veth peer name eth0 address {card} netns {pid}")
        lines.append(f"link set {link} master {plan.names.bridge} up")
    return "\n".join(lines) + "\n"


def links(names: Names) -> tuple[str, ...]:
    """Return the existing links of this lab, with the bridge last."""
    existing = [link["ifname"] for link in json.loads(run_checked(["ip", "-json", "link", "show"]))]
    own = [name for name in existing if name.startswith(names.link_prefix)]
    return tuple(sorted(own, key=lambda name: (name == names.bridge, name)))


def remove_links(names: Names) -> None:
    """Delete every link of the lab."""
    for link in links(names):
        _remove(names, link)


def remove_cable(plan: LabPlan, host: LabHost) -> None:
    """Delete the link of a stopped host without waiting for the kernel to do it."""
    link = plan.names.link(plan.hosts.index(host))
    if link in links(plan.names):
        _remove(plan.names, link)


def _remove(names: Names, link: str) -> None:
    try:
        run_checked(["ip", "link", "delete", link])
    except AutotuneError:  # it may have vanished with its namespace
        if link in links(names):
            raise


def overlapping(routes: list[dict[str, str]], network: IPv4Network) -> str | None:
    """Return the device of a route into ``network``, if any. ``routes`` is ``ip -json route``
    output.
    """
    for route in routes:
        destination = route.get("dst", "default")
        if destination == "default":
            continue
        if IPv4Network(destination, strict=False).overlaps(network):
            return route.get("dev", destination)
    return None
