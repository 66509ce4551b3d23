"""A user's own Node.js adopted: which unit runs it, where it listens, and what its environment says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.deploy.templates import render_text
from autotune.discovery import tier_adoption
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import find_instances
from autotune.services.adoption import Listener
from autotune.services.config_files import FileTree
from autotune.space.facts import HostFacts
from tests.discovery.places import adopted, filled

UNIT = "/etc/systemd/system/shop.service"
PACKAGED = "/usr/lib/systemd/system/shop.service"
ENVIRONMENT = """\
Environment=NODE_ENV=production "PORT=3000" WEB_CONCURRENCY=2
Environment="NODE_OPTIONS=--max_old_space_size=512 --enable-source-maps"
"""


def host(
    environment: str = ENVIRONMENT,
    command: str = "/usr/bin/node server.js",
    path: str = UNIT,
    listener: Listener | None = None,
    **files: str,
) -> DiscoveredHost:
    unit = f"[Service]\n{environment}ExecStart={command}\n"
    texts = {path: unit, **files}
    return DiscoveredHost(
        name="web1", address="10.0.0.1", facts=HostFacts(4, 8 * 2**30, 65_536),
        tree=FileTree({name: text.encode() for name, text in texts.items()}),
        backlogs={"3000": 511}, listeners=(listener,) if listener else (),
        effective={("nodejs", 3000, "nodejs"): {"max_semi_space_size": 16}},
    )  # fmt: skip


def text_of(tier: tier_adoption.AdoptedTier, **changed: object) -> str:
    (file,) = tier.adopted_configs["app.web1.nodejs"].files
    values = {name.removeprefix("nodejs."): value for name, value in tier.baseline_values.items()}
    text = render_text(tier.templates[file.template], {**values, **changed})
    return filled(tier.discovered_tier.instances[0], "nodejs", file.path, text)


VALUES = {"nodejs.workers": 2, "nodejs.uv_threadpool_size": 4, "nodejs.max_semi_space_size": 16,
          "nodejs.max_old_space_size": 512}  # fmt: skip


def test_a_unit_of_the_user_s_is_edited_and_a_drop_in_has_the_rest() -> None:
    tier = adopted(host())
    assert tier.baseline_values == VALUES
    files = {file.path: file for file in tier.adopted_configs["app.web1.nodejs"].files}
    assert [*files] == [UNIT, f"{UNIT}.d/zz-autotune.conf"]
    values = {"workers": 4, "uv_threadpool_size": 8, "max_semi_space_size": 64,
              "max_old_space_size": 700}  # fmt: skip
    instance = tier.discovered_tier.instances[0]
    texts = {
        path: render_text(tier.templates[file.template], values) for path, file in files.items()
    }
    unit, drop_in = (filled(instance, "nodejs", path, text) for path, text in texts.items())
    expected = ENVIRONMENT.replace("Y=2", "Y=4").replace("512", "700")
    expected = expected.replace("-maps", "-maps --max-semi-space-size=64")
    assert unit == f"[Service]\n{expected}ExecStart=/usr/bin/node server.js\n"
    assert drop_in == '[Service]\nEnvironment="UV_THREADPOOL_SIZE=8"\n'


def test_a_unit_of_a_package_stays() -> None:
    tier = adopted(host(path=PACKAGED))
    assert tier.baseline_values == VALUES
    assert text_of(tier) == ""
    assert text_of(tier, max_old_space_size=700) == (
        "[Service]\n"
        'Environment="NODE_OPTIONS=--max_old_space_size=700 --enable-source-maps"\n'
        'Environment="UV_THREADPOOL_SIZE=4"\n'
        'Environment="WEB_CONCURRENCY=2"\n'
    )


def test_a_default_size_is_the_one_that_the_running_process_has() -> None:
    small = {("nodejs", 3000, "nodejs"): {"max_semi_space_size": 4}}
    tier = adopted(replace(host(path=PACKAGED), effective=small))
    assert tier.baseline_values["nodejs.max_semi_space_size"] == 4
    assert text_of(tier) == ""
    assert "--max-semi-space-size=16" in text_of(tier, max_semi_space_size=16)
    unknown = adopted(replace(host(path=PACKAGED), effective={}))
    assert "nodejs.max_semi_space_size" not in unknown.baseline_values
    reason = unknown.skipped["nodejs.max_semi_space_size"]
    assert reason == "`--max-semi-space-size` is missing"


def test_what_its_environment_does_not_say_is_named() -> None:
    tier = adopted(host("", listener=Listener("node", 3000, True)))
    assert "WEB_CONCURRENCY" in tier.skipped["nodejs.workers"]
    assert "`--max-old-space-size` is missing" in tier.skipped["nodejs.max_old_space_size"]
    assert tier.baseline_values == {
        "nodejs.uv_threadpool_size": 4,
        "nodejs.max_semi_space_size": 16,
    }


@pytest.mark.parametrize(
    ("environment", "command", "parameter", "why"),
    [
        (ENVIRONMENT, "node --max-old-space-size=900 server.js", "max_old_space_size", "its command"),
        ("Environment=PORT=3000 WORKERS=two\n", "npm start", "workers", "has no valid baseline value"),
        ('Environment=PORT=3000 "NODE_OPTIONS=-r %h/x"\n', "node x", "max_semi_space_size", "plain"),
        ("Environment=PORT=3000\nEnvironmentFile=/etc/shop\n", "node x", "uv_threadpool_size",
         "/etc/shop was not read"),
    ],
)  # fmt: skip
def test_what_is_said_elsewhere_is_left_alone(
    environment: str, command: str, parameter: str, why: str
) -> None:
    assert why in adopted(host(environment, command)).skipped[f"nodejs.{parameter}"]


@pytest.mark.parametrize(
    "of",
    [
        host(command="/usr/bin/prometheus-node-exporter"),
        host(command="/usr/bin/python3 node"),
        host("Environment=PORT=80\n"),  # it does not run
        host("", "/usr/bin/env node x"),
    ],
)
def test_what_is_none_or_does_not_listen(of: DiscoveredHost) -> None:
    assert find_instances(of)[0] == ()


def test_of_two_the_port_is_in_their_units() -> None:
    wiki = {"/etc/systemd/system/wiki.service": "[Service]\nExecStart=node wiki.js\n"}
    running, notes = find_instances(host("", listener=Listener("node", 3000, True), **wiki))
    assert running == ()
    assert sum("PORT" in note for note in notes) == 2
    running, _ = find_instances(host(listener=Listener("node", 3001, True), **wiki))
    assert [instance.port for instance in running] == [3000]
