"""The key of this account, by which it recognises what it wrote itself: studies and backups of hosts.

The key is outside of every study, so that whoever wrote a study cannot have it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import pwd
import secrets
import stat
from pathlib import Path

from autotune import durable_files, foreign_files
from autotune.errors import AutotuneError

KEY_FILE, KEY_BYTES = "key", 32
STATE_HOME_VARIABLE = "XDG_STATE_HOME"
STATE_HOME_HINT = f"set {STATE_HOME_VARIABLE} to a directory of this account that is kept"


def create_seal(purpose: str, *parts: bytes) -> str:
    """A digest of ``parts`` that only this account can make (HMAC-SHA-256); ``purpose`` tells kinds
    apart.

    Raises AutotuneError if the key cannot be read or kept.
    """
    return _compute_seal(_load_or_create_key(), purpose, parts)


def is_valid_seal(seal: str, purpose: str, *parts: bytes) -> bool:
    """True if this account made the seal. No key is made."""
    try:
        key = _read_key(state_directory())
    except (AutotuneError, OSError):
        return False
    return hmac.compare_digest(seal.encode(), _compute_seal(key, purpose, parts).encode())


def state_directory() -> Path:
    """The directory for what this account keeps outside of studies; it may not be there yet.

    Raises AutotuneError if the account has no place for it.
    """
    if (named := os.environ.get(STATE_HOME_VARIABLE, "")).startswith("/"):
        return Path(named) / "autotune"
    return _home_directory() / ".local" / "state" / "autotune"


def make_state_directory() -> Path:
    """The same, made if need be. Raises AutotuneError if another account can change it."""
    directory = state_directory()
    try:
        durable_files.make_directory(directory, 0o700)
        foreign_files.check_ownership(directory)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AutotuneError(
            f"{directory} cannot be made: {reason}", hint=STATE_HOME_HINT
        ) from error
    return directory


def _load_or_create_key() -> bytes:
    directory = make_state_directory()
    with contextlib.suppress(FileNotFoundError):
        return _read_key(directory)
    staged = directory / f".{KEY_FILE}.{secrets.token_hex(8)}"
    durable_files.write_file(staged, secrets.token_bytes(KEY_BYTES), 0o600)
    try:
        with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
            os.link(staged, directory / KEY_FILE)
    finally:
        staged.unlink()
    durable_files.sync_directory(directory)
    return _read_key(directory)


def _read_key(directory: Path) -> bytes:
    with foreign_files.open_file(directory, KEY_FILE, KEY_BYTES) as file:
        status = os.fstat(file.fileno())
        content = file.read(KEY_BYTES + 1)
    private = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
    if not private or len(content) != KEY_BYTES:
        raise AutotuneError(
            f"{directory / KEY_FILE} is not a key that only this account can read",
            hint="move it away: autotune makes another, and reads earlier studies as someone else's",
        )
    return content


def _compute_seal(key: bytes, purpose: str, parts: tuple[bytes, ...]) -> str:
    digest = hmac.new(key, digestmod="sha256")
    for part in (purpose.encode(), *parts):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _home_directory() -> Path:
    """The home of the account that runs this: with `sudo`, HOME may be another account's."""
    candidates = [os.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        candidates.append(pwd.getpwuid(os.geteuid()).pw_dir)
    for home in map(Path, filter(None, candidates)):
        with contextlib.suppress(OSError):
            if home.is_absolute() and home.stat().st_uid == os.geteuid():
                return home
    raise AutotuneError("this account has no home directory", hint=STATE_HOME_HINT)
