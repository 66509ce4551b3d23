"""The scripts that pack a host's configuration files, on a real tree of files."""

from __future__ import annotations

import base64
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from autotune.discovery import host_reading

SCRIPTS = {
    "files": host_reading._PACK_FILES_SCRIPT,
    "targets of links": host_reading._PACK_TARGETS_SCRIPT,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_files_are_packed_without_keys_and_passwords(script: str, tmp_path: Path) -> None:
    for name in ("nginx.conf", "site.key", "site.pem", "users.htpasswd", ".htpasswd", "mod.so"):
        (tmp_path / name).write_text(f"content of {name}\n")
    (tmp_path / "link.conf").symlink_to("nginx.conf")
    packed = subprocess.run(
        ["sh", "-c", script, "sh", str(tmp_path)], capture_output=True, check=True, timeout=60
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed, validate=True))) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert names == {"nginx.conf", "link.conf"}
