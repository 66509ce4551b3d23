"""HAProxy: its language, what its socket tells, and what is concluded from that."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.services.base import AdoptedConfig, Endpoint, Placement, Role, Settings
from autotune.services.config_files import ConfigSyntaxError
from autotune.services.diagnosis import InstanceActivity, InstanceReading, Resource
from autotune.services.haproxy import stats, syntax
from autotune.services.haproxy.diagnosis import DIAGNOSIS
from autotune.services.haproxy.service import Haproxy

PRINTED = (Path(__file__).parent / "fixtures" / "haproxy.txt").read_text()
LINE = "10.0.0.9:1 [22/Nov/2026:05:25:42.284] lb web/<NOSRV> 0/203/-1/-1/203 503 217 - - {} 4/4/3/0/0 0/5"


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("maxconn 4000#comment", "maxconn", ["4000"]),
        ('  log-tag "a # b" # c', "log-tag", ['"a # b"']),
        (r"log-tag a\ b\#c", "log-tag", [r"a\ b\#c"]),
        ("log-format '%{+Q}r # '\"x\"", "log-format", ["'%{+Q}r # '\"x\""]),
        ("\ttimeout\tclient 5s", "timeout client", ["5s"]),
        ("option http-server-close", "option http-server-close", []),
        ("stats auth admin:x", "stats auth", ["admin:x"]),
    ],
)
def test_a_line(line: str, name: str, arguments: list[str]) -> None:
    for end in ("", "\n", "\r\n"):
        (directive,) = syntax.parse_directives(line + end)
        assert directive.name.text == name
        assert [word.text for word in directive.arguments] == arguments
        for word in directive.arguments:
            assert line[word.start : word.end] == word.text


def test_the_check_of_a_host_s_own_files_has_the_variables_of_the_unit() -> None:
    site = Placement(
        tier="lb", host="h", role=Role.PROXY, directory="/run/t", listen=Endpoint("10.0.0.1", 80),
        installed=True, programs={"haproxy": "/usr/sbin/haproxy"},
    )  # fmt: skip
    check = ("/usr/sbin/haproxy", "-c", "-f", "/etc/haproxy/haproxy.cfg")
    assert Haproxy().build_validation(site, {}) == check
    words = Haproxy().build_validation(replace(site, adopted=AdoptedConfig()), {})
    assert words[-5:] == ("haproxy.service", *check)


def test_sections_and_options_of_servers() -> None:
    read = syntax.parse_directives(
        "backend app # x\n server a 10.0.0.1:80 check maxconn 30\nglobal\n maxconn 9\n"
    )
    limits = {
        d.name.text: (d.blocks, d.arguments[0].text) for d in read if "maxconn" in d.name.text
    }
    assert limits == {
        "server maxconn": ((("backend", "app"),), "30"),
        "maxconn": ((("global",),), "9"),
    }


@pytest.mark.parametrize("text", ['a "b', "a 'b\n'", ".if version_atleast(2.8)\n"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigSyntaxError, match="line 1"):
        syntax.parse_directives(text)


@pytest.mark.stack
def test_what_it_ships_as_examples_is_read() -> None:
    files = [
        Path("/etc/haproxy/haproxy.cfg"),
        *Path("/usr/share/doc/haproxy/examples").glob("*.cfg"),
    ]
    assert len(files) > 5
    for path in files:
        assert len(syntax.parse_directives(path.read_text())) > 10


def test_values_in_effect() -> None:
    assert stats.parse_effective(PRINTED) == {
        "nbthread": 2, "maxconn": 50, "tune_bufsize": 32768, "server_maxconn": 1,
        "balance": "leastconn",
    }  # fmt: skip
    unlimited = PRINTED.replace("web,web1,0,0,1,1,1,", "web,web1,0,0,1,1,,")
    assert stats.parse_effective(unlimited)["server_maxconn"] == 0
    unnamed = PRINTED.replace("leastconn", "unknown")
    assert "balance" not in stats.parse_effective(unnamed)


@pytest.mark.parametrize(
    ("frontend_limit", "effective"), [("30", 30), ("50", 50), ("9000", 50), ("0", 50), ("", 50)]
)
def test_a_lower_limit_of_the_frontend_takes_effect(frontend_limit: str, effective: int) -> None:
    printed = PRINTED.replace("lb,FRONTEND,,,13,18,50,", f"lb,FRONTEND,,,13,18,{frontend_limit},")
    assert stats.parse_effective(printed)["maxconn"] == effective


def test_a_frontend_of_statistics_does_not_limit_the_others() -> None:
    line = next(line for line in PRINTED.splitlines() if line.startswith("lb,FRONTEND"))
    other = line.replace("lb,FRONTEND,,,13,18,50,", "stats,FRONTEND,,,0,0,10,")
    limited = line.replace("lb,FRONTEND,,,13,18,50,", "lb,FRONTEND,,,13,18,30,")
    assert stats.parse_effective(PRINTED.replace(line, f"{other}\n{limited}"))["maxconn"] == 30


def test_counters_of_a_queue() -> None:
    counted = stats.parse_counters(PRINTED)
    assert counted["qcur"] == 12
    assert (counted["scur"], counted["reached_limit"]) == (13, 0)
    full = stats.parse_counters(
        PRINTED.replace("lb,FRONTEND,,,13,18,50,", "lb,FRONTEND,,,13,18,18,")
    )
    assert full["reached_limit"] == 1
    assert counted["qtime"] > counted["rtime"] > 0
    assert counted["slim"] == 50


def reading(settings: Settings, **activity: Any) -> InstanceReading:
    part = InstanceActivity("lb.lb1.haproxy", "lb", "lb1", "haproxy", Role.PROXY)
    return InstanceReading(
        replace(part, **activity), settings, 9, errors_dominate=True, idle_fraction=0.9
    )


@pytest.mark.parametrize(
    ("settings", "activity", "said"),
    [
        ({"server_maxconn": 1}, {"counters": stats.parse_counters(PRINTED)}, "raise server_maxconn"),
        ({"server_maxconn": 0}, {"counters": stats.parse_counters(PRINTED)}, None),
        ({"maxconn": 64}, {"counters": {"slim": 64, "scur": 64}, "queued_fraction": 0.5,
                             "waiting_connections": 9.0},
         "all of its 64 connections were in use and 9 waited .*: raise maxconn"),
        ({"maxconn": 64}, {"counters": {"slim": 64, "scur": 64}, "queued_fraction": 0.1}, None),
        ({"maxconn": 64},
         {"counters": {"slim": 64, "scur": 0, "reached_limit": 1}, "queued_fraction": 0.5},
         "raise maxconn"),
        # all connections were in use since HAProxy started, but not in this reading
        ({"maxconn": 64},
         {"counters": {"slim": 64, "scur": 9, "reached_limit": 0}, "queued_fraction": 0.5}, None),
        ({"maxconn": 64}, {"counters": {"slim": 64}, "queued_fraction": 0.5}, None),
        ({}, {"counters": {"wretr": 12, "econ": 3}},
         "retried connections to web hosts 12 times and 3 failed"),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_what_it_lacks(settings: Settings, activity: dict[str, Any], said: str | None) -> None:
    (rule,) = DIAGNOSIS.worker_rules
    finding = rule(reading(settings, **activity))
    assert (finding is None) == (said is None)
    if finding and said:
        assert finding.resource is Resource.CONNECTIONS
        assert re.search(said, finding.evidence)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (LINE.format("sQ--"), "queue_timeout"),
        (LINE.format("sC--"), "upstream_timed_out"),
        (LINE.format("sH--"), "upstream_timed_out"),
        (LINE.format("SC--"), "upstream_refused"),
        (LINE.format("----"), None),
        ("backend web has no server available!", "no_live_upstreams"),
        ("Proxy lb reached process FD limit (maxsock=100). Please check", "open_files"),
        ("Connect() failed for backend web: no free ports.", "no_ports"),
    ],
)
def test_lines_of_its_log(line: str, kind: str | None) -> None:
    kinds = {name for name, pattern in DIAGNOSIS.complaint_patterns.items() if pattern.search(line)}
    assert kinds == ({kind} if kind else set())
