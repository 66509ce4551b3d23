from __future__ import annotations

import pytest

from autotune.target.key_hints import _OTHER_KEYS, find_key_hint, list_keys_at


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        (("hosts", "web1", "ansible_host"), "write `address: web1.example.org`"),
        (("tiers", "web", "replicas"), "list the hosts: `hosts: [web1, web2]`"),
        (("load", "vus"), "remove it: autotune sends requests at a rate, not with a number of clients"),
        (("load", "expect", "code"), "write `status: 200`"),
        (("max_rate",), "`max_rate:` belongs under `load:`"),
        (("budget", "slo"), "`slo:` belongs at the top level of the file"),
        (("load", "user"), "`headers: {Authorization: '${TOKEN}'}`, and TOKEN in autotune's environment"),
        (("search", "port"), "`port:` belongs under `hosts: NAME:` or under `tiers: NAME:`"),
        # A name that is clearly misspelt does not belong anywhere else.
        (("tiers", "web", "services"), None),
        (("time",), "`time:` belongs under `budget:`, or did you mean 'timeout'?"),
        (("colour",), None),
    ],
)  # fmt: skip
def test_hints(location: tuple[str, ...], hint: str | None) -> None:
    assert find_key_hint(location, list_keys_at(location[:-1])) == hint


def test_no_valid_key_is_listed_as_a_key_of_another_program() -> None:
    named_sections = ("hosts", "tiers", "parameters", "services")
    for section, entries in _OTHER_KEYS.items():
        if section != "requests":
            location = (section, "NAME") if section in named_sections else (section,)
            valid_keys = {*list_keys_at(location if section else ())}
            assert valid_keys.isdisjoint(name for names, _ in entries for name in names.split())
