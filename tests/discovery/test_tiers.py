"""Which tiers there are, and which of them call which, by what configurations say."""

from __future__ import annotations

from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import DiscoveredTier, find_instances, group_tiers
from tests.discovery.places import LB, POOL, SITE, adopted, cache, host, store, web


def found(*hosts: DiscoveredHost) -> dict[str, DiscoveredTier]:
    return {
        tier.name: tier for tier in group_tiers(m for one in hosts for m in find_instances(one)[0])
    }


def lb(text: str = LB) -> DiscoveredHost:
    return host("lb1", "10.0.0.9", {"/etc/nginx/nginx.conf": text}, "nginx.service")


def test_a_stack_of_five() -> None:
    every = found(store(), cache(), web(), web("web2", "10.0.0.2"), lb())
    assert list(every) == ["lb", "web", "cache", "store"]
    assert every["lb"].deployment == "nginx"
    assert every["lb"].forwards_to == "web"
    assert [member.host.name for member in every["web"].instances] == ["web1", "web2"]
    assert every["web"].uses == ("cache", "store")
    assert every["web"].assumed_uses == ("store",)  # only the cache is spoken of


def test_all_on_one_host() -> None:
    files = {path: content.decode() for one in (web(), cache(), store())
             for path, content in one.tree.files.items()}  # fmt: skip
    files["/etc/nginx/sites-available/default"] = SITE.replace("10.0.0.3", "127.0.0.1")
    units = ("nginx.service", "php8.2-fpm.service", "memcached.service", "redis-server.service")
    one = host("all", "10.0.0.1", files, *units, links=web().tree.links)
    every = found(one)
    assert {name: tier.deployment for name, tier in every.items()} == {
        "web": "nginx+php-fpm", "cache": "memcached", "store": "redis",
    }  # fmt: skip
    assert every["web"].assumed_uses == ("store",)


def test_ports_and_other_peoples_upstreams() -> None:
    every = found(web(site=SITE.replace("80", "8080")), lb())
    assert every["web"].port == 8080
    assert every["lb"].forwards_to is None


def test_a_site_with_tls_alone() -> None:
    text = LB.replace("listen 80;", "listen 443 ssl; server_name _ *.shop.example shop.example;")
    (balancer,), notes = find_instances(lb(text))
    assert (balancer.port, balancer.tls, balancer.hostname) == (443, True, "shop.example")
    assert notes == ()
    (plain,), _ = find_instances(lb(LB.replace("listen 80;", "listen 80; listen 443 ssl;")))
    assert (plain.port, plain.tls) == (80, False)


def test_what_is_not_tuned_is_told() -> None:
    silent = find_instances(lb(LB.replace("listen 80", "listen unix:/run/site.sock")))
    why = "lb1: nginx listens on no TCP port: set `load: {url: …}` manually to load it"
    assert silent == ((), (why,))
    assert find_instances(host("idle", "10.0.0.8", {})) == ((), ())


def test_of_several_pools_the_one_that_the_web_server_uses_is_observed() -> None:
    pool = "\n[shop]\nlisten = {}\npm = static\npm.max_children = 5\n"
    shop = POOL + pool.format("127.0.0.1:9000")
    for site, location in (
        (SITE, "/run/php/php8.2-fpm.sock"),
        (SITE.replace("unix:/run/php/php8.2-fpm.sock", "127.0.0.1:9000"), "9000"),
        # A link to the first pool's socket, as Debian's alternatives have it.
        (SITE.replace("php8.2-fpm.sock", "php-fpm.sock"), "/run/php/php8.2-fpm.sock"),
    ):
        tier = adopted(web(site=site, pool=shop))
        assert tier.adopted_configs["web.web1.php_fpm"].listen == location


def test_a_pool_on_the_web_server_s_host_is_not_that_of_another_host() -> None:
    for pool in (POOL, POOL.replace("/run/php/php8.2-fpm.sock", "127.0.0.1:9000")):
        site = SITE.replace("unix:/run/php/php8.2-fpm.sock", "10.0.0.5:9000")
        (front,), notes = find_instances(web(site=site, pool=pool))
        assert front.deployment == "nginx"
        assert notes == ("web1: nginx forwards requests to PHP-FPM, which is not adopted",)
        (whole,), _ = find_instances(web(site=site.replace("10.0.0.5", "10.0.0.1"), pool=pool))
        assert whole.deployment == "nginx+php-fpm"


def test_of_two_versions_that_with_a_pool_at_the_web_server_s_address_is_adopted() -> None:
    pools = "[www]\nlisten = /run/php/www.sock\n[shop]\nlisten = /run/php/shop.sock\n"
    files = {path: text.decode() for path, text in web().tree.files.items()}
    files["/etc/nginx/sites-available/default"] = SITE.replace("php8.2-fpm.sock", "shop.sock")
    files["/etc/php/7.4/fpm/php-fpm.conf"] = f"{pools}pm = static\npm.max_children = 7\n"
    units = ("nginx.service", "php7.4-fpm.service", "php8.2-fpm.service")
    (front,), _ = find_instances(host("web1", "10.0.0.1", files, *units, links=web().tree.links))
    server = front.services["php_fpm"]
    assert (server.instance, server.listen_address) == ("php7.4-fpm.service", "/run/php/shop.sock")
