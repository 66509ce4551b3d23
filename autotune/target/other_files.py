"""Recognize files and directories that are not targets, so that a message names the command or the key
that takes them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.target.yaml_document import YamlDocument

# A file with one of these keys is a target, even if the file also contains keys of another kind.
TARGET_KEYS = frozenset({"tiers", "command", "slo", "hosts"})
EXPORT_KIND = "autotune-export"
COMPOSE_SERVICE_KEYS = frozenset({"image", "build"})


@dataclass(frozen=True)
class FileKind:
    """A kind of file that is not a target: the ``keys`` that it contains, its description and a hint.

    The hint contains ``{path}``, ``{name}`` and ``{directory}`` of the file.
    """

    keys: frozenset[str]
    description: str
    hint: str

    def format_hint(self, path: Path) -> str:
        """Return the hint for the file at ``path``."""
        return self.hint.format(
            path=shlex.quote(str(path)),
            name=shlex.quote(path.name),
            directory=shlex.quote(str(path.parent)),
        )


SETTINGS_FILE = FileKind(
    frozenset({"parameters"}),
    "a file of settings",
    "copy the file's `parameters:` into a target with `tiers:`",
)
COMPOSE_FILE = FileKind(
    frozenset({"services"}),
    "a Compose file",
    "use the file in a target: `project: {{files: {name}}}`",
)
# The first matching kind is used.
FILE_KINDS = (
    FileKind(
        frozenset({"target"}),
        "a sweep file",
        "name the target in its key `target:`; only `sweep` takes sweep files",
    ),
    FileKind(
        frozenset({"requests"}),
        "a list of requests",
        "use the file in a target: `load: {{requests: {name}}}`",
    ),
    FileKind(
        frozenset({"kind", "study", "parameters"}),
        "the manifest of an export",
        "`autotune apply {directory} TARGET` applies the export",
    ),
    FileKind(
        frozenset({"unit", "role"}),
        "the declaration of a service",
        "copy it into a target: `services: {{NAME: …}}`",
    ),
    SETTINGS_FILE,
    COMPOSE_FILE,
)


def reject_other_file(document: YamlDocument) -> None:
    """Raise TargetError if a YAML file is not a target, but a file of another known kind."""
    root = document.root
    is_certain = "target" in root or root.get("kind") == EXPORT_KIND
    if TARGET_KEYS & root.keys() and not is_certain:
        return
    for kind in FILE_KINDS:
        if kind.keys <= root.keys() and _has_kind(root, kind):
            raise document.build_error(
                (),
                f"this is {kind.description}, not a target",
                hint=kind.format_hint(document.path),
            )


def _has_kind(root: Mapping[str, Any], kind: FileKind) -> bool:
    """True if the values of a file, which contains the keys of ``kind``, are also of this kind."""
    if kind is SETTINGS_FILE:
        return root.keys() <= {"parameters", "simulated"}
    if kind is COMPOSE_FILE:
        services = root["services"]
        return isinstance(services, dict) and any(
            isinstance(service, dict) and COMPOSE_SERVICE_KEYS & service.keys()
            for service in services.values()
        )
    return True
