"""Read a host's settings from the OpenSSH configuration with `ssh -G`.

OpenSSH itself parses the configuration, so includes, patterns, matches and canonical names behave
exactly as in `ssh`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which

from fabric import Config
from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from autotune.home_directory import expand_home
from autotune.strict_parsing import split_lines
from autotune.transports.base import HostUnreachable, SshHost

_TIMEOUT_SECONDS = 30.0  # time for name resolution (CanonicalizeHostname) and commands (Match exec)
_USED_KEYS = frozenset({
    "hostname", "user", "port", "identityfile", "identitiesonly", "proxyjump", "proxycommand",
    "hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "revokedhostkeys",
})  # fmt: skip
# Directives that the SSH library ignores, or interprets differently from ssh.
_UNSUPPORTED_PATTERN = re.compile(
    r"^[^\S\n]*(?:include|match|canonical\w*)\b|\[", re.IGNORECASE | re.MULTILINE
)
_KEY_KINDS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa")
_DEFAULT_IDENTITIES = frozenset(f"~/.ssh/id_{kind}" for kind in _KEY_KINDS)
_UNSET_VALUES = {("proxycommand", "none"), ("proxyjump", "none")}


def read_ssh_settings(host: SshHost) -> Config:
    """Return a host's settings as a configuration for the SSH library. Raises HostUnreachable."""
    if host.config_file is not None and not Path(host.config_file).is_file():
        raise HostUnreachable(
            f"{host.name}: SSH configuration {host.config_file} does not exist",
            hint="correct `ssh:` in the target; for a lab, `autotune lab up` creates the file",
        )
    if which("ssh") is None:
        return _read_without_ssh(host)
    setting_lines = [
        line.split(" ", 1) for line in split_lines(_print_settings(host)) if " " in line
    ]
    used_settings = [
        (key, value)
        for key, value in setting_lines
        if key in _USED_KEYS and (key, value) not in _UNSET_VALUES
    ]
    identity_files = [value for key, value in used_settings if key == "identityfile"]
    # Omit the default keys, so that the agent's keys come first.
    if len(identity_files) > 1 and _DEFAULT_IDENTITIES.issuperset(identity_files):
        used_settings = [(key, value) for key, value in used_settings if key != "identityfile"]
    config_text = "Host *\n" + "".join(f"    {key} {value}\n" for key, value in used_settings)
    return Config(ssh_config=SSHConfig.from_text(config_text))


def _read_without_ssh(host: SshHost) -> Config:
    """Read the configuration with the SSH library. Raises HostUnreachable if ssh would interpret a
    directive differently.
    """
    path = expand_home(host.config_file or "~/.ssh/config")
    config_text = path.read_text(errors="replace") if path.is_file() else ""
    if _UNSUPPORTED_PATTERN.search(config_text):
        raise HostUnreachable(
            f"{host.name}: reading {path} requires the program ssh, which is not installed",
            hint="install the OpenSSH client, such as Debian's openssh-client",
        )
    try:
        config = Config() if host.config_file is None else Config(runtime_ssh_path=host.config_file)
        config.base_ssh_config.lookup(host.address)
    except (ConfigParseError, ValueError, OSError) as error:
        raise HostUnreachable(
            f"{host.name}: invalid SSH configuration ({error})",
            hint=f"`ssh -G {host.address}` shows the line",
        ) from None
    return config


def _print_settings(host: SshHost) -> str:
    command_words = ["ssh", "-G"]
    command_words += ["-F", host.config_file] if host.config_file is not None else []
    command_words += ["-l", host.user] if host.user is not None else []
    command_words += ["-p", str(host.port)] if host.port is not None else []
    try:
        command_result = subprocess.run(
            [*command_words, "--", host.address],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise HostUnreachable(
            f"{host.name}: `{' '.join(command_words)} {host.address}` did not finish within "
            f"{_TIMEOUT_SECONDS:g} s",
            hint="check Match exec and CanonicalizeHostname in the SSH configuration",
        ) from None
    if command_result.returncode != 0:
        ssh_message = command_result.stderr.decode(errors="replace").strip()[:400]
        raise HostUnreachable(
            f"{host.name}: invalid SSH configuration ({ssh_message})",
            hint=f"`{' '.join(command_words)} {host.address}` shows the error",
        )
    return command_result.stdout.decode(errors="replace")
