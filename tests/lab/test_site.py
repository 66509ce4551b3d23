"""The site that `lab up` puts on its hosts: an admin's files, which a study edits in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.deploy_result import DeployResult
from autotune.deploy.desired_state import build_desired_state, render_files
from autotune.deploy.stack import Stack, StackContext, build_stack
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.host_templates import build_host_templates
from autotune.environments.data_loss import fix_restart_parameters
from autotune.environments.stack import StackEnvironment, prepare
from autotune.lab import plan, site, target_labs
from autotune.lab.lifecycle import build_ssh_host, halt_host, remove_lab
from autotune.lab.plan import LabHost
from autotune.runtimes.systemd import RUNTIME
from autotune.services.base import AdoptedConfig, Role, resolve_config_files
from autotune.services.config_files import FileTree
from autotune.services.limits.service import DROP_IN_PATH
from autotune.services.registry import list_target_services
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import TargetFile, read_target
from autotune.target.shipped_files import find_shipped_directory
from autotune.transports.ssh import SshTransport
from tests.deploy.lab import News, differing
from tests.deploy.test_desired_state import FACTS
from tests.lab.pictures import of_files, picture
from tests.lab.test_target_labs import SHIPPED

# Files of packages that the site's own files include.
PACKAGED_FILES = {
    "/etc/php/8.2/fpm/php.ini": b"[PHP]\n",
    "/etc/php/8.2/fpm/conf.d/10-opcache.ini": b"zend_extension=opcache.so\n",
    "/etc/nginx/mime.types": b"types { text/html html; }\n",
    "/etc/nginx/fastcgi.conf": b"fastcgi_param REQUEST_METHOD $request_method;\n",
}
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


def stack(file: TargetFile, own: Mapping[str, AdoptedConfig]) -> Stack:
    target = file.target
    paths = {name: f"/usr/sbin/{any_of[0]}" for place in list_target_services(target)
             for name, any_of in place.service.programs.items()} | {
                 "php": "/usr/bin/php8.2", "php-fpm": "/usr/sbin/php-fpm8.2"}  # fmt: skip
    facts = dict.fromkeys(target.hosts, FACTS)
    programs, account = dict.fromkeys(target.hosts, paths), "www-data"
    context = StackContext(
        "/run/x", {}, programs, facts, account, account, installed=True, adopted=own
    )
    return build_stack(target, context)


def hosts(file: TargetFile) -> dict[str, DiscoveredHost]:
    """As they are read, once the site is on them."""
    target, laid = file.target, stack(file, {})
    settings = build_space(file, dict.fromkeys(target.hosts, FACTS)).build_candidate({}).settings
    desired = build_desired_state(
        settings,
        laid,
        lambda part: render_files(
            part.service,
            part.placement,
            settings,
            target.data,
            find_shipped_directory("templates/lab"),
        ),
        RUNTIME.layout,
    )
    described = {}
    for name in laid.hosts:
        parts = [
            part for part in desired.instances_on(name) if part.placement.role is not Role.HOST
        ]
        files = {path: content for part in parts
                 for path, content in desired.rendered_files[part.name].items()}  # fmt: skip
        running = {unit for part in parts if (unit := part.service.get_unit(part.placement))}
        described[name] = DiscoveredHost(
            name=name, address=target.hosts[name].address, tree=FileTree({**PACKAGED_FILES, **files}),
            facts=FACTS, units=dict.fromkeys(running, "active"), processors=2,
        )  # fmt: skip
    return described


def edited(file: TargetFile) -> SearchSpace:
    files = build_host_templates(file, hosts(file))
    whole = build_space(file, dict.fromkeys(file.target.hosts, FACTS), files.adopted_values)
    return fix_restart_parameters(file, whole, files.adopted_configs, files.adopted_values)[0]


def test_the_shipped_lab_has_all_to_tune_in_its_own_files_but_limits_of_units() -> None:
    file = read_target(SHIPPED)
    whole = build_space(file, dict.fromkeys(file.target.hosts, FACTS))
    space = edited(file)
    for wide, narrow in (
        (whole.tunable_dimensions, space.tunable_dimensions),
        (whole.core_dimensions, space.core_dimensions),
    ):
        lost = {d.name for d in wide} - {d.name for d in narrow}
        assert lost == {f"{tier}.limits.nofile" for tier in file.target.tiers}
    # In whole files compression is on, and no parameter.
    more = {d.name for d in space.tunable_dimensions} - {d.name for d in whole.tunable_dimensions}
    assert {name.rpartition(".")[2].partition("_")[0] for name in more} == {"gzip"}
    assert space.baseline["cache.memcached.memory"] == 7


def test_software_that_runs_in_place_of_another_has_files_of_its_own() -> None:
    """PHP has settings of the same names under both web servers, and units have limits."""
    file = read_target(SHIPPED)
    laid = stack(file, build_host_templates(file, hosts(file)).adopted_configs)
    paths = {(part.name, dict(part.conditions)["web.service"]):
             [each.path for each in resolve_config_files(part.service, part.placement)]
             for part in laid.instances if "web1" in part.name and part.conditions}  # fmt: skip
    fpm, module = ("nginx+php-fpm",), ("apache+mod_php",)
    assert paths["web.web1.php_ini", fpm] == [INI.format("fpm")]
    assert paths["web.web1.php_ini", module] == [INI.format("apache2")]
    assert paths["web.web1.limits", fpm] == []
    assert paths["web.web1.limits", module] == [DROP_IN_PATH.format(unit="apache2.service")]


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
    assert site.deploy_site(read_target(path), plan.derive_names(tmp_path / "lab")) is False


def _answer(lab: Path, address: str) -> str:
    transport = SshTransport(build_ssh_host(lab, "front"))
    try:
        done = transport.run(["curl", "-sS", "--retry", "20", "--retry-connrefused", "--retry-delay",
                              "1", f"http://{address}/kv.php"], timeout=60.0)  # fmt: skip
        return done.stdout.strip()
    finally:
        transport.close()


def deployed(
    environment: StackEnvironment, directory: Path, *changes: dict[str, Any]
) -> list[tuple[DeployResult, int]]:
    """Each deployment, and what stays open to the web server under it; then the hosts are restored."""
    fleet = environment.create_deployment(directory / "study", News().note)
    fleet.lock_hosts()
    try:
        outcomes = []
        for change in changes:
            outcome = fleet.deploy(environment.space.build_candidate(change).settings)
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
    assert target_labs.start_target_lab(path, lab_dir).has_site is True
    names = plan.derive_names(lab_dir)
    before = {name: picture(names, name) for name in ("front", "back")}
    assert not [line for lines in before.values() for line in lines if "lib/autotune/" in line]
    again = target_labs.start_target_lab(path, lab_dir)
    assert (again.has_site, again.started_hosts) == (False, frozenset())

    environment = prepare(read_target(path))
    preview = environment.build_preview()
    assert preview.compute_changes is not None
    changes = preview.compute_changes(environment.space.complete_without_repair({}).settings)
    assert [change.files for change in changes.values()] == [(), ()]
    assert [answer.status for answer in preview.request_answers().values()] == [200]  # type: ignore[union-attr]
    (plain, none), (kept, some) = deployed(environment, tmp_path, {}, CHANGED)
    assert (plain.mismatches, kept.mismatches) == ((), ())
    assert (none, some > 0) == (0, True)
    assert kept.effective["web.nginx.fastcgi_keep_conn"] is True
    assert differing(before, {name: picture(names, name) for name in before}) == []

    for name in before:
        halt_host(lab_dir, name)
    assert target_labs.start_target_lab(path, lab_dir).has_site is False
    assert _answer(lab_dir, addresses[0]) == "found 0010 of 0010"
    after = {name: of_files(picture(names, name)) for name in before}
    assert differing({name: of_files(lines) for name, lines in before.items()}, after) == []
    remove_lab(lab_dir)
    assert traces(lab_dir) == []
