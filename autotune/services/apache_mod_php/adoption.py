"""Map directives of Apache with mod_php to parameters. With mod_php, workers are processes
(mpm_prefork).
"""

from __future__ import annotations

from dataclasses import replace

from autotune.services.adoption import RunningService
from autotune.services.apache import adoption as apache
from autotune.services.directives import AdoptionResult, ValueCheck, map_directives, merge_results


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    """Return the adoption of every parameter of Apache with mpm_prefork, tuned or skipped with a
    reason.
    """
    config = service.config
    adoption_result = map_directives(
        config, apache.list_tunables(config, apache.PREFORK_DIRECTIVES), accepts_value
    )
    return merge_results(
        adoption_result,
        apache.raise_limit(config, "ServerLimit", "MaxRequestWorkers", adoption_result),
    )


ADOPTION = replace(apache.ADOPTION, tune_parameters=tune_parameters)
