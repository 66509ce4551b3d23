"""Where the services of distributions write their logs, and what their lines show."""

from __future__ import annotations

import pytest

from autotune.services.apache.service import Apache
from autotune.services.apache_mod_php.service import ApacheModPhp
from autotune.services.base import AdoptedConfig, Endpoint, Placement, Role, Service
from autotune.services.diagnosis import REPORTED, InstanceActivity, InstanceReading, Resource
from autotune.services.php_fpm.service import CHILD_POOL, DIAGNOSIS, PhpFpm
from autotune.services.redis.service import Redis
from autotune.services.registry import find_own_diagnosis

FULL = "[21-Nov-2026 05:01:01] WARNING: [pool www] server reached pm.max_children setting (5)"


@pytest.mark.parametrize(
    ("service", "adopted", "log"),
    [
        (PhpFpm(), None, "/var/log/php8.2-fpm.log"),
        (PhpFpm(), AdoptedConfig(), "/var/log/php8.2-fpm.log"),
        (PhpFpm(), AdoptedConfig(unit="php7.4-fpm.service"), "/var/log/php7.4-fpm.log"),
        (PhpFpm(), AdoptedConfig(unit="php-fpm.service"), "php-fpm.service"),
        (Redis(), None, "redis-server.service"),  # the template sets no log file
        (Redis(), AdoptedConfig(), "/var/log/redis/redis-server.log"),
        (Redis(), AdoptedConfig(unit="redis.service"), "redis.service"),
        (Apache(), None, "/var/log/apache2/error.log"),
        (Apache(), AdoptedConfig(), "/var/log/apache2/error.log"),
        (Apache(), AdoptedConfig(unit="httpd.service"), "/var/log/httpd/error_log"),
        (ApacheModPhp(), AdoptedConfig(unit="httpd.service"), "/var/log/httpd/error_log"),
    ],
)
def test_a_log_is_where_its_distribution_has_it(
    service: Service, adopted: AdoptedConfig | None, log: str
) -> None:
    site = Placement(
        tier="t", host="h", role=Role.APP, directory="/run/t", listen=Endpoint("10.0.0.1", 80),
        installed=True, programs={"php-fpm": "/usr/sbin/php-fpm8.2"}, adopted=adopted,
    )  # fmt: skip
    find_log = find_own_diagnosis(service).find_log
    assert find_log is not None
    assert find_log(site) == log


def test_a_pool_that_says_so_is_full() -> None:
    kinds = [kind for kind, pattern in DIAGNOSIS.complaint_patterns.items() if pattern.search(FULL)]
    assert kinds == ["max_children"]
    activity = InstanceActivity(
        "web.h.php_fpm", "web", "h", "php_fpm", Role.APP, workers=5, queued_fraction=0.5,
        waiting_connections=3.0, log_complaints=dict.fromkeys(kinds, 2),
    )  # fmt: skip
    reading = InstanceReading(
        activity, {"max_children": 5}, 0, errors_dominate=False, idle_fraction=0.5
    )
    shortage = CHILD_POOL.detect_exhaustion(reading)
    assert shortage is not None
    assert (shortage.resource, shortage.confidence) == (Resource.WORKERS, REPORTED)
    assert "“server reached pm.max_children setting” in its log" in shortage.evidence
