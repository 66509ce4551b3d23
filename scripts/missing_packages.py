"""Prints the distribution's packages of services whose programs this machine lacks, one a line."""

from __future__ import annotations

from autotune.deploy.programs import find_local_programs
from autotune.errors import AutotuneError
from autotune.services.registry import ALL_SERVICES

for service in ALL_SERVICES:
    try:
        find_local_programs([service])
    except AutotuneError:
        if not service.package_source:
            print(*service.packages, sep="\n")
