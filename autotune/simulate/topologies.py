"""From a target to the topology that its model has."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import Role
from autotune.services.registry import DEPLOYMENTS
from autotune.simulate.topology import Hosts, Topology
from autotune.space.facts import HostFacts
from autotune.target.read import TargetFile

# The kind of tier by the roles its first deployment plays, and the field of the topology.
FIELDS = {Role.PROXY: "lb", Role.WEB: "web", Role.CACHE: "cache", Role.STORE: "store"}
WORDS = {"lb": "load balancer", "web": "web server", "cache": "cache", "store": "store"}


def topology(file: TargetFile, facts: Mapping[str, HostFacts]) -> Topology:
    """The chain of a target. Raises TargetError unless it has one tier of each kind."""
    found: dict[str, Hosts] = {}
    for name, tier in file.target.tiers.items():
        roles = {role for _, role in DEPLOYMENTS[tier.service[0]]}
        field = next((f for role, f in FIELDS.items() if role in roles), None)
        if field is None or field in found:
            what = "a second one of its kind" if field else "of no kind it knows"
            raise file.document.error(
                ["tiers", name], f"the model has no place for tier {name}: {what}"
            )
        smallest = [facts[host] for host in tier.hosts]
        found[field] = Hosts(
            tier=name,
            service=tier.service[0],
            count=len(tier.hosts),
            cpus=min(one.cpus for one in smallest),
            memory=min(one.memory for one in smallest),
            nofile=min(one.nofile for one in smallest),
            names=tier.hosts,
        )
    if missing := [words for field, words in WORDS.items() if field not in found]:
        raise file.document.error(
            ["tiers"], f"a simulated stack needs a tier of each kind; there is no {missing[0]}"
        )
    return Topology(**found, data=file.target.data)
