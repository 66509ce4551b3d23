"""PHP's own settings: what its files say, where they are changed, and what OPcache runs out of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.deploy.stack import ServiceInstance
from autotune.discovery.host_reading import DiscoveredHost
from autotune.monitor.activity import find_queue
from autotune.monitor.procfs import ListenQueue
from autotune.services.adoption import RunningHost
from autotune.services.base import AdoptedConfig, ConfigFile, Endpoint, Placement, Role, Value
from autotune.services.config_files import FileTree
from autotune.services.diagnosis import (
    InstanceActivity,
    InstanceReading,
    Resource,
    ResourceShortage,
)
from autotune.services.nginx import adoption as nginx_adoption
from autotune.services.php_fpm.service import PhpFpm
from autotune.services.php_ini.adoption import find_services
from autotune.services.php_ini.diagnosis import DIAGNOSIS
from autotune.services.php_ini.parameters import PARAMETERS
from autotune.services.php_ini.service import FILE_NAME, PhpIni, parse_effective, parse_value
from autotune.space.dimension import PRESET_NAMES
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from tests.discovery.places import POOL, adopted, web

PRINTED = (Path(__file__).parent / "fixtures" / "php-ini-fpm.txt").read_text()
BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
CONF = "/etc/php/8.2/fpm/conf.d"
OWN = f"{CONF}/zz-autotune.ini"
PHP_INI = "/etc/php/8.2/fpm/php.ini"
MODULE = "/etc/php/8.2/mods-available/opcache.ini"
FILES = {
    PHP_INI: b"[PHP]\nmemory_limit = 128M\n;opcache.enable=1\n"
    b"realpath_cache_size = 64k\n[PATH=/srv/old]\nrealpath_cache_ttl = 7\n",
    MODULE: b"zend_extension=opcache.so\nopcache.jit=off\n",
    f"{CONF}/20-shop.ini": b'opcache.memory_consumption = "96"\nopcache.interned_strings_buffer=4M\n',
}
LINKS = {f"{CONF}/10-opcache.ini": MODULE}


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("opcache_enable", "On", True),
        ("opcache_enable", "no", False),
        ("opcache_enable", "", False),
        ("opcache_memory_consumption", "128", 128),
        ("opcache_memory_consumption", "128M", None),
        ("opcache_jit", "", "off"),
        ("opcache_jit", "disable", "off"),
        ("opcache_jit", "On", "tracing"),
        ("opcache_jit", "Function", "function"),
        ("opcache_jit", "1255", "1255"),
        ("opcache_jit_buffer_size", "64M", 64),
        ("opcache_jit_buffer_size", "67108864", 64),
        ("opcache_jit_buffer_size", "1000", None),
        ("realpath_cache_size", "4096k", 4096),
        ("realpath_cache_size", "4M", 4096),
        ("memory_limit", '"1G"', 1024),
        ("memory_limit", "-1", None),
        ("opcache_preload", "/srv/shop/preload.php", True),
        ("opcache_preload", '""', False),
    ],
)
def test_what_php_makes_of_a_value(name: str, written: str, value: Value | None) -> None:
    assert parse_value(BY_NAME[name], written) == value


def test_the_pool_shows_what_is_in_effect() -> None:
    values = parse_effective(PRINTED)
    assert set(values) == set(BY_NAME)
    assert values["opcache_memory_consumption"] == 64
    assert (values["opcache_jit"], values["realpath_cache_size"]) == ("off", 4096)
    # Asked for and not mapped; and without OPcache, where all that is left is what was asked for.
    assert parse_effective("opcache.memory_consumption 64\nused_memory 5\nfree_memory 33554427\n"
                     "wasted_memory 0\n") == {"opcache_memory_consumption": 32}  # fmt: skip
    assert parse_effective("opcache.memory_consumption 64\n") == {"opcache_memory_consumption": 64}
    assert parse_effective("File not found.\n") == {}


@pytest.mark.parametrize(
    ("line", "jit"), [("", "tracing"), ("jit_enabled 1\n", "tracing"), ("jit_enabled 0\n", "off")]
)
def test_a_compiler_that_php_disables_is_off(line: str, jit: str) -> None:
    printed = PRINTED.replace("opcache.jit \n", "opcache.jit tracing\n")
    enabled = printed.replace("jit_buffer_size 0\n", f"jit_buffer_size 32M\n{line}")
    assert parse_effective(enabled)["opcache_jit"] == jit
    assert parse_effective(enabled)["opcache_jit_buffer_size"] == 32


def host(pool: str = POOL, files: dict[str, bytes] | None = None) -> DiscoveredHost:
    plain = web(pool=pool)
    tree = FileTree({**plain.tree.files, **(FILES if files is None else files)},
                {**plain.tree.links, **LINKS})  # fmt: skip
    return replace(plain, tree=tree)


def test_debian_s_files_stay_and_another_one_is_read_last() -> None:
    tier = adopted(host())
    values = {name.removeprefix("php_ini."): value for name, value in tier.baseline_values.items()
              if name.startswith("php_ini.")}  # fmt: skip
    assert values == {
        "opcache_enable": True, "opcache_memory_consumption": 96, "opcache_jit": "off",
        "opcache_max_accelerated_files": 10_000, "opcache_jit_buffer_size": 0,
        "opcache_validate_timestamps": True, "opcache_revalidate_freq": 2, "memory_limit": 128,
        "realpath_cache_size": 64, "realpath_cache_ttl": 120,
    }  # fmt: skip
    assert (
        "= 4M` is not a valid baseline value"
        in tier.skipped["php_ini.opcache_interned_strings_buffer"]
    )
    own = tier.adopted_configs["web.web1.php_ini"]
    assert [(file.path, file.optional) for file in own.files] == [(OWN, True)]
    assert own.listen == "/run/php/php8.2-fpm.sock"
    from autotune.deploy.templates import render_text

    text = tier.templates[own.files[0].template]
    assert render_text(text, values) == ""
    other = {
        **values,
        "opcache_jit": "tracing",
        "opcache_enable": False,
        "realpath_cache_size": 128,
    }
    assert render_text(text, other).splitlines() == [
        "opcache.enable = 0", "opcache.jit = tracing", "realpath_cache_size = 128K",
    ]  # fmt: skip


def test_what_was_kept_there_is_edited() -> None:
    tier = adopted(
        host(files={**FILES, OWN: b"opcache.jit = tracing\nopcache.jit_buffer_size=32M\n"})
    )
    assert tier.baseline_values["php_ini.opcache_jit"] == "tracing"
    assert tier.baseline_values["php_ini.opcache_jit_buffer_size"] == 32
    assert [file.optional for file in tier.adopted_configs["web.web1.php_ini"].files] == [False]


@pytest.mark.parametrize(
    ("changed", "name", "why"),
    [
        (host(POOL + "php_admin_value[memory_limit] = 99M\n"), "memory_limit", "a pool sets it"),
        (host(files={**FILES, PHP_INI: b"= 3\n"}), "opcache_jit", "php.ini cannot be read: line 1"),
        (host(files={PHP_INI: FILES[PHP_INI]}), "opcache_enable", "10-opcache.ini cannot be read"),
        (host(files={**FILES, MODULE: b""}), "opcache_enable", "OPcache is not loaded"),
        (host(files={}), "opcache_enable", "not at Debian's paths"),
    ],
)
def test_what_is_left_as_it_is(changed: DiscoveredHost, name: str, why: str) -> None:
    tier = adopted(changed)
    assert why in tier.skipped[f"php_ini.{name}"]
    assert f"php_ini.{name}" not in tier.baseline_values


def test_a_script_for_preloading_is_the_site_s_own() -> None:
    name = "php_ini.opcache_preload"
    assert "no preload script is configured" in adopted(host()).skipped[name]
    shop = f"{CONF}/20-shop.ini"
    tier = adopted(host(files={**FILES, shop: b"opcache.preload=/srv/shop/preload.php\n"}))
    assert tier.baseline_values[name] is True
    from autotune.deploy.templates import render_text

    text = tier.templates[tier.adopted_configs["web.web1.php_ini"].files[0].template]
    values = {full.removeprefix("php_ini."): value for full, value in tier.baseline_values.items()}
    assert render_text(text, values) == ""
    assert render_text(text, {**values, "opcache_preload": False}) == "opcache.preload = \n"


def test_apache_has_another_build_with_files_of_its_own() -> None:
    programs = {"php": "/usr/bin/php8.2", "php-fpm": "/usr/sbin/php-fpm8.2"}
    site = Placement(tier="web", host="h", role=Role.HOST, directory="/run/t", installed=True,
                listen=Endpoint("10.0.0.4", 80), programs=programs)  # fmt: skip
    paths = [service.config_path(site) for service in (PhpIni("fpm"), PhpIni("apache2"))]
    assert paths == [f"/etc/php/8.2/{of}/conf.d/zz-autotune.ini" for of in ("fpm", "apache2")]
    apache = replace(site, programs={"php": "/usr/bin/php8.2", "curl": "/usr/bin/curl"})
    assert PhpIni("apache2").list_readbacks(apache)[0].argv[-2:] == ("/usr/bin/curl", "10.0.0.4:80")
    own_files = (ConfigFile(f"/etc/php/8.1/apache2/conf.d/{FILE_NAME}", ""),)
    older = replace(apache, adopted=AdoptedConfig(own_files))
    assert "/usr/bin/php8.1" in PhpIni("apache2").build_validation(older, {})
    pools, settings = (
        ServiceInstance(PhpFpm(), site),
        ServiceInstance(PhpIni("fpm", PhpFpm()), site),
    )
    queue = ListenQueue(str(pools.service.get_socket(site)), 9, 511)
    assert find_queue(replace(pools, placement=replace(site, role=Role.APP)), [queue]) is not None
    assert find_queue(settings, [queue]) is None  # it is the pools' queue
    elsewhere = replace(site, adopted=AdoptedConfig(listen="127.0.0.1:9000"))
    assert PhpIni("fpm").list_readbacks(elsewhere)[0].argv[-1] == "tcp://127.0.0.1:9000"


def holding(path: str, unit: str = "") -> AdoptedConfig:
    return AdoptedConfig((ConfigFile(path, "t.j2"),), unit=unit, main=path if unit else "")


@pytest.mark.parametrize(
    ("adopted_config", "version"),
    [
        (None, "8.3"),
        (AdoptedConfig(), "8.3"),
        (holding("/etc/php/8.1/fpm/pool.d/www.conf"), "8.1"),
        (holding("/etc/php/8.1/fpm/conf.d/zz-autotune.ini"), "8.1"),
        (holding("/srv/php/fpm.conf", "php7.4-fpm.service"), "7.4"),
    ],
)
def test_of_several_versions_the_one_that_reads_the_files_is_checked_and_reloaded(
    adopted_config: AdoptedConfig | None, version: str
) -> None:
    programs = {"php": "/usr/bin/php8.3", "php-fpm": "/usr/sbin/php-fpm8.3"}
    site = Placement(tier="web", host="h", role=Role.APP, directory="/run/t", installed=True,
                listen=Endpoint("10.0.0.4", 80), programs=programs, adopted=adopted_config)  # fmt: skip
    pools, settings = PhpFpm(), PhpIni("fpm", PhpFpm())
    assert {pools.get_unit(site), settings.get_unit(site)} == {f"php{version}-fpm.service"}
    program = f"/usr/sbin/php-fpm{version}"
    assert program in pools.build_validation(site, {})
    assert program in pools.list_file_readbacks(site)[0].argv
    for command in (pools.build_validation(site, {}), pools.list_file_readbacks(site)[0].argv):
        # Only the host's own files may contain variables of the unit.
        assert (pools.get_unit(site) in command) == (adopted_config is not None)
    assert program in settings.build_validation(site, {})
    assert settings.list_file_readbacks(site)[0].argv[0] == program
    assert Path(program).name in pools.programs["php-fpm"]


def test_nginx_s_files_are_parsed_only_if_they_hand_values_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed_hosts = list[RunningHost]()

    def find_none(of: RunningHost) -> tuple[()]:
        parsed_hosts.append(of)
        return ()

    monkeypatch.setattr(nginx_adoption, "find_services", find_none)
    plain, site = host(), "/etc/nginx/sites-available/default"
    text = plain.tree.files[site].replace(b"fastcgi_param CACHE", b"fastcgi_param PHP_VALUE")
    handing = replace(plain, tree=FileTree({**plain.tree.files, site: text}, plain.tree.links))
    assert [s.key for s in find_services(plain) if not isinstance(s, str)] == ["php-ini-fpm"]
    assert parsed_hosts == []
    assert [s.key for s in find_services(handing) if not isinstance(s, str)] == ["php-ini-fpm"]
    assert parsed_hosts == [handing]


FULL = {"hits": 900.0, "misses": 600.0}


@pytest.mark.parametrize(
    ("counted", "move"),
    [
        ({**FULL, "oom_restarts": 1}, "raise opcache_memory_consumption"),
        ({**FULL, "cache_full": 1, "free_memory": 1e5}, "raise opcache_memory_consumption"),
        (
            {**FULL, "free_memory": 77_048, "used_memory": 8_311_560},
            "raise opcache_memory_consumption",
        ),
        ({**FULL, "free_memory": 4e6, "used_memory": 4e6}, ""),  # a new release of the application
        ({**FULL, "num_cached_keys": 223, "max_cached_keys": 223}, "raise opcache_max_accelerated"),
        ({**FULL, "hash_restarts": 2}, "raise opcache_max_accelerated_files"),
        (FULL, ""),  # a new release of the application
        ({**FULL, "misses": 20, "cache_full": 1}, ""),
        ({**FULL, "hits": 1e6, "cache_full": 1}, ""),
        ({"strings_buffer_size": 8e6, "strings_free_memory": 10}, "raise opcache_interned_strings"),
        ({"strings_buffer_size": 8e6, "strings_free_memory": 4e6}, ""),
    ],
)
def test_what_it_runs_out_of(counted: dict[str, float], move: str) -> None:
    activity = InstanceActivity("web.h.php_ini", "web", "h", "php_ini", Role.HOST, counters=counted)
    part = InstanceReading(
        activity, {}, failed_requests=0, errors_dominate=False, idle_fraction=0.6
    )
    rules = (*DIAGNOSIS.refusal_rules, *DIAGNOSIS.minor_rules)
    findings: list[ResourceShortage] = [finding for rule in rules if (finding := rule(part))]
    assert [finding.resource for finding in findings] == ([Resource.CACHE] if move else [])
    assert all(move in finding.evidence for finding in findings)


def space_of(directory: Path) -> SearchSpace:
    path = directory / "shop.yaml"
    path.write_text("name: shop\nslo: {p99: 50ms}\nhosts: {web1: {address: 10.0.0.1}}\n"
                    "tiers: {web: {hosts: web1, service: nginx+php-fpm}}\nload: {path: /}\n")  # fmt: skip
    return build_space(read_target(path), {"web1": HostFacts(2, 2 * 2**30, 65_536)})


MEMORY, FILE_LIMIT = (
    f"web.php_ini.opcache_{name}" for name in ("memory_consumption", "max_accelerated_files")
)


@pytest.mark.parametrize(
    ("memory", "files", "allowed"),
    [(8, 200_000, 20_971), (64, 200_000, 167_772), (80, 200_000, 200_000), (128, 10_000, 10_000)],
)
def test_the_table_of_scripts_gets_at_most_a_quarter_of_the_memory(
    tmp_path: Path, memory: int, files: int, allowed: int
) -> None:
    candidate = space_of(tmp_path).build_candidate({MEMORY: memory, FILE_LIMIT: files})
    assert (candidate.settings[MEMORY], candidate.settings[FILE_LIMIT]) == (memory, allowed)


def test_named_settings_keep_their_table_of_scripts(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    for name in PRESET_NAMES:
        candidate = space.build_candidate(space.preset_settings(name))
        assert FILE_LIMIT not in {repair.parameter for repair in candidate.repairs}, name
    assert not space.build_candidate({}).repairs


def test_its_memory_is_in_the_rule_once(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    greedy = {"web.php_ini.opcache_memory_consumption": 256, "web.php_ini.opcache_jit_buffer_size": 128,
              "web.php_fpm.max_children": 64}  # fmt: skip
    assert space.build_candidate(greedy).repairs
    (rule,) = [rule for rule in space.constraints if "memory(web1)" in rule.text]
    names = rule.names()
    assert {
        "web.php_ini.opcache_memory_consumption",
        "web.php_ini.opcache_jit_buffer_size",
    } <= names
