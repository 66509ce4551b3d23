from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.target.read_target import read_target

STACK = """\
name: shop
slo: {p99: 50ms}
hosts:
  web1: {address: 198.18.0.1}
tiers:
  web: {hosts: web1, service: nginx}
"""
SERVICE = (
    "services: {x: {role: web, port: 80, unit: x.service, files: {/etc/x: {}}, parameters: {a: {"
)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("198.18.0.1", "'{{ web1 }}'", "write the value: autotune does not expand templates"),
        ("198.18.0.1", "“web1”", "use plain quotes, \" or '"),
        ("198.18.0.1", "web1–a", "use a plain hyphen, '-'"),
        ("198.18.0.1", "198.18.0.1/24", "give the address of one host, without a netmask or path"),
        ("  web1: {address: 198.18.0.1}", "  - {name: web1, address: 198.18.0.1}",
         "make each name a key: `web1: {…}` instead of `- name: web1`"),
        ("  web1: {address: 198.18.0.1}", "  - web1: {address: 198.18.0.1}",
         "remove the '- ' before each entry"),
        ("  web1: {address: 198.18.0.1}", "  web1: root:hunter2@198.18.0.1",
         "write `web1: {address: …}`"),
        ("  web:", "  web-tier:", "replace '-' with '_'"),
        ("service: nginx", "service: nginx, runtime: docker", "did you mean 'containers'?"),
        ("service: nginx", "service: nginx, replace: yes", "write `replace: true`"),
        ("service: nginx", "service: nginx, replace: maybe", "write `replace: true` or `replace: false`"),
        ("service: nginx", "service: nginx, port: '80:80'",
         "write the port that receives the requests: `port: 80`"),
        ("service: nginx", "service: nginx, forwards_to: [lb]",
         "write one value, without brackets: `forwards_to: VALUE`"),
        ("name: shop", "name: shop\nload: {expect: 200}", "write `expect: {status: 200}`"),
        ("name: shop", "name: shop\nload: {headers: ['X-A: hunter2']}",
         "make each entry a key, as `X-A: VALUE`"),
        ("name: shop", "name: shop\nload: {http: h2, url: 'https://a/'}", "did you mean '2'?"),
        ("name: shop", "name: shop\nload: {body: {a: 1}, method: POST}",
         """quote the text, such as `body: '{"item": 7}'`"""),
        ("name: shop", "name: shop\nsimulated: true", "write `simulated: {}`"),
        ("name: shop", "name: shop\nsimulated: false", "remove it to use real hosts"),
        ("name: shop", "name: shop\ntiers2: {}", "did you mean 'tiers'?"),
        ("tiers:\n", "tiers:\n  hosts: [web1]\n",
         "indent `hosts:` below a name: `tiers: {NAME: {hosts: …}}`"),
        ("name: shop", f"name: shop\n{SERVICE}meaning: a, default: 1, choices: [1]}}}}}}}}",
         "add another entry"),
        ("name: shop", f"name: shop\n{SERVICE}meaning: a, default: 1}}}}}}}}",
         "`range: [LOWEST, HIGHEST]` for numbers, or `choices: [VALUE, …]` for words"),
        ("name: shop", "name: shop\n"
         + SERVICE.replace("{/etc/x: {}}", "{/etc/x: {mode: '644'}}")
         + "meaning: a, default: 1, range: [1, 2]}}}}", "add a '0' at the start"),
        ("name: shop", "name: shop\n"
         + SERVICE.replace("{/etc/x: {}}", "{/etc/x: {mode: 0644}}")
         + "meaning: a, default: 1, range: [1, 2]}}}}", "quote it: `mode: '0644'`"),
    ],
)  # fmt: skip
def test_hints(tmp_path: Path, old: str, new: str, hint: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(STACK.replace(old, new, 1))
    with pytest.raises(TargetError) as caught:
        read_target(path)
    hints = [error.hint for error in (caught.value, *caught.value.others)]
    assert hint in hints
    assert "hunter2" not in "".join(map(str, hints))


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("./bench -n 5", 'write `command: [./bench, -n, "5"]`'),
        ("./bench 'a b'", 'write `command: [./bench, "a b"]`'),
        ("./bench 'a b", "write `command: [./bench, \"'a\", b]`"),
        ("./bench --password hunter2",
         "put it in brackets, or write each value after '- ' on a new line"),
    ],
)  # fmt: skip
def test_a_command_as_text(tmp_path: Path, command: str, hint: str) -> None:
    path = tmp_path / "rows.yaml"
    path.write_text(f'name: rows\ncommand: "{command}"\nmaximize: true\nparameters: {{}}\n')
    with pytest.raises(TargetError) as caught:
        read_target(path)
    assert caught.value.hint == hint
