"""Read files of a host, with their state and content."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.deploy.host_commands import Command, run_required
from autotune.deploy.host_state import FileState, ObservedFile, parse_files, wrap_parse_errors
from autotune.errors import AutotuneError
from autotune.strict_parsing import split_lines
from autotune.transports.base import Transport


@dataclass(frozen=True)
class CurrentFile:
    """A file on a host, with its observed state and content. The content of an absent file is empty."""

    observed: ObservedFile
    content: bytes


def read_files(transport: Transport, paths: Sequence[str]) -> dict[str, CurrentFile]:
    """Return the current files of a host. Raises AutotuneError if a file cannot be read safely."""
    read_commands = [("look", *paths), ("contents", *paths)]
    state_result, content_result = run_required(
        transport, [Command(command, required=True) for command in read_commands]
    )
    observed_files, content = (
        parse_files(tuple(paths), state_result.stdout),
        decode_contents(paths, content_result.stdout),
    )
    for path, file in observed_files.items():
        if file.kind == "refused":
            raise AutotuneError(f"{path} on {transport.name} cannot be read safely: {file.detail}")
    check_unchanged(transport.name, observed_files, content)
    return {path: CurrentFile(observed_files[path], content[path]) for path in paths}


def read_contents(transport: Transport, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of a host's files. The content of an absent file is empty."""
    (content_result,) = run_required(transport, [Command(("contents", *paths), required=True)])
    return decode_contents(paths, content_result.stdout)


def decode_contents(paths: Sequence[str], output: str) -> dict[str, bytes]:
    """Return the contents of files by path, from the output of the shell function ``contents``. Raises
    AutotuneError for invalid output.
    """
    encoded_contents = split_lines(output)
    # The shell removes empty lines at the end, which stand for absent files.
    encoded_contents += [""] * (len(paths) - len(encoded_contents))
    with wrap_parse_errors("the contents of files", "(not shown)"):
        return {
            path: base64.b64decode(line, validate=True)
            for path, line in zip(paths, encoded_contents, strict=True)
        }


def check_unchanged(
    host: str, observed: Mapping[str, ObservedFile], contents: Mapping[str, bytes]
) -> None:
    """Raise AutotuneError if a file was changed between the reads of its state and its content."""
    for path, content in contents.items():
        digest = FileState(content).digest
        if observed[path].kind == "file" and observed[path].detail != digest:
            raise AutotuneError(
                f"{host}: {path} was changed while it was read", hint="run the command again"
            )
