"""How hosts were found, kept and read again."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.deploy.backup import (
    BackupCheck,
    BackupStore,
    HostBackup,
    decode_backup,
    encode_backup,
)
from autotune.deploy.host_state import (
    FileState,
    HostState,
    ObservedFile,
    ObservedHost,
    ObservedUnit,
)
from autotune.deploy.unit_start import UNKNOWN_BOOT_SECONDS, UnitStart
from autotune.errors import AutotuneError

owners = st.from_regex(r"[0-9]{1,5}:[0-9]{1,5}", fullmatch=True)
times = st.from_regex(r"[0-9]{1,10}\.[0-9]{9}", fullmatch=True)
files = st.one_of(
    st.just(FileState()),
    st.builds(
        FileState, content=st.binary(), mode=st.integers(0, 0o7777), owner=owners, modified=times
    ),
    st.builds(FileState, owner=owners, link_target=st.text(min_size=1), modified=times),
)
states = st.builds(
    HostState,
    st.dictionaries(
        st.from_regex(r"(/[a-z][a-z0-9._@-]{0,9}){1,4}", fullmatch=True), files, max_size=5
    ),
    st.dictionaries(st.text(min_size=1), st.booleans(), max_size=3),
    st.dictionaries(st.text(min_size=1), st.text(), max_size=3),
)


@pytest.mark.long
@given(states, st.text(), st.text())
def test_what_is_written_is_what_is_read(state: HostState, host: str, study: str) -> None:
    backup = HostBackup(host, study, state, dict.fromkeys(state.units, "enabled"))
    assert decode_backup(encode_backup(backup), "here") == backup


def seen(content_of: str, *, active: bool = True) -> ObservedHost:
    return ObservedHost(
        {content_of: ObservedFile("file", 0o640, "0:33", "5.000000001", "unused"),
         "/absent": ObservedFile("absent"), "/etc": ObservedFile("directory")},
        {"nginx.service": ObservedUnit(True, active, "enabled", 1, 0)},
        {"net.core.somaxconn": "4096", "net.ipv4.tcp_tw_recycle": None},
    )  # fmt: skip


def test_what_is_known_is_never_seen_anew() -> None:
    first = HostBackup("web1", "study").with_observed_state(seen("/conf"), {"/conf": b"original"})
    again = first.with_observed_state(seen("/conf", active=False), {"/conf": b"tuned"})
    assert again == first
    assert first.state.files["/conf"] == FileState(
        b"original", 0o640, "0:33", modified="5.000000001", acl=""
    )
    assert first.state.files["/absent"] == FileState()
    assert "/etc" not in first.state.files  # a directory that was there needs no putting back
    assert first.state.sysctls == {"net.core.somaxconn": "4096"}


def test_only_what_is_not_known_is_looked_at() -> None:
    known = HostBackup("web1", "study").with_observed_state(seen("/conf"), {"/conf": b""})
    wanted = HostState(
        {"/conf": FileState(b"x"), "/more": FileState(b"y")},
        {"nginx.service": True, "apache2.service": False},
        {"net.core.somaxconn": "1", "vm.swappiness": "1"},
    )
    assert known.find_missing(wanted) == HostState(
        {"/more": FileState(b"y")}, {"apache2.service": False}, {"vm.swappiness": "1"}
    )
    assert known.find_missing(HostState()) == HostState()


@pytest.mark.parametrize(
    ("current", "is_kept"),
    [
        ("4096", True),  # the value that autotune set
        ("128", False),  # the original value
        ("512", False),  # the value that someone else set
        (None, False),  # the kernel no longer has the value
    ],
)
def test_only_kernel_values_as_autotune_set_them_are_restored_without_a_record(
    current: str | None, is_kept: bool
) -> None:
    key = "net.core.somaxconn"
    backup = HostBackup(
        "web1", "study", HostState(sysctls={key: "128"}), last_written={key: ["128", "4096"]}
    )
    left = backup.without_foreign_changes(ObservedHost(sysctls={key: current}))
    assert left.state == HostState(sysctls={key: "128"} if is_kept else {})


@pytest.mark.parametrize(("seconds", "recorded"), [(15.0, UNKNOWN_BOOT_SECONDS), (300.0, 300.0)])
def test_a_restore_waits_for_slow_units_as_long_as_a_deployment(
    seconds: float, recorded: float
) -> None:
    backup = HostBackup("web1", "study", HostState(units={"app": True}))
    starts = backup.with_starts({"app": UnitStart(seconds=seconds)}).starts
    assert starts["app"].seconds == recorded


def test_what_is_no_file_is_not_replaced() -> None:
    there = ObservedHost({"/dev/null": ObservedFile("other")})
    with pytest.raises(AutotuneError, match="/dev/null is neither a file nor a link"):
        HostBackup("web1", "study").with_observed_state(there, {})


def test_the_controllers_copy(tmp_path: Path) -> None:
    kept = BackupStore(tmp_path)
    assert kept.read("web1") is None
    assert kept.list_hosts() == ()
    backup = HostBackup("web1", "study").with_observed_state(seen("/conf"), {"/conf": b"password"})
    kept.write(backup)
    assert kept.list_hosts() == ("web1",)
    assert kept.read("web1") == backup
    assert stat.S_IMODE(kept.path_for("web1").stat().st_mode) == 0o600
    kept.remove("web1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"schema": 1, "host": "a"}', b"\xff"])
def test_a_record_that_makes_no_sense_says_where_it_is(content: bytes) -> None:
    with pytest.raises(AutotuneError, match=r"/somewhere is not a valid backup"):
        decode_backup(content, "/somewhere")


@pytest.mark.parametrize("key", ["unit", "directory", "socket", "argv", "files"])
@pytest.mark.parametrize("value", [5, ["a", 5], {"a": 1}])
def test_a_check_that_is_no_text_is_refused(key: str, value: object) -> None:
    check = BackupCheck("a.service", ("a", "-t"), ("/etc/a",), "/run/a", "/run/a/socket")
    content = json.loads(encode_backup(HostBackup("web1", "shop", checks=(check,))))
    assert decode_backup(json.dumps(content).encode(), "a copy").checks == (check,)
    content["checks"][0][key] = value
    with pytest.raises(
        AutotuneError, match="a copy is not a valid backup: expected a list of text"
    ):
        decode_backup(json.dumps(content).encode(), "a copy")


@pytest.mark.parametrize(
    "path",
    ["", "etc/x", "/", "/etc/../root/x", "/etc//x", "/etc/./x", "/etc/x/", "/etc/\x1bx", "/a\nb"],
)
def test_only_paths_as_services_name_them_are_restored(path: str) -> None:
    backup = HostBackup("web1", "shop", HostState({path: FileState()}, {}, {}))
    with pytest.raises(AutotuneError, match="is not a valid file path"):
        decode_backup(encode_backup(backup), "a copy")
