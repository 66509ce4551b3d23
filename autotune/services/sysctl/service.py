"""The kernel of a tier's hosts: what it lets wait, how it keeps connections, what it may open."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import Readback, Role, Service, Settings, Site, Value
from autotune.services.readback import number
from autotune.services.sysctl.parameters import PARAMETERS

# What choices there are, where the host itself says so.
CHOICES_IN = {"net.ipv4.tcp_congestion_control": "net.ipv4.tcp_available_congestion_control"}
# In a network namespace of its own, a host may have only those choices (tcp_set_default_congestion_
# control in the kernel's net/ipv4/tcp_cong.c); and that it is in one shows by what it does not have.
NARROWED_TO = {"net.ipv4.tcp_congestion_control": "net.ipv4.tcp_allowed_congestion_control"}
WHOLE_MACHINE = "net.core.netdev_max_backlog"
KEYS = (
    *(parameter.name for parameter in PARAMETERS),
    *CHOICES_IN.values(),
    *NARROWED_TO.values(),
)


class Sysctl(Service):
    """No process and no file: the fleet sets, reads back and restores the values."""

    name = "sysctl"
    title = "kernel"
    role = Role.HOST
    packages = ("procps",)
    parameters = PARAMETERS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"sysctl": ("sysctl",)}

    def sysctls(self, site: Site, settings: Settings) -> Mapping[str, str]:
        """Kernel values by their own names, of those that the study sets on this tier."""
        prefix = f"{site.tier}.{self.name}."
        named = ((p.name, settings.get(prefix + p.name)) for p in self.parameters)
        return {name: str(value) for name, value in named if value is not None}

    def effective(self, site: Site) -> tuple[Readback, ...]:
        keys = tuple(parameter.name for parameter in self.parameters)
        # Keys that this kernel does not have are only complained about, on standard error.
        return (Readback((site.programs["sysctl"], "-e", *keys), in_effect),)


SERVICES = (Sysctl(),)


def in_effect(text: str) -> dict[str, Value]:
    """Values out of the ``key = value`` lines of sysctl(8)."""
    rows = (line.partition(" = ") for line in text.splitlines())
    names = {parameter.name for parameter in PARAMETERS}
    return {key: number(" ".join(value.split())) for key, mark, value in rows
            if mark and key in names}  # fmt: skip
