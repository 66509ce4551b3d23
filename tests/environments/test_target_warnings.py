from __future__ import annotations

from pathlib import Path

import pytest

from autotune.environments.target_warnings import TEMPLATE_PATTERN, find_warnings
from autotune.target.read_target import read_target

ROOT = Path(__file__).parents[2]
STACK = """\
name: shop
slo: {p99: 50ms}
hosts:
  lb1: {address: 198.18.0.1}
  load1: {address: 198.18.0.2}
tiers:
  lb: {hosts: lb1, service: nginx}
load: {hosts: load1}
"""
SERVICE = """\
services:
  x:
    {role: web, port: 80, unit: x.service, files: {/etc/x: {}},
     parameters: {a: {meaning: a, default: 1, range: [1, 2]}}}"""
COMMAND = """\
name: rows
command: [./bench]
maximize: true
parameters: {batch: {range: [1, 9], default: 4}}
"""


def list_warnings(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    return [
        warning.message.removeprefix(f"{path}:") for warning in find_warnings(read_target(path))
    ]


@pytest.mark.parametrize("target", sorted((ROOT / "targets").glob("*.yaml")), ids=lambda t: t.stem)
def test_shipped_targets_have_no_warnings(target: Path) -> None:
    assert find_warnings(read_target(target)) == []


@pytest.mark.parametrize(
    ("base", "old", "new", "warning"),
    [
        (STACK, "load: {hosts: load1}", "load: {}", "5:3: no tier uses host 'load1'"),
        (STACK, "load1: {address: 198.18.0.2}", "load1: {address: 198.18.0.2, lab_only: true}",
         "5:32: `lab_only:` has no effect: 'load1' is a host of a tier or of `load:`"),
        (STACK, "198.18.0.1}", "198.18.0.1, transport: local, lab_only: true}",
         "4:48: `lab_only:` has no effect with `transport: local`"),
        (STACK, "hosts: load1", "hosts: [load1, lb1]",
         "8:23: the load host 'lb1' also serves tier 'lb'"),
        (STACK, "198.18.0.1}", "198.18.0.1, transport: local, user: me}",
         "4:48: `user:` has no effect with `transport: local`"),
        (STACK, "name: shop", "name: shop\nproject: {name: a, files: /a}",
         "2:1: `project:` has no effect: no tier uses `runtime: containers`"),
        (STACK, "name: shop", "name: shop\ndata: {pairs: 5000}",
         "2:1: `data:` has no effect: no tier serves `app: reference`"),
        (STACK, "hosts: load1", "hosts: load1, headers: {A: $B}",
         "8:32: '$B' is sent without being replaced"),
        (STACK, "hosts: load1", "hosts: load1, body: '{{ b }}', method: POST",
         "8:22: '{{ b }}' is sent without being replaced"),
        (STACK, "name: shop",
         "name: shop\ntune: [lb.nginx.use]\nparameters: {lb.nginx.use: {fixed: epoll}}",
         "2:8: `tune:` lists lb.nginx.use, but `parameters:` fixes or excludes it"),
        (STACK, "service: nginx}", ("service: nginx, forwards_to: web, uses: web}\n"
         "  web: {hosts: load1, service: apache}"),
         "7:54: `uses:` repeats 'web', to which the tier forwards"),
        (STACK, "service: nginx}", ("service: nginx, forwards_to: web}\n"
         "  web: {hosts: lb1, service: nginx+php-fpm}"),
         "8:9: tiers 'lb' and 'web' share the unit and files of nginx"),
        (STACK, "name: shop", f"name: shop\n{SERVICE}", "3:3: no tier uses the declared service 'x'"),
        (STACK, "service: nginx", "service: nginx, port: ",
         "7:36: `port:` has no value, so its default applies"),
        (STACK, "name: shop", "name: shop\nparameters: {lb.nginx.use: {choices: [epoll]}}",
         "2:29: lb.nginx.use is not searched: `choices:` lists only one value"),
        (COMMAND, "{batch:", "{a: {fixed: x}, b: {range: [1, 5], default: 2, when: {a: y}}, batch:",
         "4:29: b has no effect: it requires `a: y`"),
        (COMMAND, "parameters: {", ("try: [{a: y, b: 3}, {b: 3}]\nparameters: "
         "{a: {choices: [x, y], default: x}, b: {range: [1, 5], default: 2, when: {a: y}}, "),
         "4:22: b has no effect: it requires `a: y`"),
        (COMMAND, ", default: 4", "",
         "4:14: batch has no `default:`, so its baseline is the middle of the range"),
        (COMMAND, "{range: [1, 9], default: 4}", "{choices: [1, 2]}, b: {range: [1, 2]}",
         "4:14: batch (and 1 other parameter) has no `default:`, so its baseline is the first choice"),
        (COMMAND, "maximize", "timeout: 1h\nmaximize", "3:1: `timeout: 1h` exceeds the budget of 45m"),
        (STACK, "name: shop", "name: shop\nbudget: {trials: 400, time: 10m}",
         "2:10: 400 trials in 10m leave 1.5 s for each"),
        (STACK, "name: shop", "name: shop\nbudget: {time: 90s}", "2:10: `time: 90s` is unusually low"),
        (STACK, "198.18.0.2}", "198.18.0.2, transport: local}\n  web_1: {address: lb1}",
         "6:11: the address of 'web_1' is the name of another host in this file"),
        (STACK, "service: nginx", "service: nginx, port: 443",
         "7:36: port 443 is usually served with TLS, but the load uses plain HTTP"),
        (STACK, "service: nginx}\nload: {hosts: load1",
         "service: nginx, port: 8080}\nload: {hosts: load1, url: http://a.example/",
         "7:36: the load goes to port 80, the port of `url:`, and not to this port"),
        (STACK, "hosts: load1", "hosts: load1, vip: 127.0.0.1",
         "8:22: 127.0.0.1 is the load host itself"),
        (STACK, "service: nginx}\nload: {hosts: load1",
         "service: nginx, runtime: embedded, replace: true}\nload: {hosts: load1",
         "7:55: `replace:` has no effect with `runtime: embedded`"),
        (STACK, "service: nginx}\nload: {hosts: load1",
         "service: nginx, runtime: embedded}\nload: {hosts: load1",
         "8:8: `hosts:` has no effect with `runtime: embedded`"),
        (STACK, "name: shop", "name: shop\nparameters: {lb.nginx.keepalive_timeout: {fixed: 65000}}",
         "2:43: lb.nginx.keepalive_timeout: 65000 is unusually high (default 75s)"),
        (STACK, "name: shop", "name: shop\nparameters: {lb.nginx.worker_connections: {range: [1, 9]}}",
         "2:44: lb.nginx.worker_connections: 1 is unusually low (default 768)"),
        (STACK, "name: shop", ("name: shop\nparameters: {lb.nginx.backlog: {fixed: 4096}, "
         "lb.sysctl.net.core.somaxconn: {fixed: 128}}"),
         ("2:33: lb.nginx.backlog above 128 has no effect, because lb.sysctl.net.core.somaxconn is "
          "fixed at 128")),
        (STACK, "name: shop", ("name: shop\ntry: [{lb.nginx.backlog: 99}]\n"
         "parameters: {lb.nginx.backlog: {range: [512, 4096]}}"),
         "2:8: lb.nginx.backlog: 99 is outside the range from 512 to 4096"),
        (STACK, "name: shop", ("name: shop\ntry: [{lb.nginx.backlog: 99}]\n"
         "parameters: {lb.nginx.backlog: {fixed: 512}}"),
         "2:8: lb.nginx.backlog: 99 cannot be tried, because `fixed: 512` sets the value"),
        (STACK, "name: shop", "name: shop\ntry: [{lb.nginx.backlog: 99}]\nparameters: {'lb.*': false}",
         ("2:8: lb.nginx.backlog: 99 cannot be tried, because the parameter is excluded from the "
          "search")),
        (STACK, "name: shop", "name: shop\nparameters: {'*': false}",
         "2:1: nothing to tune: every parameter is fixed or excluded"),
        (STACK, "service: nginx}",
         "service: apache}\nparameters: {lb.apache.MaxRequestWorkers: {range: [5, 900]}}",
         ("8:44: lb.apache.MaxRequestWorkers is not searched: it is computed as "
          "`ServerLimit * ThreadsPerChild`")),
        (STACK, "service: nginx}", "service: apache}\ntry: [{lb.apache.MaxRequestWorkers: 400}]",
         ("8:8: lb.apache.MaxRequestWorkers: 400 cannot be tried, because `ServerLimit * "
          "ThreadsPerChild` computes the value")),
        (STACK, "name: shop", ("name: shop\nconstraints: [lb.nginx.backlog <= 99]\n"
         "parameters: {lb.nginx.backlog: {range: [512, 4096]}}"),
         "2:15: no values can satisfy lb.nginx.backlog <= 99"),
        (STACK, "name: shop",
         "name: shop\nconstraints: [lb.nginx.backlog <= 99, 999 <= lb.nginx.backlog]",
         "2:39: no value of lb.nginx.backlog satisfies this and the other constraints"),
        (COMMAND, "[./bench]", "[./bench, $HOME]", "2:20: '$HOME' is passed on without being replaced"),
    ],
)  # fmt: skip
def test_warnings(tmp_path: Path, base: str, old: str, new: str, warning: str) -> None:
    assert list_warnings(tmp_path, base) == []
    assert old in base
    assert warning in list_warnings(tmp_path, base.replace(old, new, 1))


def test_a_lab_host_needs_no_tier(tmp_path: Path) -> None:
    with_backend = STACK.replace("tiers:", "  b1: {address: 198.18.0.3, lab_only: true}\ntiers:")
    assert list_warnings(tmp_path, with_backend) == []
    assert list_warnings(tmp_path, with_backend.replace("true", "false")) == [
        "6:3: no tier uses host 'b1'"
    ]


@pytest.mark.parametrize("opening", ["{{", "{%"])
def test_many_openings_are_searched_in_a_bounded_number_of_steps(opening: str) -> None:
    end = {"{{": "}}", "{%": "%}"}[opening]
    assert TEMPLATE_PATTERN.search(opening * 200_000) is None
    assert TEMPLATE_PATTERN.findall(f"{opening} page {end}") == [f"{opening} page {end}"]
    assert TEMPLATE_PATTERN.search(f"{opening * 200_000} page {end}")


def test_a_shell_expands_variables(tmp_path: Path) -> None:
    assert list_warnings(tmp_path, COMMAND.replace("./bench", 'sh, -c, "./bench $HOME"')) == []
