"""Map directives of Apache with mod_php to parameters. Its workers are processes (mpm_prefork)."""

from __future__ import annotations

from dataclasses import replace

from autotune.services.adoption import RunningService
from autotune.services.apache import adoption as apache
from autotune.services.directives import Accepts, Adopted, joined, map_directives


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Return every parameter of Apache with mpm_prefork in these files."""
    config = service.config
    adopted = map_directives(config, apache.tunables(config, apache.PREFORK), accepts)
    return joined(adopted, apache.limit(config, "ServerLimit", "MaxRequestWorkers", adopted))


ADOPTION = replace(apache.ADOPTION, tune=tune)
