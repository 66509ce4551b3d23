"""How a target's hosts are reached, by what its file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.name_checks import check_names
from autotune.environments.stack_files import find_template_overrides
from autotune.target.read_target import read_target
from autotune.transports.base import HostUnreachable, SshHost
from autotune.transports.connection import open_connection
from autotune.transports.local import LocalTransport
from autotune.transports.ssh import SshTransport
from autotune.transports.target_hosts import build_ssh_host, create_transports

TARGET = """\
name: shop
slo: {{p99: 50ms}}
{ssh}
hosts:
  lb1: {{address: front.example, user: deploy, port: 2222}}
  here: {{transport: local}}
tiers:
  lb: {{hosts: [lb1, here], service: nginx}}
"""


@pytest.mark.parametrize(
    ("ssh", "config"),
    [
        ("", None),
        ("ssh: {config: keys/ssh_config}", "{here}/keys/ssh_config"),
        ("ssh: {config: /etc/shop/ssh_config}", "/etc/shop/ssh_config"),
        ("ssh: {config: ~/shop_config}", "{home}/shop_config"),
    ],
)
def test_what_the_target_says_is_how_a_host_is_reached(
    ssh: str, config: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TARGET.format(ssh=ssh))
    expected = config.format(here=tmp_path, home=Path.home()) if config else None
    host = SshHost("lb1", "front.example", user="deploy", port=2222, config_file=expected)
    assert build_ssh_host(read_target(path), "lb1") == host
    reached = create_transports(read_target(path))
    assert isinstance(reached["lb1"], SshTransport)
    assert isinstance(reached["here"], LocalTransport)
    assert [transport.name for transport in reached.values()] == ["lb1", "here"]


def test_a_link_to_a_target_is_followed_to_the_files_beside_the_target(tmp_path: Path) -> None:
    link, directory = tmp_path / "shop.yaml", tmp_path / "shop"
    (directory / "templates").mkdir(parents=True)
    (directory / "ssh_config").touch()
    text = TARGET.format(ssh="ssh: {config: ssh_config}")
    text = text.replace("service: nginx", "service: nginx, templates: templates")
    (directory / "shop.yaml").write_text(text)
    link.symlink_to(directory / "shop.yaml")
    file = read_target(link)
    assert build_ssh_host(file, "lb1").config_file == str(directory / "ssh_config")
    assert find_template_overrides(file) == directory / "templates"
    check_names(file)


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "ssh_config")
    with pytest.raises(HostUnreachable, match=r"lb1: SSH configuration .* does not exist") as it:
        open_connection(SshHost("lb1", "front", config_file=missing))
    assert missing in it.value.message
