"""Send one HTTP request from a host, which may reach addresses that this machine cannot reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autotune.services.base import Argv
from autotune.strict_parsing import is_uint, parse_decimal, parse_uint
from autotune.target.model import DEFAULT_TIMEOUT_SECONDS
from autotune.transports.base import Transport
from autotune.transports.request import Request

_ESCAPE_TABLE = str.maketrans(
    {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
)
_MAX_BODY_BYTES = 1 << 20  # maximum number of body bytes that are checked


@dataclass(frozen=True)
class CurlAnswer:
    """An HTTP response. ``seconds`` is the time from the first packet to the last byte, measured on
    the host.

    ``body`` contains at most 1 MiB of a body of ``size`` bytes. ``location`` is the target of a redirect,
    or empty.
    """

    status: int
    body: bytes
    seconds: float
    size: int
    location: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


def describe_answer(answer: CurlAnswer | str) -> str:
    """Return the response's status, redirect and duration, or why the response is missing, as text."""
    if isinstance(answer, str):
        return answer
    location_text = f", Location: {answer.location}" if answer.location else ""
    return f"status {answer.status}{location_text}, {1000 * answer.seconds:.0f} ms"


def _list_options(request: Request) -> Iterator[tuple[str, str | None]]:
    """Yield curl's options (without dashes) and their values, except the URL and the options in
    ``list_secret_options``.
    """
    yield "header", "Connection: close"
    yield ("http2" if request.http2 else "http1.1"), None
    if request.method == "HEAD":
        yield "head", None
    elif request.method != "GET":
        yield "request", request.method
    if request.tls and request.tls.insecure:
        yield "insecure", None
    if request.host:
        yield "connect-to", f"{request.host}:{request.endpoint.port}:{request.endpoint}"


def build_arguments(request: Request) -> Argv:
    """Return the options of ``request`` as arguments."""
    command_words = [
        w for name, value in _list_options(request) for w in (f"--{name}", value) if w is not None
    ]
    return (*command_words, *(("--output", "/dev/null") if request.method == "HEAD" else ()))


def build_config_lines(request: Request) -> list[str]:
    """Return the options of ``request`` as lines of a curl configuration file."""
    return [
        name if value is None else format_option(name, value)
        for name, value in _list_options(request)
    ]


def list_secret_options(request: Request) -> list[tuple[str, str]]:
    """Return curl's options (without dashes) and their values for headers and body, which may contain
    secrets.
    """
    header_options = [("header", f"{name}: {value}") for name, value in request.headers]
    return header_options if request.body is None else [*header_options, ("data-raw", request.body)]


def format_option(name: str, value: str) -> str:
    """Return an option in the syntax of a curl configuration file (curl(1), `--config`)."""
    return f'{name} = "{value.translate(_ESCAPE_TABLE)}"'


def _format_config(options: Iterable[tuple[str, str]]) -> bytes:
    return "".join(f"{format_option(name, value)}\n" for name, value in options).encode()


def send_request(
    transport: Transport, request: Request | str, timeout: float | None = None
) -> CurlAnswer | str:
    """Return the response to one request (or to a GET of a URL), or the reason for the failure as
    text.

    Every call opens a new connection. ``timeout`` is in seconds, and defaults to the request's own
    timeout. Raises ``HostUnreachable`` if the host cannot be reached.
    """
    if timeout is None:
        timeout = DEFAULT_TIMEOUT_SECONDS if isinstance(request, str) else request.timeout
    url = request if isinstance(request, str) else request.url
    argv: Argv = (
        # `--disable` must be the first option. A .curlrc on the host could change the request.
        # Other accounts on the host can read the command line, but not standard input.
        "curl", "--disable", "--config", "-", "--silent", "--show-error", "--globoff", "--noproxy", "*",
        "--max-time", f"{timeout:g}",
        "--write-out", r"\n%{http_code} %{time_total} %{size_download} %{redirect_url}",
        *(() if isinstance(request, str) else build_arguments(request)), url,
    )  # fmt: skip
    if not isinstance(request, str):
        argv = request.with_trusted_ca(argv)
    curl_config = b"" if isinstance(request, str) else _format_config(list_secret_options(request))
    command_result = transport.run(argv, input=curl_config, timeout=timeout + 10.0)
    body, _, status_line = command_result.stdout.rpartition("\n")
    status_text, seconds, size_text, location = [*status_line.split(" ", 3), "", "", ""][:4]
    if not command_result.ok or not is_uint(status_text):
        return (
            command_result.stderr.strip() or f"curl exited with status {command_result.returncode}"
        )
    try:
        return CurlAnswer(
            int(status_text),
            body.encode()[:_MAX_BODY_BYTES],
            parse_decimal(seconds),
            parse_uint(size_text),
            location,
        )
    except ValueError as error:
        return f"unexpected output of curl: {error}"
