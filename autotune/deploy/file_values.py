"""Ask the software what candidate files mean, before they are in place.

The files are staged and mounted at their paths for the command alone. The files in place do not
change.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from autotune.deploy.host import IGNORE_BROKEN_PIPE, build_removal, stage_cases
from autotune.deploy.host_commands import Command, build_mount_command, run_commands
from autotune.deploy.runtime import ValidationCases
from autotune.services.base import Readback, Value
from autotune.transports.base import Transport


def read_file_values(transport: Transport, cases: ValidationCases) -> list[Mapping[str, Value]]:
    """Return the values of each case by bare parameter name.

    The result is empty for services that cannot print them, and for files that the software rejects.
    Raises HostUnreachable, and AutotuneError if a file cannot be staged.
    """
    name = f"values-{secrets.token_hex(8)}"
    staged, commands = stage_cases(transport, cases, name)
    readbacks: list[tuple[int, Readback]] = []
    first_command = len(commands)
    for index, (instance, locations) in enumerate(staged):
        for readback in instance.service.list_file_readbacks(instance.placement):
            readbacks.append((index, readback))
            commands.append(Command(build_mount_command(locations, readback.argv)))
    commands.append(build_removal(cases, name))
    answers = run_commands(
        transport, commands, timeout=60.0 + 10.0 * len(cases), functions=IGNORE_BROKEN_PIPE
    )
    values: list[Mapping[str, Value]] = [{} for _ in cases]
    for (index, readback), answer in zip(readbacks, answers[first_command:], strict=False):
        values[index] = {**values[index], **(readback.parse(answer.stdout) if answer.ok else {})}
    return values
