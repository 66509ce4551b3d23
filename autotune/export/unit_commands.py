"""Check that exported files do not make a service manager run commands as root.

Unit files, and files with a unit's variables, are checked. Such a file is exported if autotune's own
template renders it, or if it sets only limits and numbers. An edited file is also exported if the edit
changes only limits and numbers. On the host, the script checks the lines that an edit removes, and
keeps all other lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from autotune.deploy.desired_state import DesiredState, render_files
from autotune.deploy.stack import ServiceInstance
from autotune.errors import RenderError
from autotune.export.export_error import APPLY_HINT, ExportError
from autotune.export.masked_lines import find_placeholders
from autotune.report.studies import Study
from autotune.services import unit_environment, unit_files
from autotune.services.registry import find_adoption
from autotune.unified_diff import Hunk

PROGRAM_DIRECTORIES = (
    "/usr/sbin/",
    "/usr/bin/",
    "/usr/local/sbin/",
    "/usr/local/bin/",
    "/sbin/",
    "/bin/",
    "",
)
# Safe lines in a unit file: limits, and variables without paths.
_LIMIT_PATTERN = r"LimitNOFILE=[0-9:]+"
_COMMAND_FREE_SETTINGS = re.compile(
    rf"""|\[Service\]|[#;].*|{_LIMIT_PATTERN}"""
    r"""|Environment=("?)[A-Z][A-Z0-9_]*=[\w .=,+-]*\1|([A-Z][A-Z0-9_]*=[\w.=,+-]*)"""
)
_LOADER_PATTERN = re.compile(r"\bLD_")
# One variable in a line of an edit. The value of a variable is a single word, or is quoted.
_VARIABLE_PATTERN = re.compile(
    r"""(?:Environment=)?(?P<quote>"?)(?P<name>[A-Z][A-Z0-9_]*)="""
    r"""(?P<value>[\w.=,+-]*(?(quote)(?: [\w.=,+-]+)*))(?P=quote)"""
)
_NUMBER_PATTERN = re.compile(r"[0-9]+")


def check_commands(
    study: Study,
    desired: DesiredState,
    instance: ServiceInstance,
    path: str,
    content: bytes,
    edits: tuple[Hunk, ...] | None,
) -> None:
    """Raise AutotuneError if a unit file, or a unit's file of environment variables, could run a
    command.
    """
    if not can_run_commands(path):
        return
    if edits is not None:
        is_safe = all(_is_safe_hunk(instance, hunk) for hunk in edits)
    else:
        is_safe = has_no_commands(content) or (
            instance.placement.adopted is None
            and _is_rendered(study, desired, instance, path, content)
        )
    if not is_safe:
        raise ExportError(
            study,
            f"{path} on {instance.placement.host} changes unit settings other than resource limits "
            "and numeric values",
            APPLY_HINT,
        )


def is_below_pattern(path: str, pattern: str) -> bool:
    """True if a shell pattern, relative to ``/``, matches the path or a directory above it."""
    pattern_names = PurePosixPath(pattern).parts
    path_names = PurePosixPath(path).parts[1:]
    return len(path_names) >= len(pattern_names) and all(
        map(fnmatchcase, path_names, pattern_names)
    )


def can_run_commands(path: str) -> bool:
    """True if a path belongs to a unit file or to a file of environment variables for units."""
    return path.startswith(
        tuple(f"{directory}/" for directory in unit_files.UNIT_DIRECTORIES)
    ) or any(
        is_below_pattern(path, pattern)
        for pattern in (*unit_environment.ENVIRONMENT_FILES, "etc/sysconfig/*")
    )


def has_no_commands(content: bytes) -> bool:
    """True if a unit file sets only limits, and environment variables without paths."""
    joined_text = re.sub(r"\\\n[ \t]*", "", content.decode("utf-8", "replace"))
    lines = [line.strip() for line in joined_text.split("\n")]
    return all(map(_has_no_command, lines))


def _has_no_command(line: str) -> bool:
    return _COMMAND_FREE_SETTINGS.fullmatch(line) is not None and not _LOADER_PATTERN.search(line)


def _is_safe_hunk(instance: ServiceInstance, hunk: Hunk) -> bool:
    """True if a unit's removed and added lines set only limits, and numbers in known environment
    variables.
    """
    removed_words = {word for line in hunk.removed for word in _split_words(line)}
    known_options = {
        f"--{parameter.name.replace('_', '-')}" for parameter in instance.service.parameters
    }

    def is_known_option(word: str) -> bool:
        option, equals_sign, option_number = word.rpartition("=")
        return _NUMBER_PATTERN.fullmatch(option_number) is not None and (
            not equals_sign or option in known_options
        )

    return (
        all(_is_setting(instance, line) for line in (*hunk.removed, *hunk.added))
        and all(
            word in removed_words or is_known_option(word)
            for line in hunk.added
            for word in _split_words(line)
        )
        and _keeps_masked_words(hunk)
    )


def _keeps_masked_words(hunk: Hunk) -> bool:
    """True if edits to lines with masked values only change numbers or append options."""
    masked_lines = [
        [line for line in lines if find_placeholders(line)] for lines in (hunk.removed, hunk.added)
    ]
    return len(masked_lines[0]) == len(masked_lines[1]) and all(
        _extends_words(_split_masked(old_line), _split_masked(new_line))
        for old_line, new_line in zip(*masked_lines, strict=True)
    )


def _extends_words(words: tuple[str, ...], extended_words: tuple[str, ...]) -> bool:
    return extended_words[: len(words)] == words


def _split_masked(line: str) -> tuple[str, ...]:
    """Return the name of a line's environment variable with its opening quote, and the value's
    words with each number replaced by 0.
    """
    variable_match = _VARIABLE_PATTERN.fullmatch(line.strip())
    if variable_match is None:
        return (line,)
    words = (
        word if find_placeholders(word) else re.sub(r"[0-9]+", "0", word)
        for word in variable_match["value"].split()
    )
    return (line.strip()[: variable_match.start("value")], *words)


def _is_setting(instance: ServiceInstance, line: str) -> bool:
    """True if a line sets a limit, or an environment variable that the service tunes or reads."""
    line_text = line.strip()
    if re.fullmatch(_LIMIT_PATTERN, line_text):
        return True
    adoption, variable = find_adoption(instance.service), _VARIABLE_PATTERN.fullmatch(line_text)
    if adoption is None or variable is None:
        return False
    return adoption.visible.visible_variables.fullmatch(variable["name"]) is not None


def _split_words(line: str) -> Iterable[str]:
    variable_match = _VARIABLE_PATTERN.fullmatch(line.strip())
    return variable_match["value"].split() if variable_match else ()


def _is_rendered(
    study: Study, desired: DesiredState, instance: ServiceInstance, path: str, content: bytes
) -> bool:
    """True if autotune's own template renders this content with one of the possible program paths.

    Limits depend on the host, so limits in the content may differ from the rendered limits.
    """
    for directory in PROGRAM_DIRECTORIES:
        programs = {
            program_name: f"{directory}{program}"
            for program_name, program in instance.placement.programs.items()
        }
        placement = replace(instance.placement, programs=programs)
        with suppress(RenderError):
            contents_by_path = render_files(
                instance.service, placement, desired.settings, study.target.data
            )
            if _remove_limits(contents_by_path.get(path)) == _remove_limits(content):
                return True
    return False


def _remove_limits(content: bytes | None) -> bytes | None:
    return content and re.sub(rb"(?m)^LimitNOFILE=[0-9:]+$", b"LimitNOFILE=", content)
