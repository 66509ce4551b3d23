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
# Prints the limits of each unit's main process, and the limit in the unit's files. The unit names are
# arguments and never part of the script.
_READ_LIMITS_SCRIPT = """
for unit; do
    cat "/proc/$(systemctl show --property MainPID --value "$unit")/limits"
    systemctl show --property LimitNOFILESoft "$unit"
done
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
        units = [unit for service in self.services if (unit := service.get_unit(placement))]
        read_limits = Readback(("sh", "-c", _READ_LIMITS_SCRIPT, "sh", *units), parse_open_files)
        return (read_limits,) if units else ()


SERVICES = (Limits(),)
DIAGNOSIS = Diagnosis(
    counter_query=None, find_log=None, recommended_changes={Resource.DESCRIPTORS: ("nofile+",)}
)


def parse_open_files(output: str) -> dict[str, Value]:
    """Return the lowest soft limit of open files: in ``/proc/PID/limits``, and in the files of the
    units.

    The two limits of a unit differ if the software raises its own soft limit at startup. If a unit has
    no process, the result is empty.
    """
    current_limits = _CURRENT_LIMIT_PATTERN.findall(output)
    unit_limits = _UNIT_LIMIT_PATTERN.findall(output)
    if not current_limits or len(current_limits) < output.count("LimitNOFILESoft="):
        return {}
    return {"nofile": min(map(int, (*current_limits, *unit_limits)))}
