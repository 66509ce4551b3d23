"""Page of a shop: the worker waits for a remote service over a long network."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

SERVICE = "http://198.19.104.12:8081/price/1250"


def application(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    with urllib.request.urlopen(SERVICE, timeout=10) as answer:
        price = json.load(answer)["price"]
    body = f"price {price}\n".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
