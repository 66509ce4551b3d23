from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.lab.prerequisites import (
    INOTIFY_PER_HOST,
    require_inotify,
    require_trusted_directory,
)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A /proc with 100 of 128 inotify instances in use, by two processes."""
    limit = tmp_path / "sys" / "fs" / "inotify" / "max_user_instances"
    limit.parent.mkdir(parents=True)
    limit.write_text("128\n")
    for process in ("7", "8", "self"):
        descriptors = tmp_path / process / "fd"
        descriptors.mkdir(parents=True)
        for number in range(50):
            (descriptors / str(number)).symlink_to("anon_inode:inotify")
        (descriptors / "50").symlink_to("anon_inode:[eventfd]")
    (tmp_path / "9").mkdir()  # a process that has ended
    return tmp_path


def test_hosts_that_would_get_no_inotify_instance_are_refused(kernel: Path) -> None:
    fit = 28 // INOTIFY_PER_HOST
    require_inotify(fit, kernel)
    with pytest.raises(AutotuneError, match="100 of 128") as refused:
        require_inotify(fit + 1, kernel)
    assert "max_user_instances=1024" in str(refused.value.hint)


def test_this_machine_can_be_counted() -> None:
    require_inotify(0)


def test_a_lab_is_in_no_directory_that_other_accounts_can_change(tmp_path: Path) -> None:
    for directory in (tmp_path / "lab", tmp_path / "new" / "lab"):
        require_trusted_directory(directory)
    (tmp_path / "lab").mkdir()
    require_trusted_directory(tmp_path / "lab")
    for shared, mode in ((tmp_path / "lab", 0o1777), (tmp_path, 0o770)):
        shared.chmod(mode)
        with pytest.raises(AutotuneError, match=f"other accounts can change {shared}"):
            require_trusted_directory(tmp_path / "lab")
        shared.chmod(0o700)
    tmp_path.chmod(0o1777)  # like /tmp
    require_trusted_directory(tmp_path / "lab")
