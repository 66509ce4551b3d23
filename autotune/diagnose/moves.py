"""What to change where a bottleneck was named: the moves a search is advised to try first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.services.base import Role
from autotune.services.diagnosis import Resource
from autotune.services.registry import diagnosis, of_role


def moves(bottleneck: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The moves that a bottleneck, as a study recorded it, suggests: ``web.php_fpm.max_children+``,
    ``web.php_fpm.pm=static``. None where nothing can be changed in software, as for a lack of CPU.

    They are advice: measurements say whether they help.
    """
    if not bottleneck:
        return ()
    tier, resource = bottleneck["tier"], Resource(bottleneck["resource"])
    names = (bottleneck["service"], *(service.name for service in of_role(Role.HOST)))
    return tuple(
        f"{tier}.{name}.{move}"
        for name in names
        for move in diagnosis(name).moves.get(resource, ())
    )
