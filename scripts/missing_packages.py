"""Print the packages that services need and that are not installed here, one per line."""

from __future__ import annotations

from autotune.deploy.programs import find_local_programs
from autotune.errors import AutotuneError
from autotune.services.registry import SHIPPED

for service in SHIPPED.services:
    try:
        find_local_programs([service])
    except AutotuneError:
        if not service.package_source:
            print(*service.packages, sep="\n")
