"""The reference application: a PHP job of a hundred cached keys a request (REFERENCE.md A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.services.base import Argv, ConfigFile, Parameter, Readback, Site

if TYPE_CHECKING:
    from autotune.target.model import Data


@dataclass(frozen=True)
class ReferenceApp:
    """Files that PHP-FPM runs; no process and no parameters of its own."""

    name: str = "reference"
    packages: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    at_most: tuple[tuple[str, str], ...] = ()
    reload_signal: str | None = None

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (
            ConfigFile(
                site.place("site/kv.php", f"{site.document_root}/kv.php"), "reference/kv.php.j2"
            ),
        )

    def unit(self, site: Site) -> str | None:
        return None

    def validate(self, site: Site, files: Mapping[str, bytes]) -> None:
        return None

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        return None

    def socket(self, site: Site) -> None:
        return None

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return ()


def expected_body(data: Data) -> bytes:
    """What a right answer says: every key was found."""
    return f"found {data.keys_per_request:04d} of {data.keys_per_request:04d}\n".encode()
