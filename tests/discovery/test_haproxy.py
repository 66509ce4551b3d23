"""A host's own HAProxy adopted: values in place, lines that come, and everything else as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.target_writer import write_target
from autotune.discovery.tiers import find_instances
from autotune.services.base import Value
from autotune.services.registry import SHIPPED
from autotune.space.facts import HostFacts
from autotune.target.read_target import read_target
from tests.discovery.places import host, web
from tests.discovery.test_tier_adoption import adopted, given_back, rendered

STYLES = Path(__file__).parent / "styles"
SECTIONS = (STYLES / "haproxy-sections.cfg").read_text()
DEBIAN = (STYLES / "haproxy-debian.cfg").read_text()
FRONT = (
    "\nfrontend http\n\tbind :80\n\tdefault_backend web\n\nbackend web\n\tserver web1 10.0.0.1:80\n"
)
MAIN = "/etc/haproxy/haproxy.cfg"


def balancer(text: str, **files: str) -> DiscoveredHost:
    there = {MAIN: text} | {f"/etc/default/{name}": content for name, content in files.items()}
    made = host("lb1", "10.0.0.9", there, "haproxy.service")
    facts = HostFacts(2, 4 * 2**30, 524_288)
    return replace(made, facts=facts, processors=2, backlogs={"80": 4096, "8080": 2000})


def changed_lines(text: str, changed: dict[str, Value]) -> set[str]:
    after = rendered(adopted(balancer(text))["lb"], changed)[f"lb1{MAIN}"]
    return {line.strip() for line in set(after.splitlines()) - set(text.splitlines())}


def test_what_a_file_with_several_sections_says() -> None:
    found = balancer(SECTIONS)
    tier = adopted(found)["lb"]
    given_back(tier, found)
    assert tier.discovered_tier.port == 8080
    assert tier.discovered_tier.instances[0].backends == (
        "10.0.0.2:80",
        "10.0.0.3:80",
        "10.0.0.4:80",
    )
    assert tier.adopted_configs["lb.lb1.haproxy"].listen == "/run/haproxy/edge.sock"
    assert {name.removeprefix("haproxy."): value for name, value in tier.baseline_values.items()} == {
        "nbthread": 2, "maxconn": 4000, "server_maxconn": 30, "backlog": 2000,
        "balance": "leastconn", "http_server_close": False, "pool_max_conn": -1, "retries": 2,
        "tune_bufsize": 16384,
        "busy_polling": False, "timeout_client": 30_000, "timeout_server": 60_000,
        "timeout_connect": 4500, "timeout_http_request": 10_000, "timeout_queue": 4500,
        "timeout_http_keep_alive": 10_000,
    }  # fmt: skip
    assert set(tier.skipped) >= {
        "haproxy.shards", "haproxy.dontlog_normal", "haproxy.http_reuse", "haproxy.pool_purge_delay",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"maxconn": 9000}, {"maxconn 9000#no space before it"}),
        ({"server_maxconn": 7}, {"default-server inter 2s maxconn 7 pool-purge-delay 10s",
                                 "server files1 10.0.0.4:80 maxconn 7 check"}),
        ({"timeout_client": 1500}, {"timeout client 1500ms"}),
        ({"timeout_connect": 1500}, {"timeout connect 1500", "timeout queue 4500ms"}),
        ({"timeout_queue": 1500}, {"timeout queue 1500ms"}),
        ({"backlog": 300}, {"bind :8080,[::]:8080 backlog 300"}),
        ({"balance": "random", "retries": 5}, {"balance random", "retries 5"}),
        ({"pool_max_conn": 0}, {"default-server pool-max-conn 0"}),
        ({"busy_polling": True}, {"busy-polling"}),
    ],
)  # fmt: skip
def test_another_value_changes_its_own_lines_alone(
    changed: dict[str, Value], lines: set[str]
) -> None:
    assert changed_lines(SECTIONS, changed) == lines


def test_debian_s_own_file_with_a_site() -> None:
    found = balancer(DEBIAN + FRONT)
    tier = adopted(found, web())["lb"]
    given_back(tier, found)
    assert tier.discovered_tier.forwards_to == "web"
    assert tier.baseline_values["haproxy.timeout_client"] == 50_000
    assert tier.baseline_values["haproxy.backlog"] == 4096
    assert tier.skipped["haproxy.maxconn"] == "`maxconn` is missing"
    assert changed_lines(DEBIAN + FRONT, {"timeout_client": 700, "backlog": 300, "nbthread": 1}) == {
        "timeout client  700", "timeout http-request 50000ms", "backlog 300", "nbthread 1",
    }  # fmt: skip


def test_a_default_that_depends_on_a_changed_setting_keeps_its_value() -> None:
    text = DEBIAN.replace("daemon", "daemon\n\tmaxconn 3000") + FRONT
    assert changed_lines(text, {"timeout_connect": 700, "maxconn": 100}) == {
        "timeout connect 700", "timeout queue 5000ms", "maxconn 100", "backlog 4096",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("maxconn 2000", "`maxconn 2000` in `defaults` limits it: remove that line to tune it"),
        ("maxconn 3000", None),
        ("maxconn 9000", None),
    ],
)
def test_a_limit_of_a_section_below_the_global_one_decides(limit: str, reason: str | None) -> None:
    text = DEBIAN.replace("daemon", "daemon\n\tmaxconn 3000").replace(
        "defaults", f"defaults\n\t{limit}"
    )
    assert adopted(balancer(text + FRONT))["lb"].skipped.get("haproxy.maxconn") == reason


@pytest.mark.parametrize("value", ["aggressive", "always"])
def test_a_reuse_with_which_requests_get_lost_is_kept_and_never_chosen(value: str) -> None:
    found = balancer(DEBIAN.replace("defaults", f"defaults\n\thttp-reuse {value}") + FRONT)
    tier = adopted(found)["lb"]
    given_back(tier, found)
    assert "haproxy.http_reuse" not in tier.baseline_values
    assert tier.skipped["haproxy.http_reuse"] == (
        f"autotune keeps `http-reuse {value}`, and itself sets only `never` and `safe`"
    )
    text = DEBIAN.replace("defaults", "defaults\n\thttp-reuse never") + FRONT
    assert adopted(balancer(text))["lb"].baseline_values["haproxy.http_reuse"] == "never"
    (dimension,) = (d for d in tier.dimensions if d.name == "lb.haproxy.http_reuse")
    assert dimension.choices == ("never", "safe")


def test_what_is_tuned_on_demand_keeps_its_value_in_the_target(tmp_path: Path) -> None:
    write_target(
        [balancer(DEBIAN.replace("50000", "30000") + FRONT)], tmp_path / "own.yaml", None, "/"
    )
    rules = read_target(tmp_path / "own.yaml").target.parameters
    assert rules["lb.haproxy.timeout_client"].fixed == 30_000
    assert rules["lb.haproxy.busy_polling"].fixed is False
    assert rules["lb.haproxy.server_maxconn"].range is not None


@pytest.mark.parametrize(
    "secret",
    [
        "listen s\n bind :81\n stats auth admin:hush\n",
        "userlist u\n user joe insecure-password hush\n",
        "backend b\n http-request set-header Authorization 'Basic hush'\n",
        "global\n setenv DB_PASSWORD hush\n",
    ],
)
def test_a_password_stays_on_its_host(secret: str) -> None:
    (template,) = adopted(balancer(DEBIAN + FRONT + secret))["lb"].templates.values()
    assert "hush" not in template
    assert "autotune-masked-1-of-" in template


@pytest.mark.parametrize(
    ("text", "files", "why"),
    [
        (DEBIAN, {}, "HAProxy listens on no TCP port"),
    ],
)
def test_what_is_not_tuned_is_told(text: str, files: dict[str, str], why: str) -> None:
    found, notes = find_instances(balancer(text, **files))
    assert found == ()
    assert [note for note in notes if why in note]


def test_a_frontend_with_tls_alone() -> None:
    (found,), _ = find_instances(
        balancer(DEBIAN + FRONT.replace(":80\n\td", ":443 ssl crt x\n\td"))
    )
    assert (found.port, found.tls, found.hostname) == (443, True, "")


def test_one_that_does_not_run_is_not_there() -> None:
    stopped = replace(balancer(DEBIAN + FRONT), units={})
    assert list(SHIPPED.map_adoptions()["haproxy"].find_services(stopped)) == []
