"""The reference application: a PHP job of a hundred cached keys a request (REFERENCE.md A)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.services.base import ConfigFile, Service, Site

if TYPE_CHECKING:
    from autotune.target.model import Data


class ReferenceApp(Service):
    """Files that PHP-FPM runs; no process and no parameters of its own."""

    name = "reference"

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (
            ConfigFile(
                site.place("site/kv.php", f"{site.document_root}/kv.php"), "reference/kv.php.j2"
            ),
        )


def expected_body(data: Data) -> bytes:
    """What a right answer says: every key was found."""
    return f"found {data.keys_per_request:04d} of {data.keys_per_request:04d}\n".encode()
