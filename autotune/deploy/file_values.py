"""Read the values that the software finds in candidate files, before the files are deployed.

The candidate files are staged, and mounted at their final paths only for the command that reads
them. The current files do not change.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.deploy.host_commands import Command, build_mount_command
from autotune.deploy.runtime import ValidationCases
from autotune.deploy.staged_cases import StagedCase, run_on_staged_files
from autotune.services.base import Value
from autotune.transports.base import Transport


def read_file_values(
    transport: Transport, validation_cases: ValidationCases
) -> list[Mapping[str, Value]]:
    """Return the parameter values of each case, by bare parameter name.

    The values of a case are empty if its service cannot print values, or if the software rejects the
    files. Raises HostUnreachable, or AutotuneError if a file cannot be staged.
    """

    def build_file_queries(staged_case: StagedCase) -> list[Command]:
        readbacks = staged_case.instance.service.list_file_readbacks(staged_case.instance.placement)
        return [
            Command(build_mount_command(staged_case.staged_paths, readback.argv))
            for readback in readbacks
        ]

    values_by_case: list[Mapping[str, Value]] = []
    for staged_case, command_results in run_on_staged_files(
        transport, validation_cases, "values", build_file_queries
    ):
        instance = staged_case.instance
        readbacks = instance.service.list_file_readbacks(instance.placement)
        values_by_case.append(
            {
                name: value
                for readback, command_result in zip(readbacks, command_results, strict=True)
                if command_result.ok
                for name, value in readback.parse(command_result.stdout).items()
            }
        )
    return values_by_case
