"""A request to the stack: the same for load generators, the readiness probe and the checks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.services.base import Argv, Endpoint
from autotune.target.expect import ANY_2XX, Expect
from autotune.transports.temporary import temporary

DEFAULT_PORTS = {"http": 80, "https": 443}
# Words are arguments: the certificates, then what to run. Programs of OpenSSL, Go and Rust alike
# take the authorities they trust from the file that this variable names.
_WITH_CA = f"""
{temporary("ca")}
printf '%s' "$1" >"$temporary"
shift
SSL_CERT_FILE=$temporary CURL_CA_BUNDLE=$temporary "$@"
"""


@dataclass(frozen=True)
class Tls:
    """How the certificate is checked: against ``ca`` (PEM text) in place of the authorities that
    the host trusts, or with ``insecure`` not at all."""

    ca: str | None = None
    insecure: bool = False


@dataclass(frozen=True)
class Request:
    """What is asked, always of the target's own entries, and the body that proves the job was done.

    Connections go to ``endpoint``, and to ``others`` in equal shares. ``host`` is the site's name,
    for the Host header, TLS and the certificate; without it that is the address. Without ``expect``
    any answer with one of the right ``statuses`` is right that has what ``checks`` say.
    """

    endpoint: Endpoint
    path: str
    expect: bytes | None = None
    others: tuple[Endpoint, ...] = ()
    host: str | None = None
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    tls: Tls | None = None
    http2: bool = False
    statuses: frozenset[int] = ANY_2XX
    checks: Expect | None = None

    @property
    def classes(self) -> frozenset[str]:
        """The classes of the right statuses, such as ``2xx``."""
        return frozenset(f"{status // 100}xx" for status in self.statuses)

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def url(self) -> str:
        """As a browser would have it: with the site's name."""
        name = self.host or self.endpoint.host
        return f"{self.scheme}://{name}:{self.endpoint.port}{self.path}"

    @property
    def url_by_address(self) -> str:
        return replace(self, host=None).url

    @property
    def authority(self) -> str | None:
        """The Host header to send where a URL has the address; ``None``: as in the URL."""
        usual = self.endpoint.port == DEFAULT_PORTS[self.scheme]
        return self.host if usual or not self.host else f"{self.host}:{self.endpoint.port}"

    @property
    def plain(self) -> bool:
        """Whether a GET of a path on an address is all there is to it."""
        return replace(self, expect=None, checks=None, others=()) == Request(
            self.endpoint, self.path
        )

    def each(self) -> tuple[Request, ...]:
        """One for each entry."""
        return tuple(
            replace(self, endpoint=endpoint, others=())
            for endpoint in (self.endpoint, *self.others)
        )

    def trusting(self, argv: Argv) -> Argv:
        """``argv`` with the target's own authority in place of those that the host trusts."""
        if self.tls is None or self.tls.ca is None:
            return argv
        return ("sh", "-c", _WITH_CA, "sh", self.tls.ca, *argv)
