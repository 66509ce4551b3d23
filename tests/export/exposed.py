"""An exported script for a file in a directory of another account, run on this machine."""

from __future__ import annotations

import re
import subprocess
from hashlib import sha256
from pathlib import Path

from autotune.deploy.deploy_result import OriginalHost
from autotune.export.host_files import ExportedHosts, HostFile
from autotune.export.scripts import build_script
from autotune.unified_diff import find_hunks

UNIT = "app.service"
# Validates a file at the path that the software uses.
READS = '[ "$(cat "$1")" = "$2" ] || { echo "validation reads $(cat "$1")"; exit 1; }'
SYSTEMCTL = """#!/bin/sh
case $1 in is-enabled) echo enabled ;; is-active) echo active ;; esac
"""


def of_file(conf: str, new: str, old: str | None = None, secret: str = "") -> str:
    """Return the script for a whole file, or for an edit of ``old``, without the word ``secret``."""
    shown = [text.replace(secret, "autotune-masked-1-of-1") if secret else text
             for text in (old or "", new)]  # fmt: skip
    edits = (
        None if old is None
        else find_hunks(old.encode(), new.encode(), shown[0].encode(), shown[1].encode())
    )  # fmt: skip
    file = HostFile(
        host="h1",
        tier="app",
        path=conf,
        content=shown[1].encode(),
        mode=0o644,
        check=("sh", "-c", READS, "sh", conf, new.removesuffix("\n")),
        units={UNIT: "restart"},
        original=None if old is None else sha256(old.encode()).hexdigest(),
        edits=edits,
        deployed=sha256(new.encode()).hexdigest(),
    )
    before = {"h1": OriginalHost({}, {UNIT: True}, {})}
    return build_script(
        "Trial 3", "h1", ExportedHosts((file,), {"h1": {UNIT: True}}, {"h1": {}}, before)
    )


class Runner:
    """A runner of scripts with a separate directory for backups, and with units that are always
    running.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.backups = place, place / "backups"
        (place / "bin").mkdir()
        systemctl = place / "bin" / "systemctl"
        systemctl.write_text(SYSTEMCTL)
        systemctl.chmod(0o755)

    def run(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        text = re.sub("/var/backups", str(self.backups), text)
        text = re.sub("/var/lib/autotune", str(self.place / "autotune"), text)
        return subprocess.run(
            ["sh", "-s", "--", *options],
            input=text.replace("sleep 2", ":"),
            env={"PATH": f"{self.place / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"},
            text=True, capture_output=True, check=False, timeout=60,
        )  # fmt: skip

    def newest(self) -> str:
        """Return the newest backup of a script, or an empty string."""
        return max(map(str, self.backups.glob("autotune-20*")), default="")
