"""The bridge that connects a lab's hosts with this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Network

from autotune.errors import AutotuneError
from autotune.lab.lock import lock_network, run_checked
from autotune.lab.plan import LAB_NETWORK, LabHost, LabNames, LabPlan

_BRIDGE_NUMBER = 0xFFFF  # the bridge's number in its hardware address; hosts count from 0


def make_bridge(plan: LabPlan) -> None:
    """Create the lab's bridge with this machine's address, unless the bridge exists.

    Raises ``AutotuneError`` if another link already leads to the lab's addresses.
    """
    with lock_network():
        if plan.names.bridge not in list_links(plan.names):
            _add_bridge(plan)


def _add_bridge(plan: LabPlan) -> None:
    bridge = plan.names.bridge
    routes = json.loads(run_checked(["ip", "-json", "-4", "route", "show", "table", "all"]))
    device = find_overlapping_route(routes, plan.network)
    if device is not None:
        raise AutotuneError(
            f"network {plan.network} is already in use by {device}",
            hint="remove the other lab, or choose other addresses for these hosts",
        )
    mac_address = derive_hardware_address(plan.names, _BRIDGE_NUMBER)
    run_checked(
        ["ip", "-batch", "-"],
        input_text=f"link add {bridge} address {mac_address} type bridge\n"
        f"addr add {plan.format_interface_address(str(plan.gateway))} dev {bridge}\n"
        f"link set {bridge} up\n",
    )


def derive_hardware_address(lab_names: LabNames, host_number: int) -> str:
    """Return a unique and locally administered Ethernet address (IEEE 802).

    Like the address of a network card, the address stays the same when a host restarts. If the address
    changed, neighbours would use a stale address for a while.
    """
    tag_bytes = [lab_names.tag[i : i + 2] for i in (0, 2, 4)]
    return ":".join(["02", *tag_bytes, f"{host_number >> 8:02x}", f"{host_number & 0xFF:02x}"])


def format_link_batch(plan: LabPlan, pids_by_host: Mapping[str, int]) -> str:
    """Return the ``ip -batch`` input that connects the namespaces of ``pids_by_host`` to the bridge."""
    host_numbers = {host.name: host_number for host_number, host in enumerate(plan.hosts)}
    batch_lines = []
    for host_name, pid in pids_by_host.items():
        link = plan.names.format_link_name(host_numbers[host_name])
        mac_address = derive_hardware_address(plan.names, host_numbers[host_name])
        batch_lines.append(
            f"link add {link} type veth peer name eth0 address {mac_address} netns {pid}"
        )
        batch_lines.append(f"link set {link} master {plan.names.bridge} up")
    return "\n".join(batch_lines) + "\n"


def list_links(lab_names: LabNames) -> tuple[str, ...]:
    """Return the existing links of this lab, with the bridge last."""
    existing_links = [
        link["ifname"] for link in json.loads(run_checked(["ip", "-json", "link", "show"]))
    ]
    own_links = [name for name in existing_links if name.startswith(lab_names.link_prefix)]
    return tuple(sorted(own_links, key=lambda name: (name == lab_names.bridge, name)))


def remove_links(lab_names: LabNames) -> None:
    """Delete every link of the lab."""
    for link in list_links(lab_names):
        _remove_link(lab_names, link)


def remove_host_link(plan: LabPlan, host: LabHost) -> None:
    """Delete the link of a stopped host, without waiting for the kernel to delete it."""
    link = plan.names.format_link_name(plan.hosts.index(host))
    if link in list_links(plan.names):
        _remove_link(plan.names, link)


def _remove_link(lab_names: LabNames, link: str) -> None:
    try:
        run_checked(["ip", "link", "delete", link])
    except AutotuneError:  # the link may have vanished with its namespace
        if link in list_links(lab_names):
            raise


def find_overlapping_route(routes: list[dict[str, str]], network: IPv4Network) -> str | None:
    """Return the device of a route into ``network``, or ``None``. ``routes`` is the output of ``ip
    -json route``.

    Routes that are larger than `plan.LAB_NETWORK` are ignored, such as 128.0.0.0/1, with which VPNs
    replace the default route.
    """
    for route in routes:
        destination = route.get("dst", "default")
        if destination == "default":
            continue
        destination_network = IPv4Network(destination, strict=False)
        is_general = destination_network.prefixlen < LAB_NETWORK.prefixlen
        if destination_network.overlaps(network) and not is_general:
            return route.get("dev", destination)
    return None
