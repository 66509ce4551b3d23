"""A TLS site on loopback, with a certificate from a private authority."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from autotune.loads.registry import LOAD_GENERATORS
from autotune.services.base import Endpoint
from autotune.transports.request import Request, TlsOptions
from tests.loads.servers import nginx
from tests.ports import free_port

NAME = "shop.example"
BODY = b"found 0100 of 0100\n"
CONFIG = """daemon off; master_process off; pid pid; error_log error.log;
events {{ worker_connections 2048; }}
http {{
  log_format asked '$request_method $scheme $http_host $server_protocol $request_uri "$http_x_visit"'
    ' "$request_body"';
  access_log access.log asked;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  ssl_certificate site.pem; ssl_certificate_key site.key;
  server {{
    listen 127.0.0.1:{port} ssl http2 backlog=4096;
    location / {{ return 200 "found 0100 of 0100\\n"; }}
    location /long/ {{ root .; }}
  }}
  server {{
    listen 127.0.0.1:{port} ssl http2; server_name elsewhere.example; return 301 https://shop.example/;
  }}
}}
"""


@dataclass(frozen=True)
class Site:
    """A site. ``directory`` contains the authority (`ca.pem`) and the requests (`access.log`).
    ``other`` is a second port for configurations that need it.
    """

    endpoint: Endpoint
    directory: Path
    process: subprocess.Popen[bytes]
    other: int

    @property
    def ca(self) -> str:
        return (self.directory / "ca.pem").read_text()

    def request(self, path: str = "/", **more: object) -> Request:
        fields: dict[str, object] = {"host": NAME, "tls": TlsOptions(self.ca), **more}
        return Request(self.endpoint, path, **fields)  # type: ignore[arg-type]

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to the server if it still exists."""
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def asked(self) -> list[str]:
        return (self.directory / "access.log").read_text().splitlines()

    def count_asked(self, part: str, at_least: int, seconds: float = 10.0) -> int:
        """Return how many logged requests contain ``part``. nginx logs a request after its response, so
        wait for ``at_least`` of them, for at most ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while (count := sum(part in line for line in self.asked())) < at_least:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return count


def each(generators: Iterable[str], *values: object) -> list[ParameterSet]:
    """Return test parameters: generators (with a mark if no distribution packages them), and values
    for all.
    """
    return [
        pytest.param(
            name, *values, marks=[pytest.mark.built] if LOAD_GENERATORS[name].package_source else []
        )
        for name in sorted(generators)
    ]


@contextmanager
def serving(directory: Path, config: str = CONFIG) -> Iterator[Site]:
    """Yield nginx with a certificate for ``NAME`` and 127.0.0.1."""
    _certify(directory)
    port = free_port()
    other = free_port()
    with nginx(directory, config.format(port=port, other=other)) as process:
        yield Site(Endpoint("127.0.0.1", port), directory, process, other)


def _certify(directory: Path) -> None:
    def openssl(*argv: str) -> None:
        subprocess.run(("openssl", *argv), cwd=directory, check=True, capture_output=True)

    (directory / "names").write_text(f"subjectAltName=DNS:{NAME},IP:127.0.0.1\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=private")
    openssl("req", *key, "-keyout", "site.key", "-out", "site.csr", "-subj", f"/CN={NAME}")
    openssl("x509", "-req", "-in", "site.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-extfile", "names", "-out", "site.pem")  # fmt: skip
