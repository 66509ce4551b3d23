"""Prints the distribution's packages of services whose programs this machine lacks, one a line."""

from __future__ import annotations

from autotune.deploy.programs import local_programs
from autotune.errors import AutotuneError
from autotune.services.registry import ALL

for service in ALL:
    try:
        local_programs([service])
    except AutotuneError:
        if not service.elsewhere:
            print(*service.packages, sep="\n")
