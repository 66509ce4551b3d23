"""Every service there is. A new one is its module, its template, its fixtures and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.services import reference_app
from autotune.services.apache import Apache
from autotune.services.apache_mod_php import ApacheModPhp
from autotune.services.base import Role, Service
from autotune.services.kvrocks import Kvrocks
from autotune.services.memcached import Memcached
from autotune.services.nginx import Nginx
from autotune.services.php_fpm import PhpFpm
from autotune.services.redis import Redis
from autotune.services.reference_app import ReferenceApp

if TYPE_CHECKING:
    from autotune.target.model import Target

SERVICES: dict[str, Service] = {
    "nginx": Nginx(),
    "apache": Apache(),
    "apache-mod-php": ApacheModPhp(),
    "php-fpm": PhpFpm(),
    "memcached": Memcached(),
    "redis": Redis(),
    "kvrocks": Kvrocks(),
}

APPS: dict[str, Service] = {"reference": ReferenceApp()}

# What a tier's ``service`` may say, and the role each part of it plays there.
DEPLOYMENTS: dict[str, tuple[tuple[str, Role], ...]] = {
    "nginx": (("nginx", Role.PROXY),),
    "nginx+php-fpm": (("php-fpm", Role.APP), ("nginx", Role.WEB)),
    "apache": (("apache", Role.PROXY),),
    "apache+mod_php": (("apache-mod-php", Role.WEB),),
    "memcached": (("memcached", Role.CACHE),),
    "redis": (("redis", Role.STORE),),
    "kvrocks": (("kvrocks", Role.STORE),),
}

# Where a deployment listens under its distribution's units, unless the tier says otherwise.
PORTS: dict[str, int] = {
    "nginx": 80,
    "nginx+php-fpm": 80,
    "apache": 80,
    "apache+mod_php": 80,
    "memcached": 11211,
    "redis": 6379,
    "kvrocks": 6666,
}


def parts(deployment: str) -> tuple[tuple[Service, Role], ...]:
    """The services of a deployment such as ``nginx+php-fpm``, in the order they start."""
    return tuple((SERVICES[name], role) for name, role in DEPLOYMENTS[deployment])


def expected_body(target: Target) -> bytes | None:
    """The body that proves a request was served right, where the application is one of ours."""
    apps = {tier.app for tier in target.tiers.values()}
    return reference_app.expected_body(target.data) if "reference" in apps else None
