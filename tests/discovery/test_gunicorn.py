"""A user's own gunicorn adopted: its unit's options, its configuration file, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.deploy.templates import render_text
from autotune.discovery import tier_adoption
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import find_instances, group_tiers
from autotune.services.config_files import FileTree
from autotune.space.facts import HostFacts
from tests.discovery.places import adopted

UNIT = "/etc/systemd/system/shop.service"
PACKAGED = "/usr/lib/systemd/system/shop.service"
DROP_IN = f"{UNIT}.d/zz-autotune.conf"
COMMAND = "/srv/shop/venv/bin/gunicorn -w 3 --threads=2 -b 127.0.0.1:8000 --reuse-port shop.wsgi"
CONF = b"""\
import multiprocessing
workers = multiprocessing.cpu_count() * 2 + 1
timeout = 60
max_requests = limit()
"""


def host(command: str, conf: bytes = CONF, port: str = "8000", **files: str) -> DiscoveredHost:
    unit = f"[Service]\nWorkingDirectory=/srv/shop\nExecStart={command}\n"
    texts = {UNIT: unit.encode(), "/srv/shop/gunicorn.conf.py": conf}
    texts |= {path: text.encode() for path, text in files.items()}
    return DiscoveredHost(
        name="web1", address="10.0.0.1", tree=FileTree(texts), facts=HostFacts(4, 8 * 2**30, 65_536),
        backlogs={port: 2048}, processors=4,
    )  # fmt: skip


def bare(tier: tier_adoption.AdoptedTier) -> dict[str, object]:
    return {name.removeprefix("gunicorn."): value for name, value in tier.baseline_values.items()}


def test_the_command_counts_more_than_the_file() -> None:
    tier = adopted(host(COMMAND))
    assert (tier.discovered_tier.tier_kind, tier.discovered_tier.deployment) == ("app", "gunicorn")
    assert bare(tier) == {
        "workers": 3, "threads": 2, "backlog": 2048, "keepalive": 2, "worker_connections": 1000,
        "max_requests_jitter": 0, "timeout": 60,
    }  # fmt: skip
    assert "computes it" in tier.skipped["gunicorn.max_requests"]
    own = tier.adopted_configs["app.web1.gunicorn"]
    assert own.unit == "shop.service"
    (file,) = own.files
    assert file.path == UNIT
    changed = {**bare(tier), "workers": 5, "threads": 1, "keepalive": 9, "timeout": 61}
    text = render_text(tier.templates[file.template], changed)
    assert text.splitlines()[2] == (
        f"ExecStart={COMMAND}".replace("-w 3", "-w 5").replace("=2", "=1")
        + " --keep-alive=9 --timeout=61"
    )


@pytest.mark.parametrize("flag", ["--casefold-http-method", "--flag-of-a-later-version"])
def test_a_flag_has_no_value(flag: str) -> None:
    assert bare(adopted(host(f"gunicorn {flag} -w 3 shop.wsgi")))["workers"] == 3
    assert bare(adopted(host(f"gunicorn {flag} --thr 2 shop.wsgi")))["threads"] == 2


@pytest.mark.parametrize("nested", [b"-" * 3000 + b"1", b"1+" * 20_000 + b"1", b"a" + b".b" * 900])
def test_a_file_that_is_nested_too_deeply_says_nothing(nested: bytes) -> None:
    tier = adopted(host(COMMAND, b"timeout = " + nested + b"\n"))
    assert bare(tier)["workers"] == 3
    assert bare(tier).get("timeout", 30) == 30


def test_a_number_that_nobody_can_mean_is_not_taken() -> None:
    tier = adopted(host(COMMAND, b"timeout = 18446744073709551616 * 2\n"))
    assert "gunicorn.timeout" in tier.skipped


def test_what_only_the_file_says_is_where_it_starts() -> None:
    tier = adopted(host("gunicorn shop.wsgi"))
    assert bare(tier)["workers"] == 9  # of four processors
    assert bare(tier)["threads"] == 1


def test_a_unit_of_a_package_stays_and_a_drop_in_comes() -> None:
    plain = host(COMMAND)
    link = replace(plain, tree=FileTree(
        {PACKAGED: plain.tree.files[UNIT]}, {UNIT: PACKAGED}))  # fmt: skip
    tier = adopted(link)
    (file,) = tier.adopted_configs["app.web1.gunicorn"].files
    assert (file.path, file.optional) == (DROP_IN, True)
    assert render_text(tier.templates[file.template], bare(tier)) == ""
    text = render_text(tier.templates[file.template], {**bare(tier), "threads": 7})
    assert text == f"[Service]\nExecStart=\nExecStart={COMMAND}\n".replace("=2 ", "=7 ")


@pytest.mark.parametrize(
    ("running_host", "why"),
    [
        (host("gunicorn -e KEY=a1b2 shop.wsgi"), "--env"),
        (host("gunicorn shop.wsgi", port="80"), ""),  # it does not run
        (host("/usr/bin/uwsgi --http :8000"), "to tune uWSGI"),
    ],
)
def test_what_is_left_alone(running_host: DiscoveredHost, why: str) -> None:
    running, notes = find_instances(running_host)
    assert running == ()
    assert [why in note for note in notes] == ([True] if why else [])


@pytest.mark.parametrize(
    ("command", "conf", "shown", "upstream"),
    [
        ("gunicorn -b unix:/run/shop.sock shop.wsgi", b"", "/run/shop.sock", "unix:/run/shop.sock"),
        # Made in the working directory: the kernel has its name alone.
        ("gunicorn -b unix:shop.sock shop.wsgi", b"", "shop.sock", "unix:/srv/shop/shop.sock:/"),
        ("gunicorn shop.wsgi", b'bind = ["unix:///run/a.sock"]', "/run/a.sock", "unix:/run/a.sock"),
    ],
)
def test_a_unix_socket_is_where_nginx_sends_to(
    command: str, conf: bytes, shown: str, upstream: str
) -> None:
    web = f"server {{ listen 80; location / {{ proxy_pass http://{upstream}; }} }}"
    of = host(command, conf, shown, **{"/etc/nginx/nginx.conf": f"events {{}} http {{ {web} }}"})
    lb, app = group_tiers(find_instances(replace(of, units={"nginx.service": "active"}))[0])
    assert (lb.forwards_to, app.tier_kind) == ("app", "app")
    assert tier_adoption.adopt_tier(app).adopted_configs["app.web1.gunicorn"].listen == shown


SOCKET = "[Socket]\nListenStream=/run/shop.sock\n"


def test_the_queue_of_a_socket_unit_is_its_own() -> None:
    of = host("gunicorn -b :1 shop.wsgi", port="/run/shop.sock",
              **{"/etc/systemd/system/shop.socket": SOCKET})  # fmt: skip
    tier = adopted(of)
    assert tier.adopted_configs["app.web1.gunicorn"].listen == "/run/shop.sock"
    assert "Backlog=" in tier.skipped["gunicorn.backlog"]
    assert "gunicorn.workers" in tier.baseline_values


def test_one_of_two_at_unix_sockets_is_tuned() -> None:
    wiki = {"/etc/systemd/system/wiki.service": "[Service]\nExecStart=gunicorn -b unix:/b w"}
    of = host("gunicorn -b unix:/run/shop.sock shop.wsgi", port="/run/shop.sock", **wiki)
    running, notes = find_instances(replace(of, backlogs={**of.backlogs, "/b": 9}))
    assert [service.unit for i in running for service in i.services.values()] == ["shop.service"]
    assert "wiki.service" in notes[0]


def test_workers_of_another_class_have_no_threads() -> None:
    tier = adopted(host("python3 -m gunicorn -k gevent --threads 2 shop.wsgi"))
    assert "workers of class gevent have no threads" in tier.skipped["gunicorn.threads"]
    assert bare(tier)["worker_connections"] == 1000
