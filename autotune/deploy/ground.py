"""Where a private stack stands: its directory, the account it drops to, its programs."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from autotune.errors import AutotuneError

# Servers live in sbin, which an unprivileged user's PATH often leaves out.
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


class NeedsPrograms(Protocol):
    """A service or a load generator."""

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def packages(self) -> tuple[str, ...]: ...

    @property
    def elsewhere(self) -> str: ...


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


def programs(needing: Iterable[NeedsPrograms]) -> dict[str, str]:
    """Full paths of the executables these services and generators need.

    Raises AutotuneError with every missing one and the command that brings it.
    """
    found: dict[str, str] = {}
    missing: dict[str, NeedsPrograms] = {}
    for one in needing:
        for name, alternatives in one.programs.items():
            path = next(filter(None, map(_which, alternatives)), None)
            if path is None:
                missing[name] = one
            else:
                found[name] = path
    if missing:
        raise AutotuneError(
            f"not installed: {', '.join(sorted(missing))}",
            hint=remedy(missing.values()),
        )
    return found


def remedy(lacking: Iterable[NeedsPrograms]) -> str:
    """How to come by the programs of these: what Debian has first."""
    every = list(lacking)
    elsewhere = [one.elsewhere for one in every if one.elsewhere]
    packages = {package for one in every if not one.elsewhere for package in one.packages}
    install = f"apt-get install --no-install-recommends {' '.join(sorted(packages))}"
    return "; ".join(dict.fromkeys(([install] if packages else []) + elsewhere))


def _which(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), SYSTEM_PATH)))
