from __future__ import annotations

import pytest

from autotune.target.coherence import EXAMPLES
from autotune.target.findings import HINTS, MISSING, SECRET, WORDS, keys_at
from autotune.target.model import Target


@pytest.mark.parametrize(
    ("location", "some"),
    [
        ((), "tiers"),
        (("slo",), "p99"),
        (("slo",), "errors"),
        (("hosts", "web1"), "address"),
        (("tiers", "web"), "forwards_to"),
        (("parameters", "web.nginx.use"), "range"),
        (("load",), "max_rate"),
        (("budget",), "trials"),
    ],
)
def test_keys_at(location: tuple[str, ...], some: str) -> None:
    assert some in keys_at(location)


def test_the_objective_hides_how_it_is_kept() -> None:
    assert {"quantile", "limit"}.isdisjoint(keys_at(("slo",)))


def _needed(node: object) -> set[str]:
    found: set[str] = set()
    if isinstance(node, dict):
        found |= {key for key in node.get("required", []) if isinstance(key, str)}
        for item in node.values():
            found |= _needed(item)
    if isinstance(node, list):
        for item in node:
            found |= _needed(item)
    return found


def test_whatever_is_needed_has_an_example() -> None:
    # A host's address is asked for in words of its own (model.Host), a transport has a default.
    needed = _needed(Target.model_json_schema()) - {"address", "transport", "range", "command"}
    assert needed <= set(MISSING) | set(EXAMPLES)


def test_every_hint_belongs_to_a_finding() -> None:
    assert set(HINTS) <= set(WORDS)


@pytest.mark.parametrize(
    "key",
    ["password", "ssh_password", "passwd", "passphrase", "secret", "client_secret", "token",
     "api_token", "credentials", "key", "ssh_key", "private_key", "key_file", "identity_file"],
)  # fmt: skip
def test_secrets(key: str) -> None:
    assert SECRET.search(key)


@pytest.mark.parametrize("key", ["adress", "keys_per_reqest", "pasword_free", "monkey", "kei"])
def test_misspelt_keys_are_no_secrets(key: str) -> None:
    assert not SECRET.search(key)
