"""The site that `lab up` puts on its hosts: an admin's files, which a study edits in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.deployed import Deployed
from autotune.deploy.desired_state import desired_state, render
from autotune.deploy.stack import Stack, StackContext, build
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.in_place import of_hosts
from autotune.environments.data_loss import without_restarts
from autotune.environments.stack import StackEnvironment, prepare
from autotune.lab import plan, site, target_labs
from autotune.lab.lifecycle import access, down, halt
from autotune.lab.plan import LabHost
from autotune.runtimes.systemd import RUNTIME
from autotune.services.base import Own, Role, config_files
from autotune.services.config_files import Tree
from autotune.services.limits.service import DROP_IN
from autotune.services.registry import places
from autotune.space import space as spaces
from autotune.space.space import Space
from autotune.target.read import TargetFile, read
from autotune.target.shipped import shipped
from autotune.transports.ssh import SshTransport
from tests.deploy.lab import News, differing
from tests.deploy.test_desired_state import FACTS
from tests.lab.pictures import of_files, picture
from tests.lab.test_target_labs import SHIPPED

PHP = {"/etc/php/8.2/fpm/php.ini": b"[PHP]\n",
       "/etc/php/8.2/fpm/conf.d/10-opcache.ini": b"zend_extension=opcache.so\n"}  # fmt: skip
TARGET = """\
name: site
slo: {{p99: 50ms}}
ssh: {{config: lab/ssh_config}}
hosts:
  front: {{address: {0}}}
  back: {{address: {1}}}
tiers:
  lb:    {{hosts: front, service: [nginx, apache], forwards_to: web}}
  web:
    hosts: back
    service: [nginx+php-fpm, apache+mod_php]
    app: reference
    uses: [cache, store]
  cache: {{hosts: front, service: memcached, allow_data_loss: true}}
  store: {{hosts: back, service: redis}}
load: {{generator: httperf, hosts: front, path: /kv.php}}
data: {{pairs: 2000, keys_per_request: 10}}
"""
CHANGED = {
    "lb.nginx.upstream_keepalive": 16, "lb.nginx.backlog": 2048, "web.nginx.fastcgi_keep_conn": True,
    "web.nginx.fastcgi_keepalive": 4, "web.php_ini.opcache_max_accelerated_files": 20_000,
    "store.redis.hz": 20, "cache.memcached.threads": 2,
}  # fmt: skip
INI = "/etc/php/8.2/{}/conf.d/zz-autotune.ini"


def stack(file: TargetFile, own: Mapping[str, Own]) -> Stack:
    target = file.target
    paths = {name: f"/usr/sbin/{any_of[0]}" for place in places(target)
             for name, any_of in place.service.programs.items()} | {
                 "php": "/usr/bin/php8.2", "php-fpm": "/usr/sbin/php-fpm8.2"}  # fmt: skip
    facts = dict.fromkeys(target.hosts, FACTS)
    programs, account = dict.fromkeys(target.hosts, paths), "www-data"
    context = StackContext("/run/x", {}, programs, facts, account, account, installed=True, own=own)
    return build(target, context)


def hosts(file: TargetFile) -> dict[str, DiscoveredHost]:
    """As they are read, once the site is on them."""
    target, laid = file.target, stack(file, {})
    settings = spaces.build(file, dict.fromkeys(target.hosts, FACTS)).candidate({}).settings
    desired = desired_state(
        settings, laid,
        lambda part: render(part.service, part.site, settings, target.data, shipped("templates/lab")),
        RUNTIME.layout,
    )  # fmt: skip
    described = {}
    for name in laid.hosts:
        parts = [part for part in desired.parts_on(name) if part.site.role is not Role.HOST]
        files = {path: content for part in parts
                 for path, content in desired.rendered[part.name].items()}  # fmt: skip
        running = {unit for part in parts if (unit := part.service.unit(part.site))}
        described[name] = DiscoveredHost(
            name=name, address=target.hosts[name].address, tree=Tree({**PHP, **files}),
            facts=FACTS, units=dict.fromkeys(running, "active"), processors=2,
        )  # fmt: skip
    return described


def edited(file: TargetFile) -> Space:
    files = of_hosts(file, hosts(file))
    whole = spaces.build(file, dict.fromkeys(file.target.hosts, FACTS), files.running)
    return without_restarts(file, whole, files.own, files.running)[0]


def test_the_shipped_lab_has_all_to_tune_in_its_own_files_but_limits_of_units() -> None:
    file = read(SHIPPED)
    whole = spaces.build(file, dict.fromkeys(file.target.hosts, FACTS))
    space = edited(file)
    for wide, narrow in ((whole.tunable, space.tunable), (whole.core, space.core)):
        lost = {d.name for d in wide} - {d.name for d in narrow}
        assert lost == {f"{tier}.limits.nofile" for tier in file.target.tiers}
    # In whole files compression is on, and no parameter.
    more = {d.name for d in space.tunable} - {d.name for d in whole.tunable}
    assert {name.rpartition(".")[2].partition("_")[0] for name in more} == {"gzip"}
    assert space.baseline["cache.memcached.memory"] == 7


def test_software_that_runs_in_place_of_another_has_files_of_its_own() -> None:
    """PHP has settings of the same names under both web servers, and units have limits."""
    file = read(SHIPPED)
    laid = stack(file, of_hosts(file, hosts(file)).own)
    paths = {(part.name, dict(part.when)["web.service"]):
             [each.path for each in config_files(part.service, part.site)]
             for part in laid.parts if "web1" in part.name and part.when}  # fmt: skip
    fpm, module = ("nginx+php-fpm",), ("apache+mod_php",)
    assert paths["web.web1.php_ini", fpm] == [INI.format("fpm")]
    assert paths["web.web1.php_ini", module] == [INI.format("apache2")]
    assert paths["web.web1.limits", fpm] == []
    assert paths["web.web1.limits", module] == [DROP_IN.format(unit="apache2.service")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tiers:\n", "replace: true\ntiers:\n"),
        ("    app: reference\n", ""),
        ("  back: {address: 198.18.0.11}", "  back: {transport: local}"),
    ],
)
def test_hosts_get_nothing_that_a_study_does_not_look_for(
    tmp_path: Path, before: str, after: str
) -> None:
    text = TARGET.format("198.18.0.10", "198.18.0.11")
    assert before in text
    path = tmp_path / "site.yaml"
    path.write_text(text.replace(before, after))
    assert site.put_up(read(path), plan.names(tmp_path / "lab")) is False


def _answer(lab: Path, address: str) -> str:
    transport = SshTransport(access(lab, "front"))
    try:
        done = transport.run(["curl", "-sS", "--retry", "20", "--retry-connrefused", "--retry-delay",
                              "1", f"http://{address}/kv.php"], timeout=60.0)  # fmt: skip
        return done.stdout.strip()
    finally:
        transport.close()


def deployed(
    environment: StackEnvironment, directory: Path, *changes: dict[str, Any]
) -> list[tuple[Deployed, int]]:
    """Each deployment, and what stays open to the web server under it; then the hosts are restored."""
    fleet = environment.fleet(directory / "study", News().note)
    fleet.open()
    try:
        outcomes = []
        for change in changes:
            outcome = fleet.deploy(environment.space.candidate(change).settings)
            count = "ss -Htn state established '( dport = :80 )' | wc -l"
            open_to_web = environment.transports["front"].run(["sh", "-c", count]).stdout
            outcomes.append((outcome, int(open_to_web)))
        return outcomes
    finally:
        fleet.restore()
        for transport in environment.transports.values():
            transport.close()


@pytest.mark.lab
def test_a_lab_with_its_site_is_tuned_as_anybodys(
    tmp_path: Path,
    lab_dir: Path,
    described: Callable[..., list[LabHost]],
    traces: Callable[[Path], list[str]],
) -> None:
    path, addresses = tmp_path / "site.yaml", [host.address for host in described(2)]
    path.write_text(TARGET.format(*addresses))
    assert target_labs.up(path, lab_dir).site is True
    names = plan.names(lab_dir)
    before = {name: picture(names, name) for name in ("front", "back")}
    assert not [line for lines in before.values() for line in lines if "lib/autotune/" in line]
    again = target_labs.up(path, lab_dir)
    assert (again.site, again.started) == (False, frozenset())

    environment = prepare(read(path))
    preview = environment.preview()
    assert preview.changes is not None
    changes = preview.changes(environment.space.as_given({}).settings)
    assert [change.files for change in changes.values()] == [(), ()]
    assert [answer.status for answer in preview.answers().values()] == [200]  # type: ignore[union-attr]
    (plain, none), (kept, some) = deployed(environment, tmp_path, {}, CHANGED)
    assert (plain.differences, kept.differences) == ((), ())
    assert (none, some > 0) == (0, True)
    assert kept.effective["web.nginx.fastcgi_keep_conn"] is True
    assert differing(before, {name: picture(names, name) for name in before}) == []

    for name in before:
        halt(lab_dir, name)
    assert target_labs.up(path, lab_dir).site is False
    assert _answer(lab_dir, addresses[0]) == "found 0010 of 0010"
    after = {name: of_files(picture(names, name)) for name in before}
    assert differing({name: of_files(lines) for name, lines in before.items()}, after) == []
    down(lab_dir)
    assert traces(lab_dir) == []
