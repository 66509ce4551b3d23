from __future__ import annotations

import pytest

from autotune.services.registry import SHIPPED
from autotune.space.facts import HostFacts
from autotune.space.tier_dimensions import build_tier_dimensions
from autotune.target.model import Tier


@pytest.mark.parametrize("megabytes", [61.7, 301.3, 475.9])
def test_whole_numbers_stay_whole_on_small_hosts(megabytes: float) -> None:
    facts = HostFacts(cpus=3, memory=int(megabytes * 2**20))
    for deployment in SHIPPED.deployments:
        tier = Tier(hosts=("a",), service=(deployment,))
        for dimension in build_tier_dimensions("x", tier, facts):
            parameter = dimension.parameter
            if type(parameter.low) is type(parameter.stock) is int:
                assert dimension.is_integer, dimension.name
                assert isinstance(dimension.baseline, int)
