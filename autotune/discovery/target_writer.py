"""`autotune init --from`: write a target and templates for a running stack."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from autotune import config_text, durable_files
from autotune.deploy import adopted_files
from autotune.discovery import tier_adoption as adoption
from autotune.discovery.effective_values import read_effective_values
from autotune.discovery.host_reading import DiscoveredHost, read_host, read_versions
from autotune.discovery.tier_adoption import AdoptedTier
from autotune.discovery.tiers import (
    DiscoveredInstance,
    DiscoveredTier,
    find_instances,
    group_tiers,
    list_untuned_listeners,
)
from autotune.errors import AutotuneError, UsageError
from autotune.home_directory import expand_home
from autotune.masking import mask_secrets
from autotune.services.base import Endpoint, Value
from autotune.services.registry import SHIPPED
from autotune.space.dimension import Dimension
from autotune.strict_parsing import is_ip_address, split_lines
from autotune.target.field_types import NAME_PATTERN, URL_PATTERN
from autotune.transports import curl
from autotune.transports.base import SshHost, Transport
from autotune.transports.local import LocalTransport
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.request import DEFAULT_PORTS, Request, TlsOptions

# long, because this may be the first request since the site started
_FIRST_REQUEST_SECONDS = 10.0
_USUAL_PATHS = ("/index.php", "/")
_LOGIN_HINT = "use --from user@host[,user@host…]"
_LOGIN_PATTERN = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:]+)(?::(?P<port>[0-9]+))?"
)


@dataclass(frozen=True)
class AdoptionSummary:
    """The result of `init --from`: a summary of each tier, the number of parameters, and ``notes``
    about services, listeners and files that were not adopted.
    """

    target_file: Path
    templates_directory: Path
    tier_summaries: tuple[str, ...]
    parameter_count: int
    notes: tuple[str, ...]


def adopt_hosts(
    logins: Sequence[str],
    target_file: Path | None,
    ssh_config: Path | None,
    request_path: str | None,
) -> AdoptionSummary:
    """Read the hosts (``[user@]host[:port]``), then write ``target_file``, and templates next to the
    target file.

    No host is changed. Raises AutotuneError, HostUnreachable.
    """
    if not logins:
        raise UsageError("--from: missing host", hint=_LOGIN_HINT)
    stripped_logins = [login.strip() for login in logins]
    if duplicates := [login for login in stripped_logins if stripped_logins.count(login) > 1]:
        raise UsageError(f"--from: {duplicates[0]} is given twice", hint="name each host once")
    config = expand_home(str(ssh_config)) if ssh_config else None
    return write_target(_read_hosts(logins, config), target_file, config, request_path)


def write_target(
    hosts: Sequence[DiscoveredHost],
    target_file: Path | None,
    ssh_config: Path | None,
    request_path: str | None,
) -> AdoptionSummary:
    """Write the target file for discovered hosts, and templates made from the hosts' files.

    Without ``request_path``, the load requests the first of `/index.php` and `/` that returns a 2xx
    status. If the site redirects to another scheme or host, the load requests the new URL. Raises
    AutotuneError if there is nothing to tune, or if a file would be overwritten.
    """
    discovered_tiers, notes = _find_tiers(hosts)
    adopted_tiers = [adoption.adopt_tier(tier) for tier in discovered_tiers]
    target_name = target_file.stem if target_file else hosts[0].name
    if not re.match(NAME_PATTERN, target_name):
        raise UsageError(
            f"invalid target name {target_name!r}",
            hint="choose a name for --out that contains only letters, digits, _ and -",
        )
    target_file = target_file or Path("targets") / f"{target_name}.yaml"
    template_directory = target_file.parent / "templates" / target_name
    for location in (target_file, template_directory):
        if location.exists():
            raise UsageError(f"{location} already exists", hint="choose another file with --out")
    stack = AdoptedStack(
        name=target_name,
        hosts=hosts,
        tiers=adopted_tiers,
        load_request=_choose_request(
            discovered_tiers, [request_path] if request_path else _USUAL_PATHS
        ),
        templates_path=f"templates/{target_name}",
        ssh_config=str(ssh_config.resolve()) if ssh_config else None,
        notes=notes,
    )
    _write_files(stack, target_file, template_directory)
    parameters = sum(len(tier.baseline_values) for tier in adopted_tiers)
    return AdoptionSummary(
        target_file,
        template_directory,
        tuple(map(_summarize_tier, discovered_tiers)),
        parameters,
        tuple(notes),
    )


def _write_files(stack: AdoptedStack, target_file: Path, template_directory: Path) -> None:
    """Write the templates and the target file. After a failure, neither remains, so that the user can
    repeat the command.
    """
    template_directory.mkdir(parents=True)  # fails if another command has just created it
    try:
        _write_templates(stack.tiers, template_directory)
        durable_files.create_file(target_file, format_target(stack).encode())
    except BaseException:
        shutil.rmtree(template_directory, ignore_errors=True)
        raise


def _write_templates(tiers: Sequence[AdoptedTier], template_directory: Path) -> None:
    text_by_path = {
        adopted_files.ADOPTED_FILE: adopted_files.format_adopted_files(
            {
                k: adopted_config
                for tier in tiers
                for k, adopted_config in tier.adopted_configs.items()
            }
        )
    }
    for tier in tiers:
        adoption.check_templates(tier)
        text_by_path |= tier.templates
    for relative_path, text in text_by_path.items():
        template_path = template_directory / relative_path
        template_path.parent.mkdir(parents=True, exist_ok=True)
        template_path.write_bytes(config_text.encode(text))


def _find_tiers(hosts: Sequence[DiscoveredHost]) -> tuple[Sequence[DiscoveredTier], list[str]]:
    """Return the tiers, and a note for each service or listener that autotune does not tune."""
    results_by_host = [find_instances(host) for host in hosts]
    notes = [note for _, host_findings in results_by_host for note in host_findings]
    notes += list_untuned_listeners(
        zip(hosts, (instances for instances, _ in results_by_host), strict=True)
    )
    discovered_tiers = group_tiers(
        instance for host_findings, _ in results_by_host for instance in host_findings
    )
    if not discovered_tiers:
        idle_host_lines = [f"{host.name}: autotune found no service to tune" for host in hosts]
        titles = [program.title for program in SHIPPED.list_programs()]
        raise AutotuneError(
            "\n".join(notes or idle_host_lines),
            hint=f"autotune detects {', '.join(titles[:-1])} and {titles[-1]} if they run in "
            "Debian's units. Start them, or write a target with `autotune init`",
        )
    notes += [
        f"{host.name}: autotune found no service to tune, so the host belongs to no tier"
        for host, (instances, _) in zip(hosts, results_by_host, strict=True)
        if not instances
    ]
    if len(entry_tier_names := [tier.name for tier in _find_entry_tiers(discovered_tiers)]) > 1:
        notes.append(
            f"ambiguous entry tier: no file shows which tier forwards to "
            f"{' and '.join(entry_tier_names)}. "
            "Set `forwards_to:` or `uses:`"
        )
    unread_lines = (
        config_text.escape_non_utf8(f"{instance.host.name}: {path}: {reason}")
        for tier in discovered_tiers
        for instance in tier.instances
        for config in instance.configs.values()
        for path, reason in config.unread_files.items()
    )
    return discovered_tiers, [*notes, *dict.fromkeys(unread_lines)]


def _read_hosts(logins: Sequence[str], ssh_config: Path | None) -> list[DiscoveredHost]:
    """Read the hosts, and return them under unique names that are valid in the target."""
    if ssh_config and not ssh_config.is_file():
        problem = "is a directory" if ssh_config.is_dir() else "does not exist"
        raise UsageError(f"--ssh-config {ssh_config} {problem}", hint="name an ssh_config(5) file")
    # Import lazily, because the SSH libraries take a second to load.
    from autotune.transports.ssh import SshTransport

    ssh_hosts_by_name = {login.strip(): _parse_login(login, ssh_config) for login in logins}
    transports: dict[str, Transport] = {
        name: SshTransport(h) for name, h in ssh_hosts_by_name.items()
    }

    def discover_host(transport: Transport) -> DiscoveredHost:
        host = read_host(transport, ssh_hosts_by_name[transport.name])
        return read_effective_values(transport, read_versions(host, transport))

    try:
        hosts = run_on_all(transports.values(), discover_host).unwrap()
    finally:
        for transport in transports.values():
            transport.close()
    return _name_hosts(hosts.values())


def _name_hosts(hosts: Iterable[DiscoveredHost]) -> list[DiscoveredHost]:
    """Return the hosts with a number added to each name that another host already has."""
    named_hosts: dict[str, DiscoveredHost] = {}
    for host in hosts:
        names = chain([host.name], (f"{host.name}-{number}" for number in count(2)))
        name = next(name for name in names if name not in named_hosts)
        named_hosts[name] = replace(host, name=name)
    return [*named_hosts.values()]


def _parse_login(login: str, ssh_config: Path | None) -> SshHost:
    match = _LOGIN_PATTERN.fullmatch(login.strip())
    if match is None or "/" in login:
        address = login.strip().rpartition("@")[2]  # the message must not contain a password
        if ":" in address and is_ip_address(address):
            raise UsageError(
                f"--from: the IPv6 address {address} is not in brackets",
                hint=f"write it as '[{address}]', in quotes because of the shell",
            )
        raise UsageError(f"--from: {address!r} is not a host name or address", hint=_LOGIN_HINT)
    if ":" in (match["user"] or ""):
        raise UsageError(
            f"--from: the login for {match['address']} contains a password",
            hint="remove the password, and use an SSH key or agent",
        )
    try:
        return SshHost(
            name=login.strip(),
            address=match["address"].strip("[]"),
            user=match["user"],
            port=int(match["port"]) if match["port"] else None,
            config_file=str(ssh_config) if ssh_config else None,
        )
    except AutotuneError as error:
        raise UsageError(f"--from {error.message}", hint=_LOGIN_HINT) from error


@dataclass(frozen=True)
class LoadRequest:
    """The page that the load requests: the keys of `load:` in the target, and a remark about the page."""

    load_keys: str
    remark: str = ""


def _find_entry_tiers(discovered_tiers: Sequence[DiscoveredTier]) -> list[DiscoveredTier]:
    called_names = {name for tier in discovered_tiers for name in (tier.forwards_to, *tier.uses)}
    return [tier for tier in discovered_tiers if tier.name not in called_names] or list(
        discovered_tiers[:1]
    )


def _choose_request(
    discovered_tiers: Sequence[DiscoveredTier], paths: Sequence[str] = _USUAL_PATHS
) -> LoadRequest:
    """Return the request for the first of ``paths`` that returns a page, or else for the last of
    ``paths``. One redirect is followed.
    """
    entry_tier = _find_entry_tiers(discovered_tiers)[0]
    host, front_instance = entry_tier.instances[0].host.address, entry_tier.instances[0]
    if front_instance.tls:
        return _choose_tls_request(host, front_instance, paths)
    for path in paths:
        curl_answer = curl.send_request(
            LocalTransport(),
            f"http://{Endpoint(host, entry_tier.port)}{path}",
            _FIRST_REQUEST_SECONDS,
        )
        if isinstance(curl_answer, str):
            continue
        if curl_answer.ok:
            return LoadRequest(f"path: {quote_yaml(path)}")
        redirect_url = _parse_redirect(curl_answer.location)
        if redirect_url and (redirect_url.scheme, redirect_url.hostname) != ("http", host):
            return _request_redirect_target(host, redirect_url, "The site redirects to")
    return LoadRequest(f"path: {quote_yaml(paths[-1])}")


def _choose_tls_request(
    host: str, instance: DiscoveredInstance, paths: Sequence[str]
) -> LoadRequest:
    """Return the page for the load of a site that supports only HTTPS. The URL contains the host name
    from the site's files or, without a host name, the address.
    """
    port_suffix = "" if instance.port == DEFAULT_PORTS["https"] else f":{instance.port}"
    url_host = instance.hostname or (f"[{host}]" if ":" in host else host)
    site_url = urlsplit(f"https://{url_host}{port_suffix}")
    for path in paths:
        url = site_url._replace(path=path)
        curl_answer = curl.send_request(
            LocalTransport(), _build_request(host, url), _FIRST_REQUEST_SECONDS
        )
        if isinstance(curl_answer, str):
            continue
        if curl_answer.ok:
            break
        if redirect_url := _parse_redirect(curl_answer.location):
            return _request_redirect_target(host, redirect_url, "The site redirects to")
    return _describe_url(f"The site uses HTTPS only, at {url.geturl()}", host, url, curl_answer)


def _parse_redirect(location: str) -> SplitResult | None:
    """Return the URL of a redirect, or ``None`` if a target could not contain the URL."""
    if not re.fullmatch(URL_PATTERN, location):
        return None
    try:
        url = urlsplit(location)
        has_port = url.port != 0
    except ValueError:  # the port is too large, or the IPv6 address is invalid
        return None
    return url if has_port else None


def _request_redirect_target(host: str, url: SplitResult, description: str) -> LoadRequest:
    """Request the URL to which the site redirects, from the same host. Return the URL for the load."""
    answer = curl.send_request(LocalTransport(), _build_request(host, url), _FIRST_REQUEST_SECONDS)
    return _describe_url(f"{description} {url.geturl()}", host, url, answer)


def _describe_url(
    description: str, host: str, url: SplitResult, curl_answer: curl.CurlAnswer | str
) -> LoadRequest:
    """Return a URL for the load. The remark contains ``description`` and the result of the request."""
    if isinstance(curl_answer, str) and "subject name" in curl_answer:
        remark = (
            f"{description}, but its certificate is for another name: use that name in the URL."
        )
    elif isinstance(curl_answer, str) and "certificate" in curl_answer:
        remark = f"{description}, but this machine does not trust its certificate: add `ca: FILE`."
    elif isinstance(curl_answer, str) or not curl_answer.ok:
        error = curl_answer if isinstance(curl_answer, str) else f"status {curl_answer.status}"
        requested_endpoint = _build_request(host, url).endpoint
        remark = f"{description}, but the request to {requested_endpoint} failed: {split_lines(error)[0]}"
    else:
        remark = f"{description}."
    return LoadRequest(f"url: {quote_yaml(url.geturl())}", remark)


def _build_request(host: str, url: SplitResult) -> Request:
    endpoint = Endpoint(host, url.port or DEFAULT_PORTS[url.scheme])
    return Request(
        endpoint,
        url.path or "/",
        host=None if url.hostname == host.lower() else url.hostname,
        tls=TlsOptions() if url.scheme == "https" else None,
    )


def _summarize_tier(tier: DiscoveredTier) -> str:
    hosts = ", ".join(instance.host.name for instance in tier.instances)
    link_texts = [f"forwards to {tier.forwards_to}"] if tier.forwards_to else []
    link_texts += [f"uses {', '.join(tier.uses)}"] if tier.uses else []
    connection_text = f"; {', '.join(link_texts)}" if link_texts else ""
    return f"{tier.name}: {tier.deployment} on {hosts}, {tier.listen_location}{connection_text}"


# -- the text of the target file ------------------------------------------------------------------


@dataclass(frozen=True)
class AdoptedStack:
    """The data of the target file. ``notes`` are comments at the top of the file."""

    name: str
    hosts: Sequence[DiscoveredHost]
    tiers: Sequence[AdoptedTier]
    load_request: LoadRequest
    templates_path: str
    ssh_config: str | None = None
    notes: Sequence[str] = ()


def format_target(stack: AdoptedStack) -> str:
    """Return the target file as YAML with comments."""
    return (
        "\n".join(
            [
                *_format_header(stack),
                "",
                *_format_hosts(stack),
                "",
                *_format_tiers(stack),
                "",
                *_format_parameters(stack),
                "",
                *_format_load(stack),
            ]
        )
        + "\n"
    )


def _format_header(stack: AdoptedStack) -> Iterator[str]:
    yield format_comment(f"Adopted from {', '.join(host.address for host in stack.hosts)}.")
    yield (
        f"# Templates of the hosts' files are in {stack.templates_path}, with variables for "
        "tunable values."
    )
    yield "# With the baseline below, they reproduce the files byte for byte. Text that autotune does not"
    yield "# understand is replaced by placeholders and stays on its host."
    for note in stack.notes:
        yield format_comment(f"Not adopted: {note}")
    yield f"name: {stack.name}"
    yield ""
    yield "# The latency objective that must hold at higher throughput. Set it to what your users need."
    yield "slo: {p99: 50ms, errors: 0.1%}"


def _format_hosts(stack: AdoptedStack) -> Iterator[str]:
    yield "hosts:"
    tier_hosts = {i.host.name for tier in stack.tiers for i in tier.discovered_tier.instances}
    for host in stack.hosts:
        if host.name not in tier_hosts:
            continue
        size_text = f"{host.facts.cpus:g} CPUs, {host.facts.memory // 2**20} MB"
        host_keys = {"address": quote_yaml(host.address)}
        if host.user:
            host_keys["user"] = quote_yaml(host.user)
        if host.port:
            host_keys["port"] = str(host.port)
        yield f"  {format_comment(', '.join([size_text, *host.versions]))}"
        yield f"  {host.name}: {_format_mapping(host_keys)}"
    if stack.ssh_config:
        yield ""
        yield f"ssh: {_format_mapping({'config': quote_yaml(stack.ssh_config)})}"


def _format_tiers(stack: AdoptedStack) -> Iterator[str]:
    yield "tiers:"
    for tier in stack.tiers:
        discovery = tier.discovered_tier
        for used_tier in discovery.assumed_uses:
            yield f"  # Assumed: {discovery.name} uses {used_tier}. No file of {discovery.name} names it."
        for data_loss in dict.fromkeys(
            adopted_config.loses
            for adopted_config in tier.adopted_configs.values()
            if adopted_config.loses
        ):
            yield f"  # Not restarted because {data_loss}. `allow_data_loss: true` allows a restart."
        yield f"  {discovery.name}:"
        yield f"    hosts: [{', '.join(instance.host.name for instance in discovery.instances)}]"
        yield f"    service: {discovery.deployment}"
        yield f"    port: {discovery.port}"
        if discovery.forwards_to:
            yield f"    forwards_to: {discovery.forwards_to}"
        if discovery.uses:
            yield f"    uses: [{', '.join(discovery.uses)}]"
        yield f"    templates: {quote_yaml(stack.templates_path)}"


def _format_parameters(stack: AdoptedStack) -> Iterator[str]:
    yield "# Each `default` is the value in the files, or the software's default if the files set none."
    yield "# Kernel settings are tuned too, starting from the hosts' values. `{drop: true}` excludes a"
    yield "# parameter. `autotune params` lists the whole catalogue."
    yield "parameters:"
    for tier in stack.tiers:
        skipped_names: dict[str, list[str]] = {}
        fixed_values = _select_fixed_values(tier)
        for dimension in tier.dimensions:
            parameter_key = adoption.format_key(dimension)
            if dimension.expression is not None:
                continue
            if parameter_key in tier.baseline_values:
                is_fixed = (
                    dimension.name in fixed_values
                    or dimension.find_unmet_condition(fixed_values) is not None
                )
                value = tier.baseline_values[parameter_key]
                yield _format_parameter(dimension, value, is_fixed=is_fixed)
            if parameter_key in tier.skipped:
                skipped_names.setdefault(tier.skipped[parameter_key], []).append(dimension.name)
        for reason, dropped_names in skipped_names.items():
            yield f"  {format_comment(f'Not tuned ({reason}):')}"
            yield from (f"  {name}: {{drop: true}}" for name in dropped_names)


def _select_fixed_values(tier: AdoptedTier) -> dict[str, tuple[Value]]:
    """Return the only value of each parameter that is tuned only on demand."""
    return {
        dimension.name: (tier.baseline_values[parameter_key],)
        for dimension in tier.dimensions
        if (parameter_key := adoption.format_key(dimension)) in tier.baseline_values
        and dimension.parameter.on_demand
    }


def _format_parameter(dimension: Dimension, value: Value, *, is_fixed: bool) -> str:
    default = {"default": format_scalar(value)}
    if is_fixed:
        keys, default = {"fixed": format_scalar(value)}, {}
    elif dimension.choices:
        keys = {"choices": f"[{', '.join(map(format_scalar, dimension.choices))}]"}
    else:
        assert isinstance(value, int | float)
        low, high = dimension.bounds
        keys = {"range": f"[{format_scalar(min(low, value))}, {format_scalar(max(high, value))}]"}
    unit = dimension.parameter.unit
    unit_text = f" ({unit})" if unit else ""
    line = f"  {dimension.name}: {_format_mapping({**keys, **default})}"
    return f"  # {dimension.parameter.meaning}{unit_text}\n{line}"


def _format_load(stack: AdoptedStack) -> Iterator[str]:
    yield "# Load comes from this machine unless `hosts:` lists other hosts, and goes only to the"
    yield "# entry tier. `path` is requested by address, without a host name. Load never exceeds"
    yield "# max_rate. Each response is compared with responses from before the first trial."
    yield "# `expect: {body: TEXT}` sets text that every correct response contains."
    yield "# `today: RATE` sets the current rate of your users: the proof measures latency at this rate."
    if stack.load_request.remark:
        yield format_comment(stack.load_request.remark)
    yield f"load: {{generator: httperf, {stack.load_request.load_keys}, max_rate: 5000/s}}"
    yield "budget: {trials: 40, time: 45m}"


def _format_mapping(texts_by_key: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in texts_by_key.items()) + "}"


def format_comment(text: str) -> str:
    """Return one comment line, without secrets or control characters."""
    return "# " + "".join(c for c in " ".join(mask_secrets(text).split()) if c.isprintable())


def format_scalar(value: Value) -> str:
    """Return a value as YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return quote_yaml(value) if isinstance(value, str) else f"{value}"


def quote_yaml(word: str) -> str:
    """Return text as YAML, in quotes unless it is a plain word."""
    plain_text = word.replace("_", "a").replace("-", "a").replace("+", "a")
    is_special_word = word.lower() in ("on", "off", "yes", "no", "true", "false", "null", "y", "n")
    if plain_text.isalnum() and word[0].isalpha() and not is_special_word:
        return word
    return json.dumps(word, ensure_ascii=False)
