"""The reference application: a PHP job of a hundred cached keys a request.

That of Wajahat, Masood, Sau, Gandhi, IGSC 2017, doi:10.1109/IGCC.2017.8323580.
"""

from __future__ import annotations

from autotune.services.base import ConfigFile, Role, Service, Site
from autotune.target.model import Data


class ReferenceApp(Service):
    """Files that an application server for PHP runs; no process and no parameters of its own."""

    name = "reference"
    title = "reference application"
    role = Role.APP
    application = "reference"

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (
            ConfigFile(
                site.place("site/kv.php", f"{site.document_root}/kv.php"), "reference/kv.php.j2"
            ),
        )

    def expected_body(self, data: Data) -> bytes:
        """Every key was found."""
        return f"found {data.keys_per_request:04d} of {data.keys_per_request:04d}\n".encode()


SERVICES = (ReferenceApp(),)
