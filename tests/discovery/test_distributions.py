"""Services as Fedora and RHEL, and SUSE, have them: adopted under their names, and edited where they are.

The trees are what those distributions' packages bring, without comments.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.deploy import manifest
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import instances
from autotune.services.base import Endpoint, Own, Site, Value
from autotune.services.registry import SERVICES
from tests.discovery.places import POOL, WEB_FILES, host
from tests.discovery.test_adoption import adopted, given_back, rendered

# RHEL 9: the distribution's nginx with PHP-FPM, and its httpd.
FPM = {
    "/etc/php-fpm.conf": "include=/etc/php-fpm.d/*.conf\n[global]\npid = /run/php-fpm/php-fpm.pid\n",
    "/etc/php-fpm.d/www.conf": POOL.replace("/run/php/php8.2-fpm.sock", "/run/php-fpm/www.sock"),
}
NGINX = {
    "/etc/nginx/nginx.conf": WEB_FILES["/etc/nginx/nginx.conf"],
    "/etc/nginx/conf.d/php-fpm.conf": "upstream php-fpm { server unix:/run/php-fpm/www.sock; }\n"
    "server { listen 80; location ~ \\.php$ { fastcgi_pass php-fpm; } }\n",
}
HTTPD = {
    "/etc/httpd/conf/httpd.conf": """\
ServerRoot "/etc/httpd"
Listen 80
Include conf.modules.d/*.conf
User apache
DocumentRoot "/var/www/html"
IncludeOptional conf.d/*.conf
""",
    "/etc/httpd/conf.modules.d/00-mpm.conf": "LoadModule mpm_event_module modules/mod_mpm_event.so\n",
    "/etc/httpd/conf.d/ssl.conf": "Listen 443 https\n",
    "/etc/httpd/conf.d/shop.conf": "ProxyPass / http://10.0.0.1:8080/\n",
}
SUSE = {
    "/etc/apache2/httpd.conf": "Include /etc/apache2/listen.conf\n"
    "LoadModule mpm_event_module /usr/lib64/apache2/mod_mpm_event.so\n",
    "/etc/apache2/listen.conf": "Listen 80\n",
}
MARIADB = {
    "/etc/my.cnf": "[client-server]\n\n!includedir /etc/my.cnf.d\n",
    "/etc/my.cnf.d/mariadb-server.cnf": """\
[mysqld]
datadir=/var/lib/mysql
socket=/var/lib/mysql/mysql.sock
pid-file=/run/mariadb/mariadb.pid
max_connections=300
""",
}
REDIS = "bind 127.0.0.1 -::1\nport 6379\nsave 3600 1\nhz 10\n"


def on(files: dict[str, str], *units: str) -> DiscoveredHost:
    return host("h1", "10.0.0.9", files, *units)


@pytest.mark.parametrize(
    ("found", "part", "unit", "main", "changed", "path", "line"),
    [
        (on(NGINX | FPM, "nginx.service", "php-fpm.service"), "web.h1.php_fpm", "php-fpm.service",
         "/etc/php-fpm.conf", {"max_children": 40}, "/etc/php-fpm.d/www.conf", "pm.max_children = 40"),
        (on(NGINX | {"/etc/php8/fpm/php-fpm.conf": FPM["/etc/php-fpm.d/www.conf"]}, "nginx.service",
            "php-fpm.service"), "web.h1.php_fpm", "php-fpm.service",
         "/etc/php8/fpm/php-fpm.conf", {"max_children": 7}, "/etc/php8/fpm/php-fpm.conf",
         "pm.max_children = 7"),
        (on(HTTPD, "httpd.service"), "lb.h1.apache", "httpd.service", "/etc/httpd/conf/httpd.conf",
         {"ServerLimit": 20, "KeepAliveTimeout": 2}, "/etc/httpd/conf/httpd.conf",
         "MaxRequestWorkers 500"),
        (on(SUSE, "apache2.service"), "web.h1.apache", "apache2.service", "/etc/apache2/httpd.conf",
         {"ListenBacklog": 900}, "/etc/apache2/listen.conf", "ListenBacklog 900"),
        (on(MARIADB, "mariadb.service"), "db.h1.mariadb", "mariadb.service", "/etc/my.cnf",
         {"max_connections": 90}, "/etc/my.cnf.d/mariadb-server.cnf", "max_connections=90"),
        (on({"/etc/redis/redis.conf": REDIS}, "redis.service"), "store.h1.redis", "redis.service",
         "/etc/redis/redis.conf", {"hz": 50}, "/etc/redis/redis.conf", "hz 50"),
        (on({"/etc/redis.conf": REDIS}, "redis.service"), "store.h1.redis", "redis.service",
         "/etc/redis.conf", {"hz": 50}, "/etc/redis.conf", "hz 50"),
        (on({"/etc/redis/default.conf": REDIS}, "redis@default.service"), "store.h1.redis",
         "redis@default.service", "/etc/redis/default.conf", {"hz": 50}, "/etc/redis/default.conf",
         "hz 50"),
    ],
    ids=["rhel-fpm", "suse-fpm", "rhel-httpd", "suse-apache", "rhel-mariadb", "rhel9-redis",
         "rhel8-redis", "suse-redis"],
)  # fmt: skip
def test_it_is_tuned_where_its_distribution_has_it(
    found: DiscoveredHost, part: str, unit: str, main: str, changed: dict[str, Value], path: str,
    line: str,
) -> None:  # fmt: skip
    tier_name, _, service = part.split(".")
    tier = adopted(found)[tier_name]
    given_back(tier, found)
    own = tier.own[part]
    assert (own.unit, own.main) == (unit, main)
    assert manifest.of_record(manifest.record(tier.own)) == tier.own
    assert not {*tier.values} & {*tier.left}
    changes = {k: v for k, v in changed.items() if f"{service}.{k}" in tier.values}
    assert changes == changed
    text = rendered(tier, changes)[f"h1{path}"]
    assert line in text.splitlines()
    running = next(s for s in SERVICES.values() if s.name == service)
    site = Site(tier="t", host="h1", role=running.role, directory="/run/t", installed=True,
                listen=Endpoint("10.0.0.9", 80), own=own,
                programs={name: f"/usr/sbin/{name}" for name in running.programs})  # fmt: skip
    assert running.unit(site) == unit
    assert running.config_path(site) == main


def test_what_apache_serves_and_forwards_to_is_read_from_its_root() -> None:
    (running,), notes = instances(on(HTTPD, "httpd.service"))
    assert (running.port, running.behind, notes) == (80, ("10.0.0.1:8080",), ())
    tier = adopted(on(HTTPD, "httpd.service"))["lb"]
    (text,) = (t for path, t in rendered(tier, {"ServerLimit": 20}).items() if "httpd.conf" in path)
    assert text == HTTPD["/etc/httpd/conf/httpd.conf"] + (
        "<IfModule mpm_event_module>\nServerLimit 20\nThreadLimit 64\nThreadsPerChild 25\n"
        "MaxRequestWorkers 500\n</IfModule>\n"
    )


def test_debian_s_own_names_come_first() -> None:
    both = replace(on({"/etc/redis/redis.conf": REDIS}, "redis.service", "redis-server.service"))
    own = adopted(both)["store"].own["store.h1.redis"]
    assert (own.unit, own.main) == ("", "")
    assert Own() == manifest.of_record({"p": {"files": {}, "listen": ""}})["p"]
