"""URLs of requests to a target's entries."""

from __future__ import annotations

import pytest

from autotune.services.base import Endpoint
from autotune.transports.request import Request, TlsOptions


@pytest.mark.parametrize(
    ("request_", "url"),
    [
        (Request(Endpoint("10.0.0.1", 80), "/a"), "http://10.0.0.1:80/a"),
        (Request(Endpoint("fd00::1", 8080), "/a"), "http://[fd00::1]:8080/a"),
        (Request(Endpoint("fd00::1", 80), "/", host="shop"), "http://shop:80/"),
        (Request(Endpoint("::1", 443), "/", tls=TlsOptions()), "https://[::1]:443/"),
    ],
)
def test_the_address_in_a_url(request_: Request, url: str) -> None:
    assert request_.url == url
    assert request_.url_by_address == f"{request_.scheme}://{request_.endpoint}{request_.path}"
