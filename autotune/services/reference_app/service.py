"""The reference application: a PHP script that reads a hundred cached keys per request.

The application follows Wajahat, Masood, Sau, Gandhi, IGSC 2017, doi:10.1109/IGCC.2017.8323580.
"""

from __future__ import annotations

from autotune.services.base import ConfigFile, Placement, Role, Service
from autotune.target.model import Data


class ReferenceApp(Service):
    """Files that a PHP application server runs. The service itself has no processes or
    parameters.
    """

    name = "reference"
    title = "reference application"
    role = Role.APP
    application = "reference"

    def list_config_files(self, placement: Placement) -> tuple[ConfigFile, ...]:
        return (
            ConfigFile(
                placement.choose("site/kv.php", f"{placement.document_root}/kv.php"),
                "reference/kv.php.j2",
            ),
        )

    def expected_body(self, data_set: Data) -> bytes:
        """Return the body of the response to a request that found every key."""
        return (
            f"found {data_set.keys_per_request:04d} of {data_set.keys_per_request:04d}\n".encode()
        )


SERVICES = (ReferenceApp(),)
