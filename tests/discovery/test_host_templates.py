"""A target written by hand takes the files that lie on its hosts for templates, and their values."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import config_text
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.host_templates import HostTemplates, build_host_templates, from_record
from autotune.environments.data_loss import fix_restart_parameters
from autotune.errors import AutotuneError, TargetError
from autotune.masking import has_placeholder, mask_secret_bytes, restore_secrets
from autotune.services.adoption import Listener
from autotune.services.config_files import FileTree
from autotune.services.registry import SHIPPED, find_outliner
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.strict_parsing import parse_json
from autotune.target.read_target import TargetFile, read_target
from tests.discovery.places import FACTS, LB, cache, host, store, web

BALANCER = host("lb1", "10.0.0.9", {"/etc/nginx/nginx.conf": LB}, "nginx.service")
HOSTS = [BALANCER, web(), web("web2", "10.0.0.2"), cache(), store()]
TARGET = """\
name: shop
slo: {p99: 50ms}
hosts:
  lb1: {address: 10.0.0.9}
  web1: {address: 10.0.0.1}
  web2: {address: 10.0.0.2}
  mc1: {address: 10.0.0.3}
  db1: {address: 10.0.0.4}
tiers:
  lb: {hosts: lb1, service: [haproxy, nginx], forwards_to: web}
  web: {hosts: [web1, web2], service: nginx+php-fpm, uses: [cache, store]}
  cache: {hosts: mc1, service: memcached}
  store: {hosts: db1, service: redis}
"""


def target(directory: Path, *changes: tuple[str, str]) -> TargetFile:
    text = TARGET
    for change in changes:
        assert change[0] in text
        text = text.replace(*change)
    path = directory / "target.yaml"
    path.write_text(text)
    return read_target(path)


def in_place(file: TargetFile, *hosts: DiscoveredHost) -> HostTemplates:
    return build_host_templates(
        file, {**{each.name: each for each in HOSTS}, **{h.name: h for h in hosts}}
    )


def space(file: TargetFile, files: HostTemplates) -> SearchSpace:
    return build_space(file, dict.fromkeys(file.target.hosts, FACTS), files.adopted_values)


def test_the_baseline_is_what_runs(tmp_path: Path) -> None:
    file = target(tmp_path)
    files = in_place(file)
    baseline = space(file, files).baseline
    assert baseline["lb.service"] == "nginx"
    assert baseline["lb.nginx.upstream_keepalive"] == 16
    assert baseline["web.nginx.worker_connections"] == 768
    assert baseline["store.redis.hz"] == 10
    assert {file.path for file in files.adopted_configs["web.web2.nginx"].files} == {
        "/etc/nginx/nginx.conf", "/etc/nginx/sites-available/default"}  # fmt: skip
    assert all(file.text for own in files.adopted_configs.values() for file in own.files)
    (conf, _) = files.adopted_configs["web.web2.nginx"].files
    assert conf.digest == hashlib.sha256(web().tree.files[conf.path]).hexdigest()
    assert files.adopted_configs["lb.lb1.limits"].files == ()
    assert (
        "lb.lb1.haproxy" not in files.adopted_configs
    )  # it is not there: whole files, if it is chosen
    assert (
        "web.limits: nofile not tuned (autotune keeps the limits of existing units)"
        in files.skipped_lines
    )


def test_what_runs_on_the_hosts_in_no_tier_is_named(tmp_path: Path) -> None:
    database = Listener("mariadbd", 3306, True)
    files = in_place(
        target(
            tmp_path,
            ("uses: [cache, store]", "uses: store"),
            ("  cache: {hosts: mc1, service: memcached}\n", ""),
        ),
        replace(web(), listeners=(database,)),
    )
    assert "listening but not tuned on web1: mariadbd (3306, locally)" in files.skipped_lines
    beside = replace(web(), tree=FileTree({**web().tree.files, **cache().tree.files}, web().tree.links),
                     units={**web().units, **cache().units})  # fmt: skip
    files = in_place(target(tmp_path), beside)
    assert "web1: memcached on port 11211 belongs to no tier" in files.skipped_lines


def test_a_study_goes_on_with_what_it_began_with(tmp_path: Path) -> None:
    files = in_place(target(tmp_path))
    assert from_record(json.loads(json.dumps(files.to_record))) == files
    resumed = from_record(files.with_kernel_values({"web.sysctl.vm.swappiness": 10}).to_record)
    assert resumed.adopted_values.values["web.sysctl.vm.swappiness"] == 10
    assert from_record({}) == HostTemplates()  # of a version that wrote whole files
    with pytest.raises(AutotuneError, match="cannot read the study's record"):
        from_record({"own": {"x": 1}})


def test_what_the_target_says_comes_before_what_runs(tmp_path: Path) -> None:
    rules = "tiers:\n", "parameters: {web.nginx.worker_connections: {range: [700, 900]}}\ntiers:\n"
    file = target(tmp_path, rules)
    bounds = {
        d.name: d.bounds for d in space(file, in_place(file)).tunable_dimensions if not d.choices
    }
    assert bounds["web.nginx.worker_connections"] == (700, 900)
    file = target(
        tmp_path, ("tiers:\n", "parameters: {web.limits.nofile: {fixed: 2000}}\ntiers:\n")
    )
    with pytest.raises(
        TargetError, match="cannot be set on these hosts: autotune keeps the limits"
    ):
        space(file, in_place(file))


@pytest.mark.parametrize(
    ("change", "other", "message", "hint"),
    [
        (("redis", "kvrocks"), None, "db1 runs redis, but no editable kvrocks", "replace: true"),
        (("mc1, ", "db1, "), None, "db1 runs redis, but no editable memcached", "replace: true"),
        (("nginx+php-fpm", "[nginx+php-fpm, nginx]"), host(
            "web2", "10.0.0.2",
            {"/etc/nginx/nginx.conf": "events {}\nhttp { server { listen 80; root /srv; } }\n"},
            "nginx.service",
        ), "web1 runs nginx+php-fpm, web2 runs nginx", "split the tier"),
        (("shop", "shop"), store("port 6380\n"), "redis listens on port 6380", "`port: 6380`"),
    ],
)  # fmt: skip
def test_what_runs_is_not_what_the_target_says(
    tmp_path: Path, change: tuple[str, str], other: DiscoveredHost | None, message: str, hint: str
) -> None:
    with pytest.raises(TargetError, match=re.escape(message)) as raised:
        in_place(target(tmp_path, change), *([other] if other else []))
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("change", "edited"),
    [
        (("name: shop", "name: shop"), {"lb", "web", "cache", "store"}),
        (("name: shop", "name: shop\nreplace: true"), set()),
        (("service: redis", "service: redis, replace: true"), {"lb", "web", "cache"}),
        (("service: redis", "service: redis, templates: mine"), {"lb", "web", "cache"}),
        (("name: shop", "name: shop\nsimulated: {seed: 1}"), set()),
    ],
)
def test_whose_files_are_edited(tmp_path: Path, change: tuple[str, str], edited: set[str]) -> None:
    described = target(tmp_path, change).target
    assert {name for name in described.tiers if described.edits_host_files(name)} == edited


@pytest.mark.parametrize(
    ("text", "loses"),
    [
        ("hz 10\n", False),  # Redis itself saves
        ("save 60 1\nappendonly no\n", False),
        ('save 60 1\nsave ""\n', True),
        ('save ""\nappendonly yes\n', False),
        ('save ""\nappendonly "yes"\n', False),
        ("save ''\nappendonly no\n", True),
    ],
)
def test_a_store_that_saves_nothing_is_not_restarted(
    tmp_path: Path, text: str, loses: bool
) -> None:
    file = target(tmp_path)
    files = in_place(file, store(text))
    whole = space(file, files)
    narrowed, own = fix_restart_parameters(file, whole, files.adopted_configs, files.adopted_values)
    tuned = {d.name for d in narrowed.tunable_dimensions if d.name.startswith("store.redis")}
    assert bool(own["store.db1.redis"].loses) is loses
    assert bool(tuned) is not loses
    assert bool(own["store.db1.redis"].files) is not loses
    assert any("Redis stores no data on disk" in line for line in narrowed.excluded) is loses
    allowing = target(tmp_path, ("service: redis", "service: redis, allow_data_loss: true"))
    narrowed, own = fix_restart_parameters(
        allowing, whole, files.adopted_configs, files.adopted_values
    )
    assert not own["store.db1.redis"].loses
    assert any(d.name.startswith("store.redis") for d in narrowed.tunable_dimensions)


LATIN = "# Gr\xf6\xdfe\n".encode("latin-1")


def with_files(of: DiscoveredHost, files: dict[str, bytes], **links: str) -> DiscoveredHost:
    tree = FileTree({**of.tree.files, **files}, {**of.tree.links, **links}, of.tree.modes)
    return replace(of, tree=tree)


@pytest.mark.parametrize("of", HOSTS, ids=lambda host: host.name)
def test_bytes_that_are_no_utf8_hide_no_file_and_come_back(
    tmp_path: Path, of: DiscoveredHost
) -> None:
    drop_ins = {
        f"/etc/systemd/system/{unit}.d/own.conf": LATIN + b"[Service]\nNice=0\n"
        for unit in of.units
    }
    files = {path: (LATIN.replace(b"#", b";") if "/php/" in path else LATIN) + text
             for path, text in of.tree.files.items()}  # fmt: skip
    changed = with_files(of, {**drop_ins, **files})
    plain, read_back = (in_place(target(tmp_path), each) for each in (of, changed))
    assert read_back.adopted_values.values == plain.adopted_values.values
    kept = from_record(parse_json(json.dumps(read_back.to_record)))
    assert kept.adopted_configs == read_back.adopted_configs
    mine = [
        file
        for part, own in kept.adopted_configs.items()
        if f".{of.name}." in part
        for file in own.files
    ]
    assert mine
    assert all(config_text.encode(file.text or "")[:1] in b"#;" for file in mine)
    assert not any(LATIN[1:] in config_text.encode(file.text or "") for file in mine)
    assert all(
        has_placeholder(config_text.encode(file.text or "")) for file in mine if not file.optional
    )
    for part, own in kept.adopted_configs.items():
        (service, *_) = SHIPPED.list_by_name(part.rpartition(".")[2])
        for path in {file.path for file in own.files} & {*files}:
            shown = mask_secret_bytes(files[path], find_outliner(service, path))
            assert (
                restore_secrets(shown, files[path], path, find_outliner(service, path))
                == files[path]
            )


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (with_files(replace(BALANCER, tree=FileTree()), {}, **{"/etc/nginx": "/srv/git"}),
         "/etc/nginx is a link to /srv/git/nginx.conf"),
        (replace(BALANCER, units={"nginx.service": "masked"}),
         "nginx.service is masked"),
        (with_files(BALANCER, {"/etc/nginx/nginx.conf": b"events {\n"}), "nginx.service is running"),
    ],
    ids=["a link", "a masked unit", "another syntax"],
)  # fmt: skip
def test_no_hint_replaces_files_that_could_not_be_read(
    tmp_path: Path, of: DiscoveredHost, why: str
) -> None:
    with pytest.raises(TargetError) as caught:
        in_place(target(tmp_path, ("service: [haproxy, nginx]", "service: nginx")), of)
    assert why in caught.value.message
    assert "lb1 runs no editable nginx" in caught.value.message
    assert "replace" not in (caught.value.hint or "")
    assert "fix the problems above" in (caught.value.hint or "")


@pytest.mark.parametrize("service", ["haproxy", "gunicorn"])
def test_a_container_without_known_files_has_neither_units_nor_whole_files(
    tmp_path: Path, service: str
) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(
        "name: shop\nslo: {p99: 50ms}\nhosts: {box: {address: 10.0.0.9}}\n"
        "project: {name: shop, files: /srv/shop/compose.yaml}\n"
        f"tiers: {{app: {{hosts: box, service: {service}, runtime: containers}}}}\n"
    )
    box = host("box", "10.0.0.9", {}, f"{service}.service")
    with pytest.raises(TargetError, match=f"box runs no editable {service}") as caught:
        build_host_templates(read_target(path), {}, {"app": {"box": box}})
    assert "the container contains no configuration files" in caught.value.message
    assert ".service is running" not in caught.value.message
    assert "declare a service" in (caught.value.hint or "")
