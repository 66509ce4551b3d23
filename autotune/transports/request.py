"""The HTTP request that load generators, readiness probes and response checks send to the stack."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.services.base import Argv, Endpoint
from autotune.target.expected_answer import ANY_2XX, Expect
from autotune.target.model import DEFAULT_TIMEOUT_SECONDS
from autotune.transports.temporary_files import temporary_file_script

DEFAULT_PORTS = {"http": 80, "https": 443}
SAFE_METHODS = frozenset({"GET", "HEAD"})  # methods that change no data (RFC 9110, section 9.2.1)
# Arguments: the certificates, then the command. OpenSSL, Go and Rust read trusted authorities from the
# file that SSL_CERT_FILE names.
_TRUST_CA_SCRIPT = f"""
{temporary_file_script("ca")}
printf '%s' "$1" >"$temporary"
shift
SSL_CERT_FILE=$temporary CURL_CA_BUNDLE=$temporary "$@"
"""


@dataclass(frozen=True)
class TlsOptions:
    """Options for TLS verification. ``ca`` (PEM text) replaces the host's trusted authorities;
    ``insecure`` skips verification.
    """

    ca: str | None = None
    insecure: bool = False


@dataclass(frozen=True)
class Request:
    """A request to the target's entries, with the body that a correct response contains.

    Connections go to ``endpoint`` and ``other_endpoints`` in equal shares. ``host`` is the site's
    name for the Host header, TLS and the certificate; it defaults to the address. Without
    ``expected_body``, a response is correct if its status is in ``statuses`` and the response meets
    ``expectations``. ``timeout`` is in seconds.
    """

    endpoint: Endpoint
    path: str
    expected_body: bytes | None = None
    other_endpoints: tuple[Endpoint, ...] = ()
    host: str | None = None
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    tls: TlsOptions | None = None
    http2: bool = False
    statuses: frozenset[int] = ANY_2XX
    expectations: Expect | None = None
    timeout: float = DEFAULT_TIMEOUT_SECONDS

    @property
    def status_classes(self) -> frozenset[str]:
        """Return the classes of the accepted statuses, such as ``2xx``."""
        return frozenset(f"{status // 100}xx" for status in self.statuses)

    @property
    def is_safe(self) -> bool:
        """True if the request changes no data, because of its method."""
        return self.method in SAFE_METHODS

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def url(self) -> str:
        """Return the URL with the site's name, as a browser shows it."""
        site = Endpoint(self.host or self.endpoint.host, self.endpoint.port)
        return f"{self.scheme}://{site}{self.path}"

    @property
    def url_by_address(self) -> str:
        return replace(self, host=None).url

    @property
    def authority(self) -> str | None:
        """Return the value of the Host header for requests to the entry's address, or ``None`` if the
        value is the host in the URL.
        """
        is_default_port = self.endpoint.port == DEFAULT_PORTS[self.scheme]
        return (
            self.host if is_default_port or not self.host else f"{self.host}:{self.endpoint.port}"
        )

    def per_endpoint(self) -> tuple[Request, ...]:
        """Return one request for each entry."""
        return tuple(
            replace(self, endpoint=endpoint, other_endpoints=())
            for endpoint in (self.endpoint, *self.other_endpoints)
        )

    def with_trusted_ca(self, argv: Argv) -> Argv:
        """Return a command that runs ``argv`` with the target's certificate authority instead of
        the host's trusted authorities.
        """
        if self.tls is None or self.tls.ca is None:
            return argv
        return ("sh", "-c", _TRUST_CA_SCRIPT, "sh", self.tls.ca, *argv)
