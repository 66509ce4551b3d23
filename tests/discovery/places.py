"""Configurations of hosts, built from a few texts."""

from __future__ import annotations

from collections.abc import Mapping

from autotune import config_text
from autotune.discovery import tier_adoption
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import DiscoveredInstance, find_instances, group_tiers
from autotune.masking import restore_secrets
from autotune.services.config_files import FileTree
from autotune.services.registry import SHIPPED
from autotune.space.facts import HostFacts


def filled(instance: DiscoveredInstance, service: str, path: str, text: str) -> str:
    """Return the rendered file of an instance's service with masked values filled in, as in a
    deployment.
    """
    outliner = SHIPPED.map_adoptions()[instance.services[service].key].visible.build_outliner(path)
    return config_text.decode(
        restore_secrets(text.encode(), instance.host.tree.files.get(path), path, outliner)
    )


FACTS = HostFacts(2, 4 * 2**30, 1024)
WEB = ("nginx.service", "php8.2-fpm.service")
NGINX = """\
user www-data;
worker_processes auto;
include /etc/nginx/modules-enabled/*.conf;
events {
\tworker_connections 768;
\t# multi_accept on;
}
http {
\taccess_log /var/log/nginx/access.log;
\tkeepalive_timeout 65s;
\tinclude /etc/nginx/conf.d/*.conf;
\tinclude /etc/nginx/sites-enabled/*;
}
"""
SITE = """\
server {
\tlisten 80 default_server;
\tlisten [::]:80 default_server;
\tlocation ~ \\.php$ {
\t\tfastcgi_pass unix:/run/php/php8.2-fpm.sock;
\t\tfastcgi_param CACHE 10.0.0.3:11211;
\t}
}
server {
\tlisten *:80;
\tlisten 443 ssl;
\tserver_name other;
}
"""
FPM = "[global]\npid = /run/php/php8.2-fpm.pid\ninclude=/etc/php/8.2/fpm/pool.d/*.conf\n"
POOL = """\
[www]
user = www-data
listen = /run/php/php8.2-fpm.sock
pm = dynamic
pm.max_children = 5
pm.start_servers = 2
pm.min_spare_servers = 1
pm.max_spare_servers = 3
;pm.max_requests = 500
"""
LB = """\
events { worker_connections 1024; }
http {
    upstream site { server 10.0.0.1; server web2:80; keepalive 16; }
    server {
        listen 80;
        location / {
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_pass http://site;
        }
    }
}
"""
WEB_FILES = {
    "/etc/nginx/nginx.conf": NGINX,
    "/etc/nginx/sites-available/default": SITE,
    "/etc/php/8.2/fpm/php-fpm.conf": FPM,
    "/etc/php/8.2/fpm/pool.d/www.conf": POOL,
}
WEB_LINKS = {"/etc/nginx/sites-enabled/default": "../sites-available/default"}


def host(
    name: str,
    address: str,
    files: Mapping[str, str],
    *units: str,
    links: Mapping[str, str] | None = None,
) -> DiscoveredHost:
    tree = FileTree({path: config_text.encode(text) for path, text in files.items()}, links or {})
    return DiscoveredHost(
        name=name,
        address=address,
        tree=tree,
        facts=FACTS,
        units=dict.fromkeys(units, "active"),
        names=frozenset({name, address}),
        processors=2,
    )


def web(name: str = "web1", address: str = "10.0.0.1", **changed: str) -> DiscoveredHost:
    """Return a host with nginx and PHP-FPM. ``changed`` replaces the texts above."""
    texts = {"nginx": NGINX, "site": SITE, "pool": POOL, **changed}
    files = dict(zip(WEB_FILES, (texts["nginx"], texts["site"], FPM, texts["pool"]), strict=True))
    return host(name, address, files, *WEB, links=WEB_LINKS)


def cache(
    address: str = "10.0.0.3", text: str = "-d\n-m 64\n-p 11211\n-l 10.0.0.3\n"
) -> DiscoveredHost:
    return host("mc1", address, {"/etc/memcached.conf": text}, "memcached.service")


def store(text: str = "bind 10.0.0.4\nport 6379\nhz 10\n") -> DiscoveredHost:
    return host("db1", "10.0.0.4", {"/etc/redis/redis.conf": text}, "redis-server.service")


def adopted(of: DiscoveredHost) -> tier_adoption.AdoptedTier:
    """Return the only tier on a host, with its tunable parameters."""
    (tier,) = group_tiers(find_instances(of)[0])
    each = tier_adoption.adopt_tier(tier)
    tier_adoption.check_templates(each)
    return each
