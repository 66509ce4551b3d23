"""Files of services that have a file system of their own, from archives as `docker cp` prints them."""

from __future__ import annotations

from pathlib import Path

from autotune.discovery.host_reading import read_isolated_host
from autotune.transports.base import SshHost
from autotune.transports.local import LocalTransport
from tests.discovery.places import NGINX, SITE

# an archive of a directory, whose name it begins with
ARCHIVES = 'tar -C "$0/etc" -cz nginx | base64 -w 0; echo'


def test_links_between_the_files_of_a_container_are_followed(tmp_path: Path) -> None:
    directory = tmp_path / "etc/nginx"
    for name, text in {"nginx.conf": NGINX, "sites-available/default": SITE}.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    link = directory / "sites-enabled/default"
    link.parent.mkdir()
    link.symlink_to("../sites-available/default")
    directory.chmod(0o777)  # who may write to the container's directories does not matter
    found = read_isolated_host(
        LocalTransport(),
        SshHost("web1", "127.0.0.1"),
        ["nginx"],
        ["/etc/nginx"],
        ["sh", "-c", ARCHIVES, str(tmp_path)],
        "",
    )
    assert found.tree.read_text_or_empty("/etc/nginx/sites-enabled/default") == SITE
    assert not found.tree.unread
