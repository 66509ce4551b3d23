from __future__ import annotations

from pathlib import Path

from autotune.services.sysctl.service import KEYS
from autotune.transports.kernel import kernel, parse
from autotune.transports.local import LocalTransport

SAID = """\
writable net.core.somaxconn 4096
writable net.ipv4.ip_local_port_range 32768\t60999
absent net.ipv4.tcp_tw_recycle
fixed fs.file-max 2465610
hidden net.ipv4.tcp_fastopen_key
sh: 1: cat: /proc/sys/x: Permission denied
"""


def test_what_a_host_says() -> None:
    found = parse(SAID)
    assert found.values == {
        "net.core.somaxconn": "4096",
        "net.ipv4.ip_local_port_range": "32768 60999",
        "fs.file-max": "2465610",
    }
    assert found.refused == {
        "net.ipv4.tcp_tw_recycle": "this kernel does not have it",
        "fs.file-max": "it cannot be written here",
        "net.ipv4.tcp_fastopen_key": "it cannot be read here",
    }


def test_this_host_says_every_key_and_names_are_no_scripts(tmp_path: Path) -> None:
    trap = f"x$(touch {tmp_path}/trapped)"
    found = kernel(LocalTransport(), (*KEYS, trap))
    assert found.values.keys() | found.refused.keys() >= set(KEYS)
    somaxconn = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    assert found.values["net.core.somaxconn"] == somaxconn
    assert not (tmp_path / "trapped").exists()
