from __future__ import annotations

from autotune.diagnose.diagnosis import WatchedReading, find_max_rss
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostUsage
from autotune.monitor.host_watch import Observations
from autotune.study.state_replay import replay_records

READING = Reading(100.0, 1.0, 100, 0, {}, {0.01: 100})


def usage(**rss: int) -> HostUsage:
    by_part = {name.replace("__", "."): size for name, size in rss.items()}
    return HostUsage(0.5, 0.0, 1.0, 1.0, 0.2, 10, 5, 1000.0, by_part)


def test_the_largest_process_of_a_service_on_any_host_in_any_reading() -> None:
    first = {"web1": usage(web__web1__php_fpm=20, web__web1__nginx=5),
             "web2": usage(web__web2__php_fpm=30)}  # fmt: skip
    second = {"web1": usage(web__web1__php_fpm=25)}
    watched = [WatchedReading(READING, Observations(), hosts) for hosts in (first, second)]
    assert find_max_rss(watched) == {"web.php_fpm": 30, "web.nginx": 5}


def test_a_study_remembers_the_worst_of_all_trials() -> None:
    records = [
        {"event": "memory", "trial": 0, "rss": {"web.php_fpm": 30, "web.nginx": 5}},
        {"event": "memory", "trial": 1, "rss": {"web.php_fpm": 20, "lb.nginx": 4}},
    ]
    assert replay_records(records).rss == {"web.php_fpm": 30, "web.nginx": 5, "lb.nginx": 4}
