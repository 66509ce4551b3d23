"""The secret key of this user account, which proves that the account created a study or a host's
backup.

The key is stored outside of studies, so a study from someone else does not contain the key.
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
STATE_HOME_HINT = f"set {STATE_HOME_VARIABLE} to a permanent directory of this account"


def create_seal(purpose: str, *contents: bytes) -> str:
    """Return a digest of ``contents`` that only this account can compute (HMAC-SHA-256).

    A digest for one ``purpose`` is not valid for other purposes. Raises AutotuneError if the key
    cannot be read or stored.
    """
    return _compute_seal(_load_or_create_key(), purpose, contents)


def is_valid_seal(seal: str, purpose: str, *contents: bytes) -> bool:
    """True if this account created ``seal`` for ``contents``. No key is created."""
    try:
        key = _read_key(find_state_directory())
    except (AutotuneError, OSError):
        return False
    return hmac.compare_digest(seal.encode(), _compute_seal(key, purpose, contents).encode())


def find_state_directory() -> Path:
    """Return the directory for data that this account stores outside of studies. The directory may be
    missing.

    Raises AutotuneError if the account has no home directory.
    """
    if (state_home := os.environ.get(STATE_HOME_VARIABLE, "")).startswith("/"):
        return Path(state_home) / "autotune"
    return _find_home_directory() / ".local" / "state" / "autotune"


def make_state_directory() -> Path:
    """Return the state directory, and create it if it is missing.

    Raises AutotuneError if another account can change the directory.
    """
    directory = find_state_directory()
    try:
        durable_files.make_directory(directory, 0o700)
        foreign_files.check_ownership(directory)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AutotuneError(f"cannot create {directory}: {reason}", hint=STATE_HOME_HINT) from error
    return directory


def _load_or_create_key() -> bytes:
    directory = make_state_directory()
    with contextlib.suppress(FileNotFoundError):
        return _read_key(directory)
    staged_path = directory / f".{KEY_FILE}.{secrets.token_hex(8)}"
    durable_files.write_file(staged_path, secrets.token_bytes(KEY_BYTES), 0o600)
    try:
        with contextlib.suppress(FileExistsError):  # another process has just stored a key
            os.link(staged_path, directory / KEY_FILE)
    finally:
        staged_path.unlink()
    durable_files.sync_directory(directory)
    return _read_key(directory)


def _read_key(directory: Path) -> bytes:
    with foreign_files.open_file(directory, KEY_FILE, KEY_BYTES) as file:
        status = os.fstat(file.fileno())
        content = file.read(KEY_BYTES + 1)
    is_private = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
    if not is_private or len(content) != KEY_BYTES:
        raise AutotuneError(
            f"{directory / KEY_FILE} is not a valid key file, or other accounts can access it",
            hint="move it away: autotune then creates a new key, and treats earlier "
            "studies as foreign",
        )
    return content


def _compute_seal(key: bytes, purpose: str, contents: tuple[bytes, ...]) -> str:
    digest = hmac.new(key, digestmod="sha256")
    for content in (purpose.encode(), *contents):
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def _find_home_directory() -> Path:
    """Return a home directory that this account owns. With `sudo`, HOME may belong to another account."""
    candidates = [os.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        candidates.append(pwd.getpwuid(os.geteuid()).pw_dir)
    for home in map(Path, filter(None, candidates)):
        with contextlib.suppress(OSError):
            if home.is_absolute() and home.stat().st_uid == os.geteuid():
                return home
    raise AutotuneError("this account has no home directory", hint=STATE_HOME_HINT)
