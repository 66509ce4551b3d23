"""systemd's limit of open files for a tier's units. Each unit gets a drop-in in addition to the
distribution's drop-ins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from autotune.services.base import (
    ConfigFile,
    Parameter,
    Placement,
    Programs,
    Readback,
    Role,
    Service,
    Value,
    on_restart,
)
from autotune.services.diagnosis import Diagnosis, Resource

DROP_IN_PATH = "/etc/systemd/system/{unit}.d/autotune.conf"
NOFILE_PARAMETER = on_restart("nofile", "Open-file limit of the tier's units at start.",
    low=1024, high="nofile", log=True, stock=1024, recommended="min(65535, nofile)",
    source="systemd.exec(5), LimitNOFILE; reference stack", direction="+",
    safe=(1024, "nofile"))  # fmt: skip
# Prints the limits of a unit's main process, and the limit in the unit's files. The unit name is an
# argument and never part of the script.
_READ_LIMITS_SCRIPT = """
cat "/proc/$(systemctl show --property MainPID --value "$1")/limits"
systemctl show --property LimitNOFILESoft "$1"
"""
_CURRENT_LIMIT_PATTERN = re.compile(r"^Max open files\s+([0-9]{1,19})\s", re.MULTILINE)
_UNIT_LIMIT_PATTERN = re.compile(r"^LimitNOFILESoft=([0-9]{1,19})$", re.MULTILINE)


@dataclass(frozen=True)
class Limits(Service):
    """Drop-ins that limit the open files of ``services``, which run together in one deployment."""

    name = "limits"
    title = "unit limits"
    role = Role.HOST
    per_deployment = True
    services: tuple[Service, ...] = ()

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the open-files limit as a parameter. The parameter's stock value is LimitNOFILE in the
        distribution's unit, if the unit sets it.
        """
        raised_limits = [
            service.unit_nofile
            for service in self.services
            if service.unit_nofile != NOFILE_PARAMETER.stock
        ]
        return (
            (replace(NOFILE_PARAMETER, stock=raised_limits[0]),)
            if raised_limits
            else (NOFILE_PARAMETER,)
        )

    @property
    def programs(self) -> Programs:
        """Return the programs of all services, because unit names may depend on program versions."""
        return {
            name: paths for service in self.services for name, paths in service.programs.items()
        }

    def for_deployment(self, services: tuple[Service, ...]) -> Limits:
        return Limits(services)

    def list_config_files(self, placement: Placement) -> tuple[ConfigFile, ...]:
        return tuple(
            ConfigFile(DROP_IN_PATH.format(unit=unit), service.limits_template)
            for service in self.services
            if (unit := service.get_unit(placement))
        )

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return tuple(
            Readback(("sh", "-c", _READ_LIMITS_SCRIPT, "sh", unit), parse_open_files)
            for service in self.services
            if (unit := service.get_unit(placement))
        )


SERVICES = (Limits(),)
DIAGNOSIS = Diagnosis(
    counter_query=None, find_log=None, recommended_changes={Resource.DESCRIPTORS: ("nofile+",)}
)


def parse_open_files(output: str) -> dict[str, Value]:
    """Return the lower of two soft limits of open files: in ``/proc/PID/limits``, and in the unit.

    The two limits differ if the software raises its own soft limit at startup.
    """
    current_limit = _CURRENT_LIMIT_PATTERN.search(output)
    soft_limits = [
        int(match[1]) for match in (current_limit, _UNIT_LIMIT_PATTERN.search(output)) if match
    ]
    return {"nofile": min(soft_limits)} if current_limit else {}
