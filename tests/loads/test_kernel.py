"""What a load host's kernel is changed to, whatever it has."""

from __future__ import annotations

import pytest

from autotune.loads.kernel import FILES, RANGE, REUSE, fit

STOCK = {RANGE: "32768 60999", REUSE: "2", FILES: "9223372036854775807"}


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (STOCK, {RANGE: "1024 65535", REUSE: "1"}),
        ({**STOCK, RANGE: "1024 65535", REUSE: "1"}, {}),
        ({**STOCK, RANGE: "500 60999"}, {RANGE: "500 65535", REUSE: "1"}),
        ({**STOCK, FILES: "8192"}, {RANGE: "1024 65535", REUSE: "1", FILES: "65536"}),
        ({RANGE: None, REUSE: None, FILES: None}, {}),
        ({RANGE: "nonsense", REUSE: "0"}, {REUSE: "1"}),
        ({}, {}),
    ],
)
def test_only_what_is_too_tight_is_changed(
    found: dict[str, str | None], wanted: dict[str, str]
) -> None:
    assert fit(found) == wanted
    assert fit({**found, **wanted}) == {}
