"""The directory of a private stack, and the account its servers drop to."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from autotune.errors import AutotuneError


def account() -> tuple[str, str] | None:
    """User and group that servers drop to: ``None`` unless root starts them."""
    if os.geteuid() != 0:
        return None
    for name in ("www-data", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return name, grp.getgrgid(entry.pw_gid).gr_name
    raise AutotuneError("there is neither a user www-data nor nobody to run the servers as")


def run_directory(study: Path, owner: tuple[str, str] | None) -> Path:
    """An empty directory for the stack's files, seen as ``<study>/run``.

    Where an unprivileged account could not reach into the study (a checkout in /root, say), the
    files live in a temporary directory and ``run`` links to it.
    """
    link = study / "run"
    remove_run_directory(study)
    if owner is None or reachable_by_others(study.resolve()):
        link.mkdir(mode=0o755, parents=True)
        return link.resolve()
    directory = Path(tempfile.mkdtemp(prefix="autotune-"))
    directory.chmod(0o755)
    link.symlink_to(directory)
    return directory


def remove_run_directory(study: Path) -> None:
    """Take away ``<study>/run`` and, if it is a link, what it leads to."""
    link = study / "run"
    if link.is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)


def reachable_by_others(path: Path) -> bool:
    """Whether any account may pass through every directory down to ``path``."""
    return all(
        directory.stat().st_mode & stat.S_IXOTH
        for directory in (path, *path.parents)
        if directory.exists()
    )
