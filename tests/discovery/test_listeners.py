"""Nothing that listens is passed over, and a site that redirects is asked where it redirects to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.discovery.listeners import parse_listeners
from autotune.discovery.target_writer import LoadRequest, _choose_request, _find_tiers
from autotune.discovery.tiers import DiscoveredInstance, DiscoveredTier, find_instances, group_tiers
from autotune.services.adoption import Listener
from autotune.target.model import Load
from autotune.transports import curl
from autotune.transports.request import Request
from tests.discovery.places import LB, cache, host, web
from tests.loads.tls import NAME, serving

PRINTED = """\
LISTEN 0      511          0.0.0.0:80        0.0.0.0:*    users:(("nginx",pid=7,fd=6),("nginx",pid=8,fd=6))
LISTEN 0      511             [::]:80           [::]:*    users:(("nginx",pid=7,fd=7))
LISTEN 0      511          0.0.0.0:443       0.0.0.0:*    users:(("nginx",pid=7,fd=8))
LISTEN 0      80         127.0.0.1:3306      0.0.0.0:*    users:(("mariadbd",pid=9,fd=20))
LISTEN 0      128            [::1]:9000         [::]:*    users:(("php-fpm8.2",pid=10,fd=4))
LISTEN 0      128          0.0.0.0:2024      0.0.0.0:*
"""  # noqa: E501
FPM, NGINX = Listener("php-fpm8.2", 9000, True), Listener("nginx", 80, False)


def test_what_listens() -> None:
    assert parse_listeners(PRINTED) == (
        Listener("", 2024, False), Listener("mariadbd", 3306, True), NGINX,
        replace(NGINX, port=443), FPM,
    )  # fmt: skip


def test_what_listens_and_is_not_tuned_is_named() -> None:
    _, (too, unowned) = _find_tiers([replace(web(), listeners=parse_listeners(PRINTED))])
    assert too == (
        "web1: nginx also listens on port 443 with the same settings; load goes to port 80"
    )
    assert unowned == (
        "listening but not tuned on web1: something (2024), mariadbd (3306, locally)"
    )
    assert _find_tiers([replace(web(), listeners=(NGINX, FPM))])[1] == []


def test_what_listens_on_every_host_is_named_once() -> None:
    sshd, mail = Listener("sshd", 22, False), Listener("master", 25, True)
    hosts = [replace(web(), listeners=(NGINX, sshd)), replace(cache(), listeners=(sshd, mail))]
    _, notes = _find_tiers(hosts)
    assert [note for note in notes if "listening" in note] == [
        "listening but not tuned on every host: sshd (22)",
        "listening but not tuned on mc1: master (25, locally)",
    ]


def test_a_host_in_no_tier_and_two_entries_are_named() -> None:
    idle = host("idle", "10.0.0.8", {})
    front_text = LB.replace("10.0.0.1", "10.1.0.1").replace("web2", "elsewhere")
    front = host("lb1", "10.0.0.9", {"/etc/nginx/nginx.conf": front_text}, "nginx.service")
    _, notes = _find_tiers([idle, web(), front])
    idle_line, entries = notes
    assert idle_line == "idle: autotune found no service to tune, so the host belongs to no tier"
    assert entries.startswith(
        "ambiguous entry tier: no file shows which tier forwards to lb and web."
    )
    assert _find_tiers([web(), cache()])[1] == []


@pytest.mark.parametrize(
    ("units", "line"),
    [
        (
            ("nginx.service", "php-fpm.service"),
            "PHP-FPM behind a web server runs as php-fpm.service",
        ),
        (("httpd.service",), "runs as httpd.service, which is not Debian's unit name"),
        (("redis.service",), "Redis runs as redis.service, which is not Debian's unit name"),
        (("redis.service", "redis-server.service"), None),
    ],
)
def test_a_service_under_another_distribution_s_name(
    units: tuple[str, ...], line: str | None
) -> None:
    notes = find_instances(replace(web(), units=dict.fromkeys(units, "active")))[1]
    assert any(line in note for note in notes) if line else not any("runs as" in n for n in notes)


REDIRECTING = """daemon off; master_process off; pid pid; error_log error.log;
events {{ worker_connections 64; }}
http {{
  access_log access.log;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  ssl_certificate site.pem; ssl_certificate_key site.key;
  server {{ listen 127.0.0.1:{port}; return 301 https://shop.example:{other}$request_uri; }}
  server {{ listen 127.0.0.1:{other} ssl; server_name shop.example; return 200 "ok\\n"; }}
}}
"""


def front() -> tuple[DiscoveredTier, DiscoveredInstance]:
    """A tier and its only host, at 127.0.0.1."""
    (tier,) = group_tiers(find_instances(web())[0])
    (instance,) = tier.instances
    return tier, replace(instance, host=replace(instance.host, address="127.0.0.1"))


@pytest.mark.stack
def test_a_redirect_is_followed_to_the_same_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, REDIRECTING) as site:
        tier, instance = front()
        here = replace(tier, instances=(replace(instance, port=site.endpoint.port),))
        url = f'url: "https://{NAME}:{site.other}/index.php"'
        asked = _choose_request([here])
        assert asked.load_keys == url
        assert "does not trust its certificate: add `ca: FILE`" in asked.remark
        monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "ca.pem"))
        assert (
            _choose_request([here]).load_keys,
            "ca: FILE" in _choose_request([here]).remark,
        ) == (url, False)
        requested = _choose_request([here], ["/list?first=7"])
        assert requested.load_keys == f'url: "https://{NAME}:{site.other}/list?first=7"'


def test_a_site_with_tls_and_an_ipv6_address_gets_a_url_that_targets_accept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = list[Request]()

    def refuse(_: object, request: Request, __: float) -> str:
        requests.append(request)
        return "connection refused"

    monkeypatch.setattr(curl, "send_request", refuse)
    tier, instance = front()
    nameless = replace(
        instance, host=replace(instance.host, address="fd00::1"), port=8443, tls=True, hostname=""
    )
    chosen = _choose_request([replace(tier, instances=(nameless,))], ["/a"])
    url = "https://[fd00::1]:8443/a"
    assert chosen.load_keys == f'url: "{url}"'
    assert Load(url=url).uses_tls
    assert [(request.url, request.host) for request in requests] == [(url, None)]


@pytest.mark.stack
def test_a_site_with_tls_alone_is_asked_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, REDIRECTING) as site:
        tier, instance = front()
        named = replace(instance, port=site.other, tls=True, hostname=NAME)
        here = replace(tier, instances=(named,))
        assert "does not trust its certificate: add `ca: FILE`" in _choose_request([here]).remark
        monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "ca.pem"))
        url = f"https://{NAME}:{site.other}/index.php"
        remark = f"The site uses HTTPS only, at {url}."
        assert _choose_request([here]) == LoadRequest(f'url: "{url}"', remark)
        requested = _choose_request([here], ["/list?first=7"])
        assert requested.load_keys == f'url: "https://{NAME}:{site.other}/list?first=7"'
        other = replace(here, instances=(replace(named, hostname="other.example"),))
        assert "its certificate is for another name" in _choose_request([other]).remark
        nameless = replace(here, instances=(replace(named, hostname=""),))
        assert (
            _choose_request([nameless]).load_keys
            == f'url: "https://127.0.0.1:{site.other}/index.php"'
        )


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    "location",
    ["shop://open/item", "http://shop.example:99999/", "http://shop.example:0/", "https://[shop/"],
)
def test_a_redirect_that_no_target_can_contain_is_not_followed(
    location: str, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = curl.CurlAnswer(302, b"", 0.01, 0, location)
    monkeypatch.setattr(curl, "send_request", lambda *_: answer)
    tier, instance = front()
    requested = _choose_request([replace(tier, instances=(replace(instance, tls=tls),))])
    assert requested.load_keys == ('url: "https://127.0.0.1:80/"' if tls else 'path: "/"')
