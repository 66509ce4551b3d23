"""What is an address and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.errors import AutotuneError
from autotune.transports.base import SshHost


@pytest.mark.parametrize("address", ["web1", "10.0.0.1", "fe80::1%eth0", "a_b.example.org", "::1"])
def test_names_and_addresses_are_taken(address: str) -> None:
    assert SshHost("web1", address).address == address


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "; rm -rf /"},
        {"address": "-oProxyCommand=id"},
        {"address": "$(id)"},
        {"address": ""},
        {"user": "root;id"},
        {"user": "-l"},
        {"port": 0},
        {"port": 70000},
        {"connect_timeout": 0.0},
    ],
)
def test_what_is_none_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(AutotuneError, match="web1"):
        SshHost("web1", **{"address": "web1", **fields})
