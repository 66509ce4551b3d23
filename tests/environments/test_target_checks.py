from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments import name_checks
from autotune.errors import TargetError
from autotune.target.read_target import read_target

STACK = """\
name: shop
slo: {p99: 50ms}
hosts:
  lb1: {address: 198.18.0.1}
  db1: {address: 198.18.0.2}
tiers:
  lb: {hosts: lb1, service: nginx, uses: db}
  db: {hosts: db1, service: redis}
"""


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("service: redis", "service: redis, container: db",
         "8:36: `container:` does not apply to `runtime: systemd`",
         "add `runtime: containers` to the tier, or remove `container:`"),
        ("service: nginx, uses: db}", "service: nginx}",
         "7:7: ambiguous entry tier: no tier forwards to or uses lb or db", None),
        ("service: nginx, uses: db}\n  db: {hosts: db1, service: redis}",
         "service: nginx}\n  db: {hosts: db1, service: redis, forwards_to: lb}",
         "8:36: forwards_to: redis calls no other tier", "remove it: another tier calls it, `uses: db`"),
        ("name: shop", "name: shop\nssh: {config: ./none}", "2:7: file './none' does not exist", None),
        ("name: shop", "name: shop\nload: {headers: {X-A: '${NOT_SET_HERE}'}}",
         "2:18: the environment variable NOT_SET_HERE is not set",
         "run `export NOT_SET_HERE=…` before autotune"),
        ("name: shop", "name: shop\nconstraints: [10 <= 5]",
         "2:15: '10 <= 5' contains no parameter",
         "name a parameter, such as `TIER.SERVICE.PARAMETER <= 64`, or remove it"),
        ("name: shop", "name: shop\nconstraints: [lb.nginx.backlog <= 4 and 1 < 2]",
         "2:15: 'and' is unexpected in 'lb.nginx.backlog <= 4 and 1 < 2'",
         "write each comparison as its own constraint"),
    ],
)  # fmt: skip
def test_mistakes_are_found_without_hosts(
    tmp_path: Path, old: str, new: str, message: str, hint: str | None
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(STACK.replace(old, new, 1))
    with pytest.raises(TargetError) as caught:
        name_checks.check_names(read_target(path))
    errors = [caught.value, *caught.value.others]
    (error,) = [e for e in errors if e.message.endswith(message.partition(" ")[2])]
    assert hint is None or error.hint == hint


def test_a_valid_target_has_no_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(STACK)
    name_checks.check_names(read_target(path))
