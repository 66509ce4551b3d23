"""Write every generated page, the man page and `tests/messages.txt`."""

from __future__ import annotations

import os

from scripts import cli_reference, user_messages
from scripts.prose.surfaces import ROOT
from scripts.reference import (
    exit_codes,
    generators,
    services,
    target_keys,
    troubleshooting,
    warnings,
)

MODULES = (services, target_keys, warnings, troubleshooting, generators, exit_codes)


def main() -> None:
    os.environ.pop("NO_COLOR", None)
    cli_reference.write()
    for module in MODULES:
        for path, text in module.pages().items():
            (ROOT / path).parent.mkdir(exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
    user_messages.write()


if __name__ == "__main__":
    main()
