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

from autotune import durable, foreign_files
from autotune.errors import AutotuneError

KEY, LENGTH = "key", 32
VARIABLE = "XDG_STATE_HOME"
WAY_OUT = f"set {VARIABLE} to a directory of this account that is kept"


def seal(what: str, *parts: bytes) -> str:
    """A digest of ``parts`` that only this account can make (HMAC-SHA-256); ``what`` tells kinds apart.

    Raises AutotuneError if the key cannot be read or kept.
    """
    return _seal(_key(), what, parts)


def is_sealed(sealed: str, what: str, *parts: bytes) -> bool:
    """True if this account made the seal. No key is made."""
    try:
        key = _read(state_directory())
    except (AutotuneError, OSError):
        return False
    return hmac.compare_digest(sealed.encode(), _seal(key, what, parts).encode())


def state_directory() -> Path:
    """The directory for what this account keeps outside of studies; it may not be there yet.

    Raises AutotuneError if the account has no place for it.
    """
    if (named := os.environ.get(VARIABLE, "")).startswith("/"):
        return Path(named) / "autotune"
    return _home() / ".local" / "state" / "autotune"


def make_state_directory() -> Path:
    """The same, made if need be. Raises AutotuneError if another account can change it."""
    directory = state_directory()
    try:
        durable.make_directory(directory, 0o700)
        foreign_files.check_own(directory)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AutotuneError(f"{directory} cannot be made: {reason}", hint=WAY_OUT) from error
    return directory


def _key() -> bytes:
    directory = make_state_directory()
    with contextlib.suppress(FileNotFoundError):
        return _read(directory)
    staged = directory / f".{KEY}.{secrets.token_hex(8)}"
    durable.write(staged, secrets.token_bytes(LENGTH), 0o600)
    try:
        with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
            os.link(staged, directory / KEY)
    finally:
        staged.unlink()
    durable.sync_directory(directory)
    return _read(directory)


def _read(directory: Path) -> bytes:
    with foreign_files.open_file(directory, KEY, LENGTH) as file:
        status = os.fstat(file.fileno())
        content = file.read(LENGTH + 1)
    private = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
    if not private or len(content) != LENGTH:
        raise AutotuneError(
            f"{directory / KEY} is not a key that only this account can read",
            hint="move it away: autotune makes another, and reads earlier studies as someone else's",
        )
    return content


def _seal(key: bytes, what: str, parts: tuple[bytes, ...]) -> str:
    digest = hmac.new(key, digestmod="sha256")
    for part in (what.encode(), *parts):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _home() -> Path:
    """The home of the account that runs this: with `sudo`, HOME may be another account's."""
    candidates = [os.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        candidates.append(pwd.getpwuid(os.geteuid()).pw_dir)
    for home in map(Path, filter(None, candidates)):
        with contextlib.suppress(OSError):
            if home.is_absolute() and home.stat().st_uid == os.geteuid():
                return home
    raise AutotuneError("this account has no home directory", hint=WAY_OUT)
