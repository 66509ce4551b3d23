"""What is in effect in a tier whose hosts need not agree."""

from __future__ import annotations

import pytest

from autotune.deploy.read_back import of_tiers
from autotune.services.base import Settings

ASKED: Settings = {"web.children": 8, "web.backlog": 511}


@pytest.mark.parametrize(
    ("hosts", "effective"),
    [
        ([{"web.children": 8}, {"web.children": 8}], {"web.children": 8}),
        ([{"web.children": 8}, {"web.children": 5}], {"web.children": 5}),
        ([{"web.children": 5}, {"web.children": 8}], {"web.children": 5}),
        ([{"web.children": 5}, {"web.children": 6}], {"web.children": 5}),
        ([{"web.children": 8}, {"web.backlog": 128}], {"web.children": 8, "web.backlog": 128}),
        ([{}, {"lb.workers": 2}], {"lb.workers": 2}),
        ([], {}),
    ],
)
def test_the_host_that_is_not_as_asked_is_told(
    hosts: list[dict[str, int]], effective: dict[str, int]
) -> None:
    assert of_tiers(ASKED, hosts) == effective
