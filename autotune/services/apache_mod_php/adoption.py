"""Which directives of Apache with mod_php are parameters: those of mpm_prefork, whose workers are
processes."""

from __future__ import annotations

from dataclasses import replace

from autotune.services.adoption import RunningService
from autotune.services.apache import adoption as apache
from autotune.services.directives import Accepts, Adopted, joined, map_directives


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter of Apache with mpm_prefork in these files."""
    config = service.config
    adopted = map_directives(config, apache.tunables(config, apache.PREFORK), accepts)
    return joined(adopted, apache.limit(config, "ServerLimit", "MaxRequestWorkers", adopted))


ADOPTION = replace(apache.ADOPTION, tune=tune)
