"""A study that overloads a site until the balancer regards its server as failed, over and over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.load_meter import LoadMeter
from autotune.lab.plan import derive_names
from autotune.report.studies import open_study
from autotune.services.haproxy.servers import parse_down_servers
from tests.deploy.lab import Ground, differing, renewed
from tests.lab.shared import SharedLab
from tests.stacks import haproxy_apache
from tests.stacks.site import Site
from tests.stacks.test_whole_stacks import build_site, run_command

pytestmark = [pytest.mark.lab, pytest.mark.soak, pytest.mark.timeout(3600)]
INTERVAL, MINUTES = "10s", int(os.environ.get("AUTOTUNE_MINUTES", "12"))
_STATES = r"""
perl -MIO::Socket::UNIX -e '
    my $socket = IO::Socket::UNIX->new("/run/haproxy/admin.sock") or die $!;
    print $socket "show stat\n";
    print while <$socket>'
"""


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        yield ground


def down_servers(site: Site) -> tuple[str, ...]:
    return parse_down_servers(site.sh("lb", _STATES))


def test_no_reading_is_taken_while_a_server_is_down(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = build_site(ground, haproxy_apache.build_overloaded(INTERVAL))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(site.ca))
    monkeypatch.chdir(ground.directory)
    before, after, taken = list[tuple[str, ...]](), list[tuple[str, ...]](), LoadMeter.take_reading

    def take(meter: LoadMeter, rate: float, seconds: float, **more: Any) -> WatchedReading:
        before.append(down_servers(site))
        watched = taken(meter, rate, seconds, **more)
        after.append(down_servers(site))
        return watched

    monkeypatch.setattr(LoadMeter, "take_reading", take)
    pictures, rows, target = site.pictures(), site.digest(), Path("shop.yaml")
    config = str(derive_names(site.lab).ssh_config)
    run_command(
        "init", "--from", ",".join(site.logins), "--ssh-config", config, "--out", "shop.yaml"
    )
    text = re.sub(r"(?m)^slo: .*", "slo: {p90: 3s, errors: 1%}", target.read_text())
    budget = f"budget: {{trials: 20, time: {MINUTES}m}}"
    target.write_text(re.sub(r"(?m)^budget: .*", budget, text))
    printed = run_command("run", "shop.yaml", "--yes", "--name", "shop")
    assert site.wrong_answers(200) == []
    assert len(before) > 10
    assert [states for states in before if states] == []
    # Otherwise nothing was shown: the overload did not trip the checks.
    assert [states for states in after if states] or "report as down: site/web1" in printed
    state = open_study(Path("studies/shop")).state
    assert state.verdict is not None
    assert any(trial.peak and trial.peak.is_feasible for trial in state.trials)
    assert differing(pictures, site.pictures()) == []
    assert site.digest() == rows
