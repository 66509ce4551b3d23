"""Which of a host's own files have templates: a file that adopting a stack writes beside these."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from autotune import config_text, foreign_files
from autotune.errors import AutotuneError
from autotune.services.base import ConfigFile, Own
from autotune.strict import octal, parse_json

NAME = "files.json"
_TEXTS = ("loses", "unit", "main", "deployment")  # fields of `Own`, written unless empty


def of(directory: Path | None) -> dict[str, Own]:
    """The hosts' own files by the names of parts (``web.web1.nginx``); none without a manifest.

    Raises AutotuneError for one that cannot be read.
    """
    path = directory / NAME if directory else None
    if path is None or not path.exists():
        return {}
    try:
        return of_record(parse_json(foreign_files.read_named(path, foreign_files.RECORD)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutotuneError(
            f"{path} cannot be read: {error}", hint="`autotune init --from` writes it anew"
        ) from error


def check(own: Mapping[str, Own], parts: Collection[str]) -> None:
    """Raise AutotuneError where files belong to nothing in the stack.

    Without this check, a renamed tier would get autotune's own files in place of the host's.
    """
    if unknown := sorted(set(own) - set(parts)):
        raise AutotuneError(
            f"{NAME} has files of {', '.join(unknown)}, which the target does not have",
            hint=f"rename tiers, hosts and services in {NAME} as in the target",
        )


def text(own: Mapping[str, Own]) -> str:
    """The manifest as a file, in JSON."""
    return json.dumps(record(own), indent=2) + "\n"


def record(own: Mapping[str, Own]) -> dict[str, Any]:
    """The hosts' own files by the names of parts, for JSON."""
    return {
        part: {
            "files": {
                file.path: {"template": file.template, "mode": f"{file.mode:04o}",
                            **_text_field(file.text),
                            **({"optional": True} if file.optional else {})}
                for file in own_files.files
            },
            "listen": own_files.listen,
            **{key: text for key in _TEXTS if (text := getattr(own_files, key))},
        }
        for part, own_files in own.items()
    }  # fmt: skip


def _text_field(text: str | None) -> dict[str, str]:
    """A text for JSON, which has no place for bytes that are no UTF-8."""
    if text is None:
        return {}
    if config_text.is_utf8(text):
        return {"text": text}
    return {"base64": b64encode(config_text.encode(text)).decode()}


def _text(file: Mapping[str, Any]) -> str | None:
    """The inverse. Raises ValueError."""
    if "base64" in file:
        return config_text.decode(b64decode(file["base64"], validate=True))
    return file.get("text")


def of_record(record: Mapping[str, Any]) -> dict[str, Own]:
    """The inverse of ``record``.

    Raises ValueError, KeyError, TypeError or AttributeError for anything else.
    """
    return {part: _own(own_files) for part, own_files in record.items()}


def _own(record: Mapping[str, Any]) -> Own:
    files = tuple(
        ConfigFile(
            path,
            str(file["template"]),
            octal(file["mode"]),
            _text(file),
            bool(file.get("optional")),
        )
        for path, file in record["files"].items()
    )
    texts = {key: str(record.get(key, "")) for key in _TEXTS}
    return Own(files, str(record["listen"]), **texts)
