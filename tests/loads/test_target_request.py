"""Where load goes, whatever a URL says: the entry tier's own hosts, or the address they share."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.stack import Stack
from autotune.environments.name_checks import check_names
from autotune.errors import TargetError
from autotune.loads.registry import find_generator
from autotune.loads.target_request import build_request
from autotune.services.base import Endpoint
from autotune.target.read_target import TargetFile, read_target
from autotune.transports.request import Request, TlsOptions

TARGET = """name: shop
slo: {{p99: 50ms}}
hosts: {{lb1: {{address: 198.18.0.1}}, lb2: {{address: 198.18.0.2}}, web1: {{address: 198.18.0.3}}}}
tiers:
  lb: {{hosts: [lb1, lb2], service: nginx, runtime: systemd, forwards_to: web}}
  web: {{hosts: web1, service: nginx+php-fpm, runtime: systemd}}
load: {{{load}}}
"""
FIRST, SECOND = Endpoint("198.18.0.1", 80), Endpoint("198.18.0.2", 80)
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


def target(directory: Path, load: str) -> TargetFile:
    (directory / "ca.pem").write_text(CERTIFICATE)
    (directory / "not-ca.pem").write_text("hello")
    path = directory / "shop.yaml"
    path.write_text(TARGET.format(load=load))
    return read_target(path)


def build(directory: Path, load: str, **variables: str) -> Request:
    return build_request(target(directory, load), Stack((), FIRST, (SECOND,)), None, variables)


def ports(port: int) -> tuple[Endpoint, Endpoint]:
    return Endpoint(FIRST.host, port), Endpoint(SECOND.host, port)


@pytest.mark.parametrize(
    ("load", "url", "endpoints"),
    [
        ("path: /a", "http://198.18.0.1:80/a", ports(80)),
        ("path: /a, host: shop.example", "http://shop.example:80/a", ports(80)),
        ('url: "https://shop.example"', "https://shop.example:443/", ports(443)),
        ('url: "https://shop.example/a?b=1", insecure: true', "https://shop.example:443/a?b=1",
         ports(443)),
        ('url: "http://shop.example:8080/"', "http://shop.example:8080/", ports(8080)),
        ('url: "http://198.18.0.2/"', "http://198.18.0.1:80/", ports(80)),
        ('url: "https://shop.example/", vip: 198.18.0.9', "https://shop.example:443/",
         (Endpoint("198.18.0.9", 443),)),
        ('url: "https://198.18.0.9/", vip: 198.18.0.9', "https://198.18.0.9:443/",
         (Endpoint("198.18.0.9", 443),)),
        ('url: "https://[2001:0db8::9]/", vip: "2001:0db8::9", generator: oha',
         "https://[2001:0db8::9]:443/", (Endpoint("2001:0db8::9", 443),)),
        ('url: "https://[fd00::9]:8443/a", vip: "fd00::9", generator: oha',
         "https://[fd00::9]:8443/a", (Endpoint("fd00::9", 8443),)),
    ],
)  # fmt: skip
def test_connections_go_to_the_entry(
    tmp_path: Path, load: str, url: str, endpoints: tuple[Endpoint, ...]
) -> None:
    asking = build(tmp_path, load)
    assert (asking.url, (asking.endpoint, *asking.other_endpoints)) == (url, endpoints)
    check_names(target(tmp_path, load))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://[fd00::9::1]/", "url: fd00::9::1 is not a valid IP address"),
        ("https://[fd00::9]:99999/", "url: invalid port 99999"),
        ("https://[shop]/", "is not a site's URL"),
        ("https://fd00::9/", "is not a site's URL"),
    ],
)
def test_an_ipv6_address_in_a_url_is_in_brackets(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as refused:
        target(tmp_path, f'url: "{url}"')
    if "[" not in url:
        assert "brackets" in str(refused.value.hint)


@pytest.mark.parametrize("site", ["192.0.2.7", "198.18.0.3", "198.18.0.9"])
def test_an_address_of_somebody_else_is_refused(tmp_path: Path, site: str) -> None:
    with pytest.raises(TargetError, match=f"{site} is not an address of the entry tier") as refused:
        check_names(target(tmp_path, f'url: "http://{site}/"'))
    assert refused.value.hint == (
        f"use 198.18.0.1 or 198.18.0.2, or declare a shared address: `load: {{vip: {site}}}`"
    )


def test_a_request_with_everything(tmp_path: Path) -> None:
    load = (
        'url: "https://shop.example/cart", method: POST, body: "id=1", ca: ca.pem, http: 2, '
        'generator: oha, headers: {Accept: "*/*", Authorization: "Bearer ${TOKEN}"}'
    )
    asking = build(tmp_path, load, TOKEN="hush")
    assert asking == Request(
        *(Endpoint("198.18.0.1", 443), "/cart"),
        other_endpoints=(Endpoint("198.18.0.2", 443),),
        host="shop.example",
        method="POST",
        headers=(("Accept", "*/*"), ("Authorization", "Bearer hush"),
                 ("Content-Type", "application/x-www-form-urlencoded")),
        body="id=1",
        tls=TlsOptions(CERTIFICATE),
        http2=True,
    )  # fmt: skip
    with pytest.raises(TargetError, match="the environment variable TOKEN is not set") as refused:
        build(tmp_path, load)
    assert refused.value.hint == "run `export TOKEN=…` before autotune"


@pytest.mark.parametrize("token", ["hush\n", "hush\r\nX-Other: 1", "a\0b", "\udce4"])
def test_a_variable_adds_no_line_to_a_header(tmp_path: Path, token: str) -> None:
    load = 'headers: {Authorization: "Bearer ${TOKEN}"}'
    with pytest.raises(TargetError, match="the environment variable TOKEN contains") as refused:
        build(tmp_path, load, TOKEN=token)
    assert "hush" not in str(refused.value)
    assert refused.value.hint == "set TOKEN to text on one line"


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ('url: "https://shop.example", ca: nowhere.pem', "cannot read nowhere.pem"),
        ('url: "https://shop.example", ca: not-ca.pem', "not-ca.pem is not a certificate"),
    ],
)
def test_an_authority_that_is_none(tmp_path: Path, load: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        build(tmp_path, load)


def test_httperf_speaks_no_http_2(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"httperf supports only HTTP/1\.1") as refused:
        check_names(target(tmp_path, 'url: "https://shop.example", http: 2'))
    assert "oha" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("replaced", "load", "is_refused"),
    [
        ("198.18.0.2", "path: /", True),
        ("198.18.0.2", "generator: k6", False),
        ("198.18.0.2", "generator: oha", False),
        ("198.18.0.2", "vip: 198.18.0.9", False),
        ("198.18.0.9", "vip: 198.18.0.9", True),
        ("198.18.0.3", "path: /", False),  # behind the entry tier
    ],
)
def test_httperf_connects_to_no_ipv6_address(
    tmp_path: Path, replaced: str, load: str, is_refused: bool
) -> None:
    file = target(tmp_path, load)
    file.path.write_text(file.path.read_text().replace(replaced, "'fd00::1'"))
    if not is_refused:
        find_generator(read_target(file.path))
        return
    with pytest.raises(TargetError, match="cannot connect to the IPv6 address fd00::1") as refused:
        check_names(read_target(file.path))
    assert "generator: oha" in str(refused.value.hint)
