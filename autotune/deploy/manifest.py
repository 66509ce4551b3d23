"""Which of a host's own files have templates: a file that adopting a stack writes beside these."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from autotune import config_text, foreign_files
from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile
from autotune.strict_parsing import parse_file_mode, parse_json

MANIFEST_FILE = "files.json"
_TEXT_FIELDS = ("loses", "unit", "main", "deployment")  # fields of `Own`, written unless empty


def read_manifest(directory: Path | None) -> dict[str, AdoptedConfig]:
    """The hosts' own files by the names of parts (``web.web1.nginx``); none without a manifest.

    Raises AutotuneError for one that cannot be read.
    """
    path = directory / MANIFEST_FILE if directory else None
    if path is None or not path.exists():
        return {}
    try:
        return parse_record(
            parse_json(foreign_files.read_named_file(path, foreign_files.MAX_RECORD_BYTES))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutotuneError(
            f"{path} cannot be read: {error}", hint="`autotune init --from` writes it anew"
        ) from error


def check_manifest(adopted_configs: Mapping[str, AdoptedConfig], parts: Collection[str]) -> None:
    """Raise AutotuneError where files belong to nothing in the stack.

    Without this check, a renamed tier would get autotune's own files in place of the host's.
    """
    if unknown := sorted(set(adopted_configs) - set(parts)):
        raise AutotuneError(
            f"{MANIFEST_FILE} has files of {', '.join(unknown)}, which the target does not have",
            hint=f"rename tiers, hosts and services in {MANIFEST_FILE} as in the target",
        )


def format_manifest(adopted_configs: Mapping[str, AdoptedConfig]) -> str:
    """The manifest as a file, in JSON."""
    return json.dumps(build_record(adopted_configs), indent=2) + "\n"


def build_record(adopted_configs: Mapping[str, AdoptedConfig]) -> dict[str, Any]:
    """The hosts' own files by the names of parts, for JSON."""
    return {
        part: {
            "files": {
                file.path: {"template": file.template, "mode": f"{file.mode:04o}",
                            **_encode_text(file.text),
                            **({"optional": True} if file.optional else {})}
                for file in own_files.files
            },
            "listen": own_files.listen,
            **{key: text for key in _TEXT_FIELDS if (text := getattr(own_files, key))},
        }
        for part, own_files in adopted_configs.items()
    }  # fmt: skip


def _encode_text(text: str | None) -> dict[str, str]:
    """A text for JSON, which has no place for bytes that are no UTF-8."""
    if text is None:
        return {}
    if config_text.is_utf8(text):
        return {"text": text}
    return {"base64": b64encode(config_text.encode(text)).decode()}


def _decode_text(file: Mapping[str, Any]) -> str | None:
    """The inverse. Raises ValueError."""
    if "base64" in file:
        return config_text.decode(b64decode(file["base64"], validate=True))
    return file.get("text")


def parse_record(record: Mapping[str, Any]) -> dict[str, AdoptedConfig]:
    """The inverse of ``build_record``.

    Raises ValueError, KeyError, TypeError or AttributeError for anything else.
    """
    return {part: _parse_adopted(own_files) for part, own_files in record.items()}


def _parse_adopted(record: Mapping[str, Any]) -> AdoptedConfig:
    files = tuple(
        ConfigFile(
            path,
            str(file["template"]),
            parse_file_mode(file["mode"]),
            _decode_text(file),
            bool(file.get("optional")),
        )
        for path, file in record["files"].items()
    )
    texts = {key: str(record.get(key, "")) for key in _TEXT_FIELDS}
    return AdoptedConfig(files, str(record["listen"]), **texts)
