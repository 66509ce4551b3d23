"""Find the programs that services and load generators need, on this machine and on hosts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.runtime import ProgramUser
from autotune.errors import AutotuneError
from autotune.transports.base import Transport

# Servers are in sbin directories, which are often missing from an unprivileged user's PATH.
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def find_local_programs(program_users: Iterable[ProgramUser]) -> dict[str, str]:
    """Return the paths of executables that services and generators need on this machine.

    Raises AutotuneError with all missing programs and the command to install them.
    """
    paths: dict[str, str] = {}
    users_by_missing_program: dict[str, ProgramUser] = {}
    for user in program_users:
        for name, alternatives in user.programs.items():
            path = next(filter(None, map(_find_program, alternatives)), None)
            if path is None:
                users_by_missing_program[name] = user
            else:
                paths[name] = path
    if users_by_missing_program:
        raise AutotuneError(
            f"not installed: {', '.join(sorted(users_by_missing_program))}",
            hint=install_hint(users_by_missing_program.values()),
        )
    return paths


def install_hint(missing_users: Iterable[ProgramUser]) -> str:
    """Return a hint with the commands that install missing programs, Debian packages first."""
    users = list(missing_users)
    package_sources = [user.package_source for user in users if user.package_source]
    packages = {package for user in users if not user.package_source for package in user.packages}
    install_command = f"apt-get install --no-install-recommends {' '.join(sorted(packages))}"
    return "; ".join(dict.fromkeys(([install_command] if packages else []) + package_sources))


def _find_program(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), SYSTEM_PATH)))


def locate_programs(transport: Transport, program_users: Iterable[ProgramUser]) -> dict[str, str]:
    """Return the path of each program on a host, by name. The path is empty if the host lacks the
    program.
    """
    alternatives = {name: paths for user in program_users for name, paths in user.programs.items()}
    commands = [Command(("where", *paths)) for paths in alternatives.values()]
    command_results = run_commands(transport, commands)
    return {
        name: command_result.stdout.strip()
        for name, command_result in zip(alternatives, command_results, strict=True)
    }


def find_installed_programs(
    transport: Transport, program_users: Iterable[ProgramUser]
) -> dict[str, str]:
    """Return the paths of executables on a host, by the names that services use.

    Raises AutotuneError with all missing programs and the command to install them.
    """
    users = list(program_users)
    paths = locate_programs(transport, users)
    missing_programs = sorted(name for name, path in paths.items() if not path)
    if missing_programs:
        lacking_users = [user for user in users if set(user.programs) & set(missing_programs)]
        raise AutotuneError(
            f"not installed on {transport.name}: {', '.join(missing_programs)}",
            hint=f"on this host: {install_hint(lacking_users)}",
        )
    return paths
