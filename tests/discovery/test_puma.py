"""A user's own Puma adopted: its configuration file, which is Ruby, and its unit's environment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.deploy.templates import render_text
from autotune.discovery import tier_adoption
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import find_instances
from autotune.services.config_files import FileTree
from autotune.space.facts import HostFacts
from tests.discovery.places import adopted, filled

UNIT = "/etc/systemd/system/shop.service"
DROP_IN = f"{UNIT}.d/zz-autotune.conf"
PATH = "/srv/shop/config/puma.rb"
OWN = """\
# frozen_string_literal: true
app_dir = File.expand_path("..", __dir__)
workers 2  # of four
threads(1, 5)
preload_app!

bind "unix://#{app_dir}/tmp/puma.sock" # the proxy's
on_worker_boot do |index|
  if defined?(ActiveRecord)
    workers 9
  end
end
=begin
workers 7
=end
persistent_timeout 30
"""
# As Rails 7.0 writes it.
RAILS = """\
max_threads_count = ENV.fetch("RAILS_MAX_THREADS") { 5 }
min_threads_count = ENV.fetch("RAILS_MIN_THREADS") { max_threads_count }
threads min_threads_count, max_threads_count
worker_timeout 3600 if ENV.fetch("RAILS_ENV", "development") == "development"
port ENV.fetch("PORT") { 3000 }
environment ENV.fetch("RAILS_ENV") { "development" }
pidfile ENV.fetch("PIDFILE") { "tmp/pids/server.pid" }
workers Integer(ENV['WEB_CONCURRENCY'] || 2)
plugin :tmp_restart
"""


def host(
    text: str = RAILS,
    unit: str = "",
    command: str = "/usr/bin/bundle exec puma -C config/puma.rb",
    place: str = "3000",
    **files: str,
) -> DiscoveredHost:
    lines = f"[Service]\nWorkingDirectory=/srv/shop\n{unit}ExecStart={command}\n"
    texts = {UNIT: lines, PATH: text, **files}
    return DiscoveredHost(
        name="web1", address="10.0.0.1", facts=HostFacts(4, 8 * 2**30, 65_536),
        tree=FileTree({path: text.encode() for path, text in texts.items()}),
        backlogs={place: 1024}, processors=4,
    )  # fmt: skip


def bare(tier: tier_adoption.AdoptedTier) -> dict[str, object]:
    return {name.removeprefix("puma."): value for name, value in tier.baseline_values.items()}


def text_of(tier: tier_adoption.AdoptedTier, path: str, **changed: object) -> str:
    files = {file.path: file for file in tier.adopted_configs["app.web1.puma"].files}
    text = render_text(tier.templates[files[path].template], {**bare(tier), **changed})
    return filled(tier.discovered_tier.instances[0], "puma", path, text)


def test_numbers_are_edited_in_place_and_others_come_at_the_end() -> None:
    tier = adopted(host(OWN.replace("    workers 9\n", ""), place="/srv/shop/tmp/puma.sock"))
    assert bare(tier) == {
        "workers": 2, "min_threads": 1, "max_threads": 5, "backlog": 1024, "persistent_timeout": 30,
        "preload_app": True, "worker_timeout": 60, "first_data_timeout": 30,
    }  # fmt: skip
    own = tier.adopted_configs["app.web1.puma"]
    assert (own.unit, own.main, own.listen) == ("shop.service", PATH, "/srv/shop/tmp/puma.sock")
    changed = text_of(tier, PATH, workers=4, max_threads=8, backlog=64, preload_app=False,
                      persistent_timeout=5, worker_timeout=90)  # fmt: skip
    expected = OWN.replace("    workers 9\n", "").replace("workers 2", "workers 4")
    expected = expected.replace("1, 5", "1, 8").replace("puma.sock", "puma.sock?backlog=64")
    expected = expected.replace("app!", "app! false").replace("timeout 30", "timeout 5")
    assert changed == f"{expected}worker_timeout 90\n"


def test_what_a_block_or_a_condition_says_is_left_alone() -> None:
    tier = adopted(host(OWN, place="/srv/shop/tmp/puma.sock"))
    assert "conditionally" in tier.skipped["puma.workers"]
    assert "conditionally" in adopted(host()).skipped["puma.worker_timeout"]


def test_what_it_takes_from_its_environment_is_set_there() -> None:
    tier = adopted(host(unit="Environment=RAILS_MAX_THREADS=3 RAILS_ENV=production\n"))
    values = {"workers": 2, "min_threads": 3, "max_threads": 3}
    assert {name: bare(tier)[name] for name in values} == values
    assert text_of(tier, DROP_IN) == ""
    changed = text_of(tier, DROP_IN, workers=6, min_threads=1)
    assert changed == (
        '[Service]\nEnvironment="RAILS_MIN_THREADS=1"\nEnvironment="WEB_CONCURRENCY=6"\n'
    )
    assert "RAILS_MAX_THREADS=8 RAILS_ENV" in text_of(tier, UNIT, max_threads=8)


def test_a_drop_in_that_is_there_is_gone_on_with() -> None:
    text = '[Service]\nEnvironment="WEB_CONCURRENCY=6"\n'
    tier = adopted(host(**{DROP_IN: text}))
    assert bare(tier)["workers"] == 6
    changed = text_of(tier, DROP_IN, workers=5, max_threads=9)
    assert changed.splitlines() == [
        "[Service]", 'Environment="WEB_CONCURRENCY=5"', 'Environment="RAILS_MAX_THREADS=9"',
        'Environment="RAILS_MIN_THREADS=5"',
    ]  # fmt: skip


def test_one_number_for_both_ends_of_threads_is_tuned_once() -> None:
    text = "count = 4\nthreads count, count\nport 3000\n"
    tier = adopted(host(text))
    assert bare(tier)["max_threads"] == 4
    assert "shares its value with max_threads" in tier.skipped["puma.min_threads"]
    assert text_of(tier, PATH, max_threads=7) == text.replace("4", "7", 1)


def test_a_file_of_variables_counts_more_than_the_unit() -> None:
    unit = "EnvironmentFile=-/etc/shop.env\n"
    tier = adopted(host(unit=unit, **{"/etc/shop.env": "WEB_CONCURRENCY='8'\nSECRET=x\n"}))
    assert "/etc/shop.env sets `WEB_CONCURRENCY`" in tier.skipped["puma.workers"]
    assert "puma.max_threads" in tier.baseline_values
    assert "puma.workers" in adopted(host(unit=unit)).baseline_values  # it does not exist
    tier = adopted(host(unit=unit.replace("=-", "=")))
    assert "/etc/shop.env was not read" in tier.skipped["puma.workers"]


@pytest.mark.parametrize(
    ("text", "command", "parameter", "why"),
    [
        ("workers Etc.nprocessors\nport 3000\n", "puma", "workers", "computes it"),
        ("workers 2\nworkers 3\nport 3000\n", "puma", "workers", "several values"),
        ("port 3000\n", "puma -w 2", "workers", "`--workers`"),
        ("port 3000\n", "puma --threads 1:5", "max_threads", "`--threads`"),
        ("", "puma -b tcp://0.0.0.0:3000", "backlog", "`--bind`"),
    ],
)
def test_what_is_said_elsewhere_is_left_alone(
    text: str, command: str, parameter: str, why: str
) -> None:
    assert why in adopted(host(text, command=command)).skipped[f"puma.{parameter}"]


@pytest.mark.parametrize(
    ("text", "command", "place"),
    [
        ("port 4000", "/srv/shop/bin/puma", "4000"),
        ("", "puma -p 3000", "3000"),
        ("", "puma", "9292"),
        ('bind "tcp://0.0.0.0:#{ENV.fetch("PORT", 5000)}"', "puma", "5000"),
        ("bind 'tcp://127.0.0.1:81?low_latency=true'", "puma -C /srv/shop/config/puma.rb", "81"),
    ],
)
def test_where_it_listens(text: str, command: str, place: str) -> None:
    (instance,) = find_instances(host(f"{text}\n", command=command, place=place))[0]
    assert (instance.deployment, instance.port) == ("puma", int(place))


def test_the_queue_of_a_socket_unit_is_its_own() -> None:
    socket = {"/etc/systemd/system/shop.socket": "[Socket]\nListenStream=0.0.0.0:3000\n"}
    assert "Backlog=" in adopted(host("workers 2\n", **socket)).skipped["puma.backlog"]


def test_without_a_file_it_is_named_and_left_alone() -> None:
    bare_host = host(command="puma --dir /srv/wiki")
    running, notes = find_instances(bare_host)
    assert running == ()
    assert "/srv/wiki/config/puma.rb" in notes[0]
    assert find_instances(replace(bare_host, tree=FileTree()))[0] == ()
    assert find_instances(host(command="/usr/bin/rails server"))[0] == ()
