"""Build the request of a target, which is sent to the stack's own entries.

The name in a URL is used only in the Host header and in TLS. Connections go to the addresses of the
entry tier's hosts in the target, or to their ``vip``. No load goes to any other address to which
the name resolves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit, urlunsplit

from autotune import foreign_files
from autotune.config_text import is_utf8
from autotune.deploy.stack import Stack, find_entry_tiers
from autotune.errors import TargetError
from autotune.loads.base import ProcessLimits
from autotune.services.base import Endpoint, LoadTrait
from autotune.strict_parsing import is_ip_address
from autotune.target.expected_answer import ANY_2XX
from autotune.target.model import Load, Target
from autotune.target.path_hints import find_relative_hint
from autotune.target.read_target import TargetFile
from autotune.transports.request import DEFAULT_PORTS, Request, TlsOptions

MAX_CA_BYTES = 100_000  # limited, because certificates are passed as an argument on load hosts
FORM_HEADER = ("Content-Type", "application/x-www-form-urlencoded")
_VARIABLE_PATTERN = re.compile(r"\$\{(\w+)\}")


def build_request(
    target_file: TargetFile,
    stack: Stack,
    expected_body: bytes | None = None,
    variables: Mapping[str, str] | None = None,
) -> Request:
    """Return the request that a target's load sends to the stack. Raises TargetError for a missing
    certificate or variable.
    """
    load, url = target_file.target.load, urlsplit(target_file.target.load.url or "")
    entries = (stack.entry, *stack.other_entries)
    if load.vip:
        entries = (Endpoint(load.vip, stack.entry.port),)
    if url.hostname:
        is_installed = target_file.target.tiers[find_entry_tiers(target_file.target)[0]].installed
        port = url.port or (DEFAULT_PORTS[url.scheme] if is_installed else stack.entry.port)
        entries = tuple(Endpoint(entry.host, port) for entry in entries)
    first_entry, *further_entries = entries
    headers = _build_headers(target_file, os.environ if variables is None else variables)
    if load.body is not None and not any(name.lower() == "content-type" for name, _ in headers):
        headers = (*headers, FORM_HEADER)
    host_name = load.host or (
        None if url.hostname in list_load_addresses(target_file.target) else url.hostname
    )
    return Request(
        first_entry,
        urlunsplit(("", "", url.path or "/", url.query, "")) if load.url else load.path,
        expected_body,
        other_endpoints=tuple(further_entries),
        host=host_name,
        method=load.method,
        headers=headers,
        body=load.body,
        tls=TlsOptions(_read_ca(target_file), load.insecure) if url.scheme == "https" else None,
        http2=load.http == "2",
        statuses=load.expect.expected_statuses
        if load.expect and not load.has_request_file
        else ANY_2XX,
        expectations=None if load.has_request_file else load.expect,
        timeout=target_file.target.request_timeout,
    )


def find_traits(load: Load, limits: ProcessLimits) -> frozenset[LoadTrait]:
    """Return the traits of the load that affect parameters.

    ``limits`` are the limits of the load's generator.
    """
    traits = {
        LoadTrait.TLS: load.uses_tls,
        LoadTrait.TLS_REUSE: load.uses_tls and not limits.closes_connections,
        LoadTrait.CHURN: not limits.keeps_connections,
    }
    return frozenset(trait for trait, is_present in traits.items() if is_present)


def list_load_addresses(target: Target) -> tuple[str, ...]:
    """Return the addresses to which load may be sent: the addresses of the entry tier's hosts, or
    their shared address.
    """
    hosts = (target.hosts[host].address for host in target.tiers[find_entry_tiers(target)[0]].hosts)
    return (target.load.vip,) if target.load.vip else tuple(hosts)


def find_foreign_address(target_file: TargetFile) -> Iterator[TargetError]:
    """Yield an error if the URL's address does not belong to the entry tier."""
    host_name, allowed_addresses = (
        urlsplit(target_file.target.load.url or "").hostname or "",
        list_load_addresses(target_file.target),
    )
    host_addresses = {host.address for host in target_file.target.hosts.values()}
    if host_name in allowed_addresses or not (
        host_name in host_addresses or is_ip_address(host_name)
    ):
        return
    yield target_file.document.build_error(
        ["load", "url"],
        f"{host_name} is not an address of the entry tier, so autotune sends no load to it",
        hint=f"use {' or '.join(allowed_addresses)}, or declare a shared address:"
        f" `load: {{vip: {host_name}}}`",
    )


def find_request_errors(target_file: TargetFile) -> Iterator[TargetError]:
    """Yield an error if a variable in a header is not set, or if the file of certificates is
    unusable.
    """
    checks: tuple[Callable[[], object], ...] = (
        lambda: _build_headers(target_file, os.environ),
        lambda: _read_ca(target_file),
    )
    for check in checks:
        try:
            check()
        except TargetError as error:
            yield error


def _build_headers(
    target_file: TargetFile, variables: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    def expand_header(header_name: str, header_text: str) -> str:
        def read_variable(match: re.Match[str]) -> str:
            if match[1] not in variables:
                raise target_file.document.build_error(
                    ["load", "headers", header_name],
                    f"the environment variable {match[1]} is not set",
                    hint=f"run `export {match[1]}=…` before autotune",
                )
            if not _is_header_text(variables[match[1]]):
                raise target_file.document.build_error(
                    ["load", "headers", header_name],
                    f"the environment variable {match[1]} contains a line break, another control "
                    "character, or bytes that are not UTF-8",
                    hint=f"set {match[1]} to text on one line",
                )
            return variables[match[1]]

        return _VARIABLE_PATTERN.sub(read_variable, header_text)

    return tuple(
        (name, expand_header(name, text)) for name, text in target_file.target.load.headers.items()
    )


def _is_header_text(text: str) -> bool:
    """True if the value of a variable can be part of a header, which a line break would end."""
    return not re.search(r"[\x00-\x1f\x7f]", text) and is_utf8(text)


def _read_ca(target_file: TargetFile) -> str | None:
    """Return the certificates that the target trusts, in PEM format."""
    ca_file = target_file.target.load.ca
    if ca_file is None:
        return None
    try:
        certificates = foreign_files.read_named_file(
            target_file.directory / ca_file, foreign_files.MAX_RECORD_BYTES
        ).decode("ascii")
    except (OSError, ValueError) as error:
        reason = f"cannot read {ca_file}: {getattr(error, 'strerror', None) or 'not in PEM format'}"
        hint = find_relative_hint(ca_file, target_file.path.name)
        raise target_file.document.build_error(["load", "ca"], reason, hint=hint) from error
    if "-----BEGIN CERTIFICATE-----" not in certificates or len(certificates) > MAX_CA_BYTES:
        hint = "use a PEM file, which starts with -----BEGIN CERTIFICATE-----"
        raise target_file.document.build_error(
            ["load", "ca"], f"{ca_file} is not a certificate in PEM format", hint=hint
        )
    return certificates
