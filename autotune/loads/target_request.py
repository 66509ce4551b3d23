"""The request that a target describes, sent to the stack's own entries.

The name in a URL is used only in the Host header and in TLS. Connections go to the hosts of the entry
tier by the addresses that the target has of them, or to the address it names as their ``vip``.
Whatever else the name resolves to, load never goes there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit, urlunsplit

from autotune import foreign_files
from autotune.deploy.stack import Stack, entry_tiers
from autotune.errors import TargetError
from autotune.services.base import Endpoint, Trait
from autotune.strict_parsing import is_ip_address
from autotune.target.expected_answer import ANY_2XX
from autotune.target.model import Load, Target
from autotune.target.read_target import TargetFile
from autotune.transports.request import DEFAULT_PORTS, Request, TlsOptions

MAX_CA_BYTES = 100_000  # bytes; it goes to load hosts as an argument
FORM_HEADER = ("Content-Type", "application/x-www-form-urlencoded")
_VARIABLE_PATTERN = re.compile(r"\$\{(\w+)\}")


def build_request(
    file: TargetFile,
    stack: Stack,
    expected_body: bytes | None = None,
    variables: Mapping[str, str] | None = None,
) -> Request:
    """What is asked of the stack. Raises TargetError for a certificate or variable that is not there."""
    load, url = file.target.load, urlsplit(file.target.load.url or "")
    entries = (stack.entry, *stack.other_entries)
    if load.vip:
        entries = (Endpoint(load.vip, stack.entry.port),)
    if url.hostname:
        installed = file.target.tiers[entry_tiers(file.target)[0]].installed
        port = url.port or (DEFAULT_PORTS[url.scheme] if installed else stack.entry.port)
        entries = tuple(Endpoint(entry.host, port) for entry in entries)
    first, *others = entries
    headers = _build_headers(file, os.environ if variables is None else variables)
    if load.body is not None and not any(name.lower() == "content-type" for name, _ in headers):
        headers = (*headers, FORM_HEADER)
    named = load.host or (
        None if url.hostname in list_load_addresses(file.target) else url.hostname
    )
    return Request(
        first,
        urlunsplit(("", "", url.path or "/", url.query, "")) if load.url else load.path,
        expected_body,
        other_endpoints=tuple(others),
        host=named,
        method=load.method,
        headers=headers,
        body=load.body,
        tls=TlsOptions(_read_ca(file), load.insecure) if url.scheme == "https" else None,
        http2=load.http == "2",
        statuses=load.expect.expected_statuses
        if load.expect and not load.has_request_file
        else ANY_2XX,
        expectations=None if load.has_request_file else load.expect,
        timeout=load.timeout,
    )


def find_traits(load: Load, *, kept: bool) -> frozenset[Trait]:
    """What the load has that makes parameters decide. ``kept``: its connections stay open."""
    present = {Trait.TLS: load.uses_tls, Trait.CHURN: not kept}
    return frozenset(trait for trait, has in present.items() if has)


def list_load_addresses(target: Target) -> tuple[str, ...]:
    """Where load may go: the hosts of the entry tier, or the address they share."""
    hosts = (target.hosts[host].address for host in target.tiers[entry_tiers(target)[0]].hosts)
    return (target.load.vip,) if target.load.vip else tuple(hosts)


def find_foreign_address(file: TargetFile) -> Iterator[TargetError]:
    """An error if the URL's address is not one of the entry tier's: load cannot go there."""
    site, allowed = (
        urlsplit(file.target.load.url or "").hostname or "",
        list_load_addresses(file.target),
    )
    others = {host.address for host in file.target.hosts.values()}
    if site in allowed or not (site in others or is_ip_address(site)):
        return
    yield file.document.build_error(
        ["load", "url"],
        f"{site} is not where requests enter, and load goes nowhere else",
        hint=f"that is {' and '.join(allowed)}; an address that they share is `load: {{vip: {site}}}`",
    )


def _build_headers(file: TargetFile, variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    def value(name: str, text: str) -> str:
        def variable(match: re.Match[str]) -> str:
            if match[1] not in variables:
                where, hint = ["load", "headers", name], f"export {match[1]}=…"
                raise file.document.build_error(
                    where, f"there is no variable {match[1]}", hint=hint
                )
            return variables[match[1]]

        return _VARIABLE_PATTERN.sub(variable, text)

    return tuple((name, value(name, text)) for name, text in file.target.load.headers.items())


def _read_ca(file: TargetFile) -> str | None:
    """The certificates that the target trusts, as PEM."""
    name = file.target.load.ca
    if name is None:
        return None
    try:
        text = foreign_files.read_named_file(
            file.path.resolve().parent / name, foreign_files.MAX_RECORD_BYTES
        ).decode("ascii")
    except (OSError, ValueError) as error:
        reason = f"{name} cannot be read: {getattr(error, 'strerror', None) or 'not PEM'}"
        raise file.document.build_error(["load", "ca"], reason) from error
    if "-----BEGIN CERTIFICATE-----" not in text or len(text) > MAX_CA_BYTES:
        hint = "PEM: it begins with -----BEGIN CERTIFICATE-----"
        raise file.document.build_error(["load", "ca"], f"{name} is no certificate", hint=hint)
    return text
