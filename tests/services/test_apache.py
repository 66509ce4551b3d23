"""What Apache's files say, and that no candidate asks of it what it would silently change."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.deploy.desired_state import render_files
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.registry import SHIPPED
from autotune.target.model import Data
from tests.space.targets import fleet

CASES: list[dict[str, Any]] = YAML(typ="safe").load(
    (Path(__file__).parent / "apache_cases.yaml").read_text()
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_files(case: dict[str, Any]) -> None:
    service = SHIPPED.deployable[case["service"]]
    user = case.get("user", "www-data")
    site = Placement(
        tier="t",
        host="h",
        role=Role(case.get("role", "proxy")),
        directory="/srv/a b",
        listen=Endpoint("10.0.0.1", 80),
        forwards_to=(Endpoint("10.0.0.2", 80), Endpoint("10.0.0.3", 80)),
        user=user, group=user, installed=case.get("installed", False),
    )  # fmt: skip
    values = {p.name: p.stock for p in service.parameters
              if p.roles is None or site.role in p.roles} | case.get("settings", {})  # fmt: skip
    (content,) = render_files(
        service, site, {f"t.apache.{name}": value for name, value in values.items()}, Data()
    ).values()
    lines = [line.strip() for line in content.decode().splitlines()]
    assert [line for line in case.get("has", ()) if line not in lines] == []
    assert [text for text in case.get("lacks", ()) if text in content.decode()] == []


def test_limits_come_before_what_they_limit() -> None:
    for name, order in (
        ("event", ("ServerLimit", "ThreadLimit", "ThreadsPerChild", "MaxRequestWorkers")),
        ("mod_php", ("ServerLimit", "MaxRequestWorkers")),
    ):
        text = (Path(__file__).parents[2] / "templates" / "apache" / f"{name}.conf.j2").read_text()
        places = [text.index(f"\n{directive} ") for directive in order]
        assert places == sorted(places)


def test_no_candidate_is_one_that_apache_would_change(tmp_path: Path) -> None:
    apaches = (("service: nginx,", "service: apache,"), ("nginx+php-fpm", "apache+mod_php"))
    space = fleet(tmp_path, "", *apaches)
    rng = random.Random(11)
    for _ in range(60):
        suggested = {
            d.name: rng.choice(d.choices) if d.choices else rng.uniform(d.low or 0, d.high or 0)
            for d in space.tunable_dimensions
        }
        whole = {n: round(v) if isinstance(v, float) else v for n, v in suggested.items()}
        settings = space.build_candidate(whole).settings
        lb = {n.removeprefix("lb.apache."): float(v) for n, v in settings.items()
              if n.startswith("lb.apache.") and not isinstance(v, str)}  # fmt: skip
        assert lb["MaxRequestWorkers"] == lb["ServerLimit"] * lb["ThreadsPerChild"]
        assert lb["ThreadsPerChild"] <= lb["ThreadLimit"]
        assert lb["StartServers"] <= lb["ServerLimit"]
        assert lb["MinSpareThreads"] + lb["ThreadsPerChild"] <= lb["MaxSpareThreads"]
        assert lb["proxy_min"] <= lb["proxy_smax"] <= lb["proxy_max"]
        web = {n.removeprefix("web.apache."): float(v) for n, v in settings.items()
               if n.startswith("web.apache.") and not isinstance(v, str)}  # fmt: skip
        assert max(web["StartServers"], web["MaxSpareServers"]) <= web["MaxRequestWorkers"]
        assert web["MaxRequestWorkers"] <= web["ServerLimit"]
        assert web["MinSpareServers"] < web["MaxSpareServers"]
