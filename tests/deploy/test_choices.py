"""What the search may choose beside numbers, with the real servers: software, caches, disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.stack import ServiceInstance
from autotune.services import option_lines
from autotune.services.base import Action
from autotune.services.readback import build_config_parser
from autotune.study.trial_context import TrialContext
from autotune.transports.local import LocalTransport
from tests.deploy.conftest import Opened, processes_below
from tests.deploy.lab import give_up_soon
from tests.deploy.test_embedded import RIGHT, answer, fleet, settings

pytestmark = pytest.mark.stack

WEB = ("service: nginx+php-fpm", "service: [nginx+php-fpm, apache+mod_php]")
TEMPLATES = Path(__file__).parents[2] / "templates"


def programs(bench: TrialContext, tier: str) -> set[str]:
    """Names of the processes that work for a tier."""
    site = next(p.placement for p in fleet(bench).stack.instances if p.placement.tier == tier)
    return {process.name() for process in processes_below(Path(site.directory))}


def stats(part: ServiceInstance) -> dict[str, object]:
    argv = (part.placement.programs["memcached-tool"], str(part.placement.listen), "stats")
    names = {"get_hits": "hits", "curr_connections": "connections"}
    return dict(
        build_config_parser(option_lines.parse_directives, names)(LocalTransport().run(argv).stdout)
    )


def test_a_deployment_that_answers_wrong_gives_its_place_back(
    opened: Opened, tmp_path: Path
) -> None:
    mine = tmp_path / "mine" / "apache"
    mine.mkdir(parents=True)
    # Apache takes this for a site, and finds nothing in it.
    shipped = (TEMPLATES / "apache" / "mod_php.conf.j2").read_text()
    assert "site.document_root" in shipped
    (mine / "mod_php.conf.j2").write_text(
        shipped.replace("site.document_root", "site.document_root ~ '/elsewhere'")
    )
    with opened(WEB, ("app: reference", "templates: mine, app: reference")) as bench:
        fleet(bench).deploy(settings(bench))
        give_up_soon(fleet(bench))
        assert {"nginx"} < programs(bench, "web")
        with pytest.raises(DeployFailed, match="does not respond correctly"):
            fleet(bench).deploy(settings(bench, web__service="apache+mod_php"))
        assert answer(bench) == RIGHT
        assert "apache2" not in programs(bench, "web")
        assert "nginx" in programs(bench, "web")
        good = fleet(bench).deploy(settings(bench))
        assert set(good.actions.values()) == {Action.NONE}


def test_what_gives_way_leaves_no_file(opened: Opened) -> None:
    with opened(WEB) as bench:
        nginx = fleet(bench).deploy(settings(bench))
        directory = Path(fleet(bench).stack.instances[-1].placement.directory).parent / "web.here"
        assert (directory / "nginx.conf").exists()
        apache = fleet(bench).deploy(settings(bench, web__service="apache+mod_php"))
        assert not (directory / "nginx.conf").exists()
        assert not (directory / "php-fpm.conf").exists()
        parts = {name.partition("/")[0] for name in nginx.files} - {
            name.partition("/")[0] for name in apache.files
        }
        assert parts == {"web.here.nginx", "web.here.php_fpm"}
        assert not any(name.startswith("web.php_fpm.") for name in apache.effective)


def test_a_cache_on_each_web_host_is_asked_first(opened: Opened) -> None:
    with opened(("app: reference", "local_cache: true, app: reference")) as bench:
        without = fleet(bench).deploy(settings(bench))
        assert "memcached" not in programs(bench, "web")
        assert answer(bench) == RIGHT
        changed = {"enabled": True, "memory": 4, "ttl": 60, "threads": 2}
        on = {f"web__local_cache__{name}": value for name, value in changed.items()}
        deployed = fleet(bench).deploy(settings(bench, **on))
        assert deployed.effective["web.local_cache.memory"] == 4
        assert deployed.effective["web.local_cache.threads"] == 2
        assert deployed.mismatches == ()
        assert set(deployed.actions) - set(without.actions) == {"web.here.local_cache"}
        cache = next(p for p in fleet(bench).stack.instances if p.service.name == "local_cache")
        for _ in range(40):
            assert answer(bench) == RIGHT
        # Popular keys come again and again.
        assert int(str(stats(cache)["hits"])) > 100
        off = fleet(bench).deploy(settings(bench))
        assert "web.here.local_cache" not in off.actions
        assert "memcached" not in programs(bench, "web")
        assert answer(bench) == RIGHT


def test_items_overflow_to_disk_where_the_build_can(opened: Opened) -> None:
    more = ("\nload:", "  cache.memcached.extstore: {choices: [false, true]}\n\nload:")
    with opened(more) as bench:
        on = {"cache__memcached__extstore": True, "cache__memcached__ext_item_size": 128,
              "cache__memcached__ext_threads": 2}  # fmt: skip
        deployed = fleet(bench).deploy(settings(bench, **on))
        assert answer(bench) == RIGHT
        assert deployed.effective["cache.memcached.ext_item_size"] == 128
        site = next(
            p.placement for p in fleet(bench).stack.instances if p.placement.tier == "cache"
        )
        assert Path(site.directory, "extstore").exists()
        again = fleet(bench).deploy(settings(bench))
        assert again.actions["cache.here.memcached"] is Action.RESTART
        assert answer(bench) == RIGHT
