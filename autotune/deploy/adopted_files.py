"""Read and write the record of the hosts' own files, which is in a study's journal or next to a target's
templates. Find the files that were changed since the record was made.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from autotune import config_text, foreign_files
from autotune.deploy.desired_state import DesiredState
from autotune.deploy.host_state import FileState, HostState
from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile
from autotune.strict_parsing import parse_file_mode, parse_json

ADOPTED_FILE = "files.json"
_TEXT_FIELDS = ("loses", "unit", "main", "deployment")  # text fields, omitted if empty


def read_adopted_files(directory: Path | None) -> dict[str, AdoptedConfig]:
    """Return the hosts' own files by instance name, such as ``web.web1.nginx``. The result is empty
    if ``directory`` does not contain a record.

    Raises AutotuneError for an unreadable record.
    """
    path = directory / ADOPTED_FILE if directory else None
    if path is None or not path.exists():
        return {}
    try:
        return parse_record(
            parse_json(foreign_files.read_named_file(path, foreign_files.MAX_RECORD_BYTES))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutotuneError(
            f"{path} cannot be read: {error}",
            hint="run `autotune init --from HOST,… --out NEW.yaml`, and copy your settings to it",
        ) from error


def check_adopted_files(
    adopted_configs: Mapping[str, AdoptedConfig], instance_names: Collection[str]
) -> None:
    """Raise AutotuneError if the record contains files of an instance that is not in the stack.

    Without this check, a renamed tier would get autotune's files instead of the host's own files.
    """
    if unknown_names := sorted(set(adopted_configs) - set(instance_names)):
        raise AutotuneError(
            f"{ADOPTED_FILE} lists files of {', '.join(unknown_names)}, which are not in the target",
            hint=f"use the same tier, host and service names in {ADOPTED_FILE} as in the target",
        )


def format_adopted_files(adopted_configs: Mapping[str, AdoptedConfig]) -> str:
    """Return the record as JSON text."""
    return json.dumps(build_record(adopted_configs), indent=2) + "\n"


def build_record(adopted_configs: Mapping[str, AdoptedConfig]) -> dict[str, Any]:
    """Return a record of the hosts' own files by instance, as JSON values."""
    return {
        instance_name: {
            "files": {
                file.path: {
                    "template": file.template,
                    "mode": f"{file.mode:04o}",
                    **_encode_text(file.text),
                    **({"optional": True} if file.optional else {}),
                    **({"sha256": file.digest} if file.digest else {}),
                }
                for file in own_files.files
            },
            "listen": own_files.listen,
            **{key: field_text for key in _TEXT_FIELDS if (field_text := getattr(own_files, key))},
        }
        for instance_name, own_files in adopted_configs.items()
    }


def _encode_text(file_text: str | None) -> dict[str, str]:
    """Return a file's text as a JSON field, in base64 if it contains bytes that are not UTF-8."""
    if file_text is None:
        return {}
    if config_text.is_utf8(file_text):
        return {"text": file_text}
    return {"base64": b64encode(config_text.encode(file_text)).decode()}


def _decode_text(file_record: Mapping[str, Any]) -> str | None:
    """Return the text that ``_encode_text`` encoded. Raises ValueError if the field is invalid."""
    if "base64" in file_record:
        return config_text.decode(b64decode(file_record["base64"], validate=True))
    return file_record.get("text")


def parse_record(record: Mapping[str, Any]) -> dict[str, AdoptedConfig]:
    """Return the files in a record from ``build_record``.

    Raises ValueError, KeyError, TypeError or AttributeError for an invalid record.
    """
    return {instance_name: _parse_adopted(own_files) for instance_name, own_files in record.items()}


def _parse_adopted(record: Mapping[str, Any]) -> AdoptedConfig:
    config_files = tuple(
        ConfigFile(
            path,
            str(file_record["template"]),
            parse_file_mode(file_record["mode"]),
            _decode_text(file_record),
            bool(file_record.get("optional")),
            str(file_record.get("sha256", "")),
        )
        for path, file_record in record["files"].items()
    )
    text_fields = {field_name: str(record.get(field_name, "")) for field_name in _TEXT_FIELDS}
    return AdoptedConfig(config_files, str(record["listen"]), **text_fields)


def map_template_digests(
    desired: DesiredState, is_selected: Callable[[str, str], bool]
) -> dict[str, dict[str, str]]:
    """Return the digests of the files from which templates were made, by host and path. The digest of
    a file that did not exist is empty.

    ``is_selected(host, path)`` is true for the files that are returned.
    """
    digests_by_host: dict[str, dict[str, str]] = {}
    for instance in desired.instances:
        host, adopted = instance.placement.host, instance.placement.adopted
        for file in adopted.files if adopted else ():
            path = desired.layout.path_for(instance, file.path)
            # The files of a template directory have no digests, and their templates are not embedded.
            is_new = file.optional and file.text is not None
            if (file.digest or is_new) and is_selected(host, path):
                digests_by_host.setdefault(host, {})[path] = file.digest
    return digests_by_host


def list_changed_files(
    digests_by_host: Mapping[str, Mapping[str, str]], current_states: Mapping[str, HostState]
) -> list[str]:
    """Return ``host: path`` for each file whose current content does not have the expected digest."""
    return [
        f"{host}: {path}"
        for host, digests in digests_by_host.items()
        for path, digest in digests.items()
        if current_states[host].files.get(path, FileState()).digest != digest
    ]
