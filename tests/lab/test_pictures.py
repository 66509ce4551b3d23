"""A picture of a host shows every kind of change, and none that was undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from autotune.lab import machine
from autotune.lab.lifecycle import build_ssh_host, halt_host
from autotune.lab.plan import derive_names
from autotune.transports.ssh import SshTransport
from tests.lab.pictures import picture
from tests.lab.shared import HOSTS, SharedLab

pytestmark = pytest.mark.lab
HOST = HOSTS[1].name
INI = "/etc/php/8.2/fpm/php.ini"
KEPT = f"cp -a {INI} /root/ini"
PUT_BACK = f"cp -a /root/ini {INI}; rm /root/ini"
SETS = 'python3 -c \'import os; os.setxattr("/etc/nginx/nginx.conf", "user.x", b"y")\''
WANTED = "/etc/systemd/system/multi-user.target.wants"
AGAIN = "systemctl daemon-reload"
DROP_IN = "/etc/systemd/system/nginx.service.d"
CHANGES = {
    "content of the same size and time": (
        f"{KEPT}; printf '#' | dd of={INI} bs=1 conv=notrunc; touch -r /root/ini {INI}",
        PUT_BACK,
        "etc/php/8.2/fpm/php.ini file 644",
    ),
    "time": (f"{KEPT}; touch {INI}", PUT_BACK, "php.ini file 644 0:0"),
    "mode": ("chmod 600 /etc/nginx/nginx.conf", "chmod 644 /etc/nginx/nginx.conf", "file 600"),
    "owner": ("chown 33 /etc/nginx/nginx.conf", "chown 0 /etc/nginx/nginx.conf", "644 33:0"),
    "mode of a directory": ("chmod 700 /var/www", "chmod 755 /var/www", "var/www directory 700"),
    "a file more": ("echo x >/usr/local/x", "rm /usr/local/x", "usr/local/x file"),
    "a file less": (f"{KEPT}; rm {INI}", PUT_BACK, "php.ini absent"),
    "a directory less": (
        "cp -a /etc/nginx/conf.d /root/d; rm -r /etc/nginx/conf.d",
        "mv /root/d /etc/nginx/conf.d",
        "etc/nginx/conf.d absent",
    ),
    "a directory made anew with less in it": (
        "cp -a /etc/nginx/snippets /root/s; rm -r /etc/nginx/snippets; mkdir /etc/nginx/snippets",
        "cp -a /root/s/. /etc/nginx/snippets; rm -r /root/s",
        "etc/nginx/snippets/snakeoil.conf absent",
    ),
    "a link": (
        "cd /etc/nginx/sites-enabled; mv default /root; ln -s /nowhere default",
        "rm /etc/nginx/sites-enabled/default; mv /root/default /etc/nginx/sites-enabled",
        "sites-enabled/default link 777 0:0",
    ),
    "an attribute": (
        SETS,
        SETS.replace("set", "remove").replace(', b"y"', ""),
        "user.x",
    ),
    "a unit that runs": ("systemctl start nginx", "systemctl stop nginx", "ActiveState=active"),
    "a unit that failed": (
        "echo x >/etc/nginx/conf.d/x.conf; ! systemctl start nginx",
        "rm /etc/nginx/conf.d/x.conf; systemctl reset-failed nginx",
        "ActiveState=failed",
    ),
    "a unit at boot": (
        f"ln -s /lib/systemd/system/redis-server.service {WANTED}; {AGAIN}",
        f"rm {WANTED}/redis-server.service; {AGAIN}",
        "UnitFileState=enabled",
    ),
    "a drop-in": (
        f"mkdir {DROP_IN}; printf '[Service]\\nLimitNOFILE=7000\\n' >{DROP_IN}/x.conf; {AGAIN}",
        f"rm -r {DROP_IN}; {AGAIN}",
        "LimitNOFILE=7000",
    ),
    "a unit for this boot": (
        "systemctl mask --runtime nginx", "systemctl unmask --runtime nginx", "runtime /run",
    ),
    "a kernel value": (
        "sysctl -n net.core.somaxconn >/run/was; sysctl -w net.core.somaxconn=4321",
        "sysctl -w net.core.somaxconn=$(cat /run/was)",
        "kernel net.core.somaxconn 4321",
    ),
    "a mount": (
        "mount --bind /etc/nginx /etc/nginx", "umount /etc/nginx", "mount /etc/nginx",
    ),
}  # fmt: skip


@pytest.fixture
def host(shared_lab: SharedLab) -> Iterator[SshTransport]:
    shared_lab.renew()
    transport = SshTransport(build_ssh_host(shared_lab.directory, HOST))
    yield transport
    transport.close()


def test_every_kind_of_change_shows_and_goes(host: SshTransport, shared_lab: SharedLab) -> None:
    lab = derive_names(shared_lab.directory)
    for name, (change, undo, shows) in CHANGES.items():
        before = picture(lab, HOST)
        done = host.run(["sh", "-ec", change], timeout=60.0)
        assert done.ok, (name, done.error_text)
        added = {*picture(lab, HOST)} - {*before}
        assert any(shows in line for line in added), (name, added)
        done = host.run(["sh", "-ec", undo], timeout=60.0)
        assert done.ok, (name, done.error_text)
        assert picture(lab, HOST) == before, name


def test_hosts_that_were_changed_or_stopped_are_as_new_again(
    host: SshTransport, shared_lab: SharedLab
) -> None:
    new = _bits(shared_lab.new)
    host.run(["sh", "-c", "rm /etc/nginx/nginx.conf; echo x >/etc/mine; systemctl start redis"])
    halt_host(shared_lab.directory, HOSTS[0].name)
    before = _booted(shared_lab)
    shared_lab.renew()
    after = _booted(shared_lab)
    assert shared_lab.pictures() == shared_lab.new
    assert _bits(shared_lab.new) == new
    assert [now != then for now, then in zip(after, before, strict=True)] == [1, 1, 0, 0]


def _bits(pictures: Mapping[str, list[str]]) -> dict[str, list[list[str]]]:
    """What is laid for a host that is made again was written later."""
    return {host: [line.split()[:4] for line in lines] for host, lines in pictures.items()}


def _booted(lab: SharedLab) -> list[int | None]:
    return [machine.find_init_pid(derive_names(lab.directory), host.name) for host in HOSTS]
