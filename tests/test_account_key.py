"""The key of an account: outside of studies, for this account alone, made once."""

from __future__ import annotations

import stat
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from autotune import account_key
from autotune.account_key import create_seal, find_state_directory, is_valid_seal
from autotune.errors import AutotuneError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "autotune"


def test_a_seal_holds_for_what_was_sealed_and_nothing_else() -> None:
    made = create_seal("study", b"ab", b"c")
    assert is_valid_seal(made, "study", b"ab", b"c")
    for what, *parts in (("study", b"a", b"bc"), ("other", b"ab", b"c"), ("study", b"ab")):
        assert not is_valid_seal(made, what, *parts)
    assert not is_valid_seal("", "study", b"ab", b"c")


def test_the_key_is_for_its_account_alone(state: Path) -> None:
    create_seal("study")
    assert stat.S_IMODE((state / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert [path.name for path in state.iterdir()] == ["key"]


def test_to_ask_makes_no_key(state: Path) -> None:
    assert not is_valid_seal("0" * 64, "study")
    assert not state.exists()


def test_all_that_begin_at_once_have_one_key() -> None:
    with ThreadPool(8) as pool:
        assert len(set(pool.map(lambda _: create_seal("study"), range(64)))) == 1


def test_another_key_knows_no_earlier_seal(state: Path) -> None:
    made = create_seal("study")
    (state / "key").unlink()
    assert create_seal("study") != made
    assert not is_valid_seal(made, "study")


@pytest.mark.parametrize("spoil", ["shared", "short", "link", "directory for others"])
def test_a_key_that_others_may_know_is_not_used(state: Path, spoil: str) -> None:
    made = create_seal("study")
    if spoil == "shared":
        (state / "key").chmod(0o644)
    elif spoil == "short":
        (state / "key").write_bytes(b"")
    elif spoil == "link":
        (state / "key").rename(state / "elsewhere")
        (state / "key").symlink_to(state / "elsewhere")
    else:
        state.chmod(0o777)
    with pytest.raises(AutotuneError) as caught:
        create_seal("study")
    assert caught.value.hint
    assert not is_valid_seal(made, "study") or spoil == "directory for others"


def test_without_the_variable_it_is_in_the_home_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_state_directory() == tmp_path / ".local" / "state" / "autotune"
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert find_state_directory() != tmp_path / "none" / ".local" / "state" / "autotune"
    monkeypatch.setattr(account_key.pwd, "getpwuid", lambda _: (_ for _ in ()).throw(KeyError))
    with pytest.raises(AutotuneError, match="has no home directory"):
        find_state_directory()
