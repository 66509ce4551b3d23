"""Files of this machine, read as those of a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.host_files import read_contents
from autotune.errors import AutotuneError
from autotune.transports.base import CommandResult
from tests.deploy.doubles import Here


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_files_that_are_absent_have_no_content(here: Here, tmp_path: Path) -> None:
    names = ("gone", "some", "b", "c", "d")
    (tmp_path / "some").write_bytes(b"\xff\n\n")
    contents = read_contents(here, [str(tmp_path / name) for name in names])
    assert [*contents.values()] == [b"", b"\xff\n\n", b"", b"", b""]


@pytest.mark.parametrize("printed", ["A", "\u00e9", "eA==\neA==", "eA"])
def test_contents_that_a_host_garbles_are_an_error_of_that_host(
    here: Here, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "autotune.deploy.host_files.run_required",
        lambda *_, **__: [CommandResult(("contents", "/a"), 0, printed, "")],
    )
    with pytest.raises(AutotuneError, match=r"unexpected output from the host .* \(not shown\)"):
        read_contents(here, ["/a"])
