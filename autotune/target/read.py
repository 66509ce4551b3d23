"""From a path to a target that makes sense as a whole, or to one message that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from autotune.target import findings
from autotune.target.coherence import findings as incoherences
from autotune.target.document import Document
from autotune.target.model import Target
from autotune.target.yaml_tree import load


@dataclass(frozen=True)
class TargetFile:
    """A valid target and the document to point into when something later does not fit it."""

    target: Target
    document: Document

    @property
    def path(self) -> Path:
        return self.document.path


def read(path: Path) -> TargetFile:
    """Read and check a target file.

    Raises TargetError with ``file:line:column`` and, for a misspelt name, the nearest known one.
    Where there is more than one mistake it is about the first to mend.
    """
    document = load(path)
    try:
        target = Target.model_validate(document.root)
    except ValidationError as error:
        raise findings.first(document, error.errors()) from None
    found = sorted(incoherences(target), key=lambda finding: document.position(finding.location))
    for finding in found:
        raise document.error(finding.location, finding.message, hint=finding.hint)
    return TargetFile(target, document)
