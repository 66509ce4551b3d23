"""`autotune init --from`: a running stack made into a target with its own templates."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from autotune import config_text
from autotune.deploy import manifest
from autotune.discovery import adoption
from autotune.discovery.adoption import AdoptedTier
from autotune.discovery.host_reading import DiscoveredHost, read_host, with_versions
from autotune.discovery.tiers import DiscoveredTier, Instance, instances, listening, tiers
from autotune.errors import AutotuneError
from autotune.masking import masked
from autotune.services.base import Endpoint, Value
from autotune.services.registry import programs
from autotune.space.dimension import Dimension
from autotune.strict import split_lines
from autotune.target.fields import NAME
from autotune.transports import curl
from autotune.transports.base import SshHost, Transport
from autotune.transports.local import LocalTransport
from autotune.transports.parallel import run_on_all
from autotune.transports.request import DEFAULT_PORTS, Request, Tls

_FIRST_PAGE = 10.0  # seconds: this may be the first request since the site started
_LOGIN = re.compile(r"(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:]+)(?::(?P<port>[0-9]+))?")


@dataclass(frozen=True)
class Written:
    """``tiers`` as text, the number of ``parameters``, and ``notes`` on everything not adopted."""

    target: Path
    templates: Path
    tiers: tuple[str, ...]
    parameters: int
    notes: tuple[str, ...]


def adopt(
    logins: Sequence[str], out: Path | None, ssh_config: Path | None, path: str | None
) -> Written:
    """Read the hosts (``[user@]host[:port]``), write ``out`` and the templates next to it.

    No host is changed. Raises AutotuneError, HostUnreachable.
    """
    if not logins:
        raise AutotuneError("--from: missing host", hint="use --from user@host[,user@host…]")
    return write(_hosts(logins, ssh_config), out, ssh_config, path)


def write(
    hosts: Sequence[DiscoveredHost], out: Path | None, ssh_config: Path | None, path: str | None
) -> Written:
    """Write the target file of hosts that were read, and the templates made of their files.

    Without ``path``, load goes to the first of `/index.php` and `/` that answers with a 2xx, or to the
    URL of a redirect. Raises AutotuneError if there is nothing to tune or a file would be overwritten.
    """
    discovered, notes = _tiers(hosts)
    adopted = [adoption.adopt(tier) for tier in discovered]
    name = out.stem if out else hosts[0].name
    if not re.match(NAME, name):
        hint = "use --out with letters, digits, _ and -"
        raise AutotuneError(f"invalid target name {name!r}", hint=hint)
    out = out or Path("targets") / f"{name}.yaml"
    templates = out.parent / "templates" / name
    for place in (out, templates):
        if place.exists():
            raise AutotuneError(f"{place} already exists", hint="choose another file with --out")
    stack = Stack(
        name=name,
        hosts=hosts,
        tiers=adopted,
        asked=Asked(f"path: {quoted(path)}") if path else _asked(discovered),
        templates=f"templates/{name}",
        ssh_config=str(ssh_config.expanduser().resolve()) if ssh_config else None,
        notes=notes,
    )
    _write_templates(adopted, templates)
    out.write_text(target_text(stack), encoding="utf-8")
    parameters = sum(len(tier.values) for tier in adopted)
    return Written(out, templates, tuple(map(_summary, discovered)), parameters, tuple(notes))


def _write_templates(tiers: Sequence[AdoptedTier], templates: Path) -> None:
    texts = {
        manifest.NAME: manifest.text({k: own for tier in tiers for k, own in tier.own.items()})
    }
    for tier in tiers:
        adoption.check(tier)
        texts |= tier.templates
    for relative, text in texts.items():
        place = templates / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(config_text.encode(text))


def _tiers(hosts: Sequence[DiscoveredHost]) -> tuple[Sequence[DiscoveredTier], list[str]]:
    """Return the tiers, and a note for each thing that autotune does not tune."""
    per_host = [instances(host) for host in hosts]
    notes = [note for _, of_host in per_host for note in of_host]
    notes += listening(zip(hosts, (deployed for deployed, _ in per_host), strict=True))
    discovered = tiers(instance for of_host, _ in per_host for instance in of_host)
    if not discovered:
        idle = [f"{host.name}: autotune found no service to tune" for host in hosts]
        *others, last = [adoption.known_as for adoption in programs()]
        raise AutotuneError(
            "\n".join(notes or idle),
            hint=f"autotune finds {', '.join(others)} and {last} in Debian's units. Start them, or"
            " write a target with `autotune init`",
        )
    notes += [
        f"{host.name}: autotune found no service to tune, so the host is in no tier"
        for host, (deployed, _) in zip(hosts, per_host, strict=True) if not deployed
    ]  # fmt: skip
    if len(entries := [tier.name for tier in _entries(discovered)]) > 1:
        notes.append(
            f"ambiguous entry tier: no file shows what forwards to {' and '.join(entries)}. "
            "Set `forwards_to:` or `uses:`"
        )
    unread = (
        config_text.readable(f"{instance.host.name}: {path}: {why}")
        for tier in discovered
        for instance in tier.instances
        for config in instance.configs.values()
        for path, why in config.unread.items()
    )
    return discovered, [*notes, *dict.fromkeys(unread)]


def _hosts(logins: Sequence[str], ssh_config: Path | None) -> list[DiscoveredHost]:
    """Return the hosts that were read, under unique names that are valid in the target."""
    if ssh_config and not ssh_config.expanduser().exists():
        raise AutotuneError(
            f"{ssh_config} does not exist", hint="--ssh-config expects an ssh_config(5) file"
        )
    # The SSH libraries take a second to load.
    from autotune.transports.ssh import SshTransport

    by_name = {login.strip(): _login(login, ssh_config) for login in logins}
    transports: dict[str, Transport] = {name: SshTransport(h) for name, h in by_name.items()}

    def described(transport: Transport) -> DiscoveredHost:
        return with_versions(read_host(transport, by_name[transport.name]), transport)

    try:
        hosts = run_on_all(transports.values(), described).unwrap()
    finally:
        for transport in transports.values():
            transport.close()
    times = Counter[str]()
    named = []
    for host in hosts.values():
        times[host.name] += 1
        number = times[host.name]
        named.append(host if number == 1 else replace(host, name=f"{host.name}-{number}"))
    return named


def _login(login: str, ssh_config: Path | None) -> SshHost:
    match = _LOGIN.fullmatch(login.strip())
    if match is None:
        raise AutotuneError(f"{login!r} is not a host", hint="use --from user@host[,user@host…]")
    return SshHost(
        name=login.strip(),
        address=match["address"].strip("[]"),
        user=match["user"],
        port=int(match["port"]) if match["port"] else None,
        config=str(ssh_config.expanduser()) if ssh_config else None,
    )


@dataclass(frozen=True)
class Asked:
    """The page that load requests, as text for the target file, and a remark on it."""

    text: str
    remark: str = ""


def _entries(discovered: Sequence[DiscoveredTier]) -> list[DiscoveredTier]:
    behind = {name for tier in discovered for name in (tier.forwards_to, *tier.uses)}
    return [tier for tier in discovered if tier.name not in behind] or list(discovered[:1])


def _asked(discovered: Sequence[DiscoveredTier]) -> Asked:
    """Return the first page that answers: `/index.php`, then `/`. Follows one redirect."""
    entry = _entries(discovered)[0]
    host, front = entry.instances[0].host.address, entry.instances[0]
    if front.tls:
        return _over_tls(host, front)
    for path in ("/index.php", "/"):
        answer = curl.answer(LocalTransport(), f"http://{host}:{entry.port}{path}", _FIRST_PAGE)
        if isinstance(answer, str):
            continue
        if answer.ok:
            return Asked(f"path: {quoted(path)}")
        url = urlsplit(answer.location)
        if url.hostname and (url.scheme, url.hostname) != ("http", host):
            return _by_url(host, url, "The site redirects to")
    return Asked(f"path: {quoted('/')}")


def _over_tls(host: str, front: Instance) -> Asked:
    """Return the page of a site with HTTPS alone, by the name in its files or by its address."""
    port = "" if front.port == DEFAULT_PORTS["https"] else f":{front.port}"
    name = front.site or (f"[{host}]" if ":" in host else host)
    site = urlsplit(f"https://{name}{port}")
    for path in ("/index.php", "/"):
        url = site._replace(path=path)
        answer = curl.answer(LocalTransport(), _request(host, url), _FIRST_PAGE)
        if isinstance(answer, str):
            continue
        if answer.ok:
            break
        if urlsplit(answer.location).hostname:
            return _by_url(host, urlsplit(answer.location), "The site redirects to")
    return _described(f"The site uses HTTPS only, at {url.geturl()}", host, url, answer)


def _by_url(host: str, url: SplitResult, site: str) -> Asked:
    """Return the URL to which the site redirects, requested from the same host."""
    answer = curl.answer(LocalTransport(), _request(host, url), _FIRST_PAGE)
    return _described(f"{site} {url.geturl()}", host, url, answer)


def _described(site: str, host: str, url: SplitResult, answer: curl.Answer | str) -> Asked:
    """Return a URL with a remark: ``site``, then the result of the request."""
    if isinstance(answer, str) and "subject name" in answer:
        remark = f"{site}, but its certificate is for another name: use that name in the URL."
    elif isinstance(answer, str) and "certificate" in answer:
        remark = f"{site}, but this machine does not trust its certificate: add `ca: FILE`."
    elif isinstance(answer, str) or not answer.ok:
        reply = answer if isinstance(answer, str) else f"status {answer.status}"
        asked = _request(host, url).endpoint
        remark = f"{site}, but the request to {asked} failed: {split_lines(reply)[0]}"
    else:
        remark = f"{site}."
    return Asked(f"url: {quoted(url.geturl())}", remark)


def _request(host: str, url: SplitResult) -> Request:
    endpoint = Endpoint(host, url.port or DEFAULT_PORTS[url.scheme])
    return Request(endpoint, url.path or "/", host=url.hostname,
                   tls=Tls() if url.scheme == "https" else None)  # fmt: skip


def _summary(tier: DiscoveredTier) -> str:
    hosts = ", ".join(instance.host.name for instance in tier.instances)
    onward = [f"forwards to {tier.forwards_to}"] if tier.forwards_to else []
    onward += [f"uses {', '.join(tier.uses)}"] if tier.uses else []
    behind = f"; {', '.join(onward)}" if onward else ""
    return f"{tier.name}: {tier.deployment} on {hosts}, {tier.place}{behind}"


# -- the text of the target file ------------------------------------------------------------------


@dataclass(frozen=True)
class Stack:
    """The content of the target file; ``notes`` are at its top."""

    name: str
    hosts: Sequence[DiscoveredHost]
    tiers: Sequence[AdoptedTier]
    asked: Asked
    templates: str
    ssh_config: str | None = None
    notes: Sequence[str] = ()


def target_text(stack: Stack) -> str:
    """Return the target file as YAML with comments."""
    return "\n".join([*_top(stack), "", *_host_lines(stack), "", *_tier_lines(stack), "",
                      *_parameters(stack), "", *_load(stack)]) + "\n"  # fmt: skip


def _top(stack: Stack) -> Iterator[str]:
    yield comment(f"Adopted from {', '.join(host.address for host in stack.hosts)}.")
    yield f"# Templates of the hosts' files are in {stack.templates}, with variables for tunable values."
    yield "# With the baseline below, they reproduce the files byte for byte. Text that autotune does not"
    yield "# understand is replaced by placeholders and stays on its host."
    for note in stack.notes:
        yield comment(f"Not adopted: {note}")
    yield f"name: {stack.name}"
    yield ""
    yield "# The objective that must hold while the throughput rises. Set it to what your users need."
    yield "slo: {p99: 50ms, errors: 0.1%}"


def _host_lines(stack: Stack) -> Iterator[str]:
    yield "hosts:"
    for host in stack.hosts:
        size = f"{host.facts.cpus:g} CPUs, {host.facts.memory // 2**20} MB"
        keys = {"address": quoted(host.address)}
        if host.user:
            keys["user"] = quoted(host.user)
        if host.port:
            keys["port"] = str(host.port)
        yield f"  {comment(', '.join([size, *host.versions]))}"
        yield f"  {host.name}: {_flow(keys)}"
    if stack.ssh_config:
        yield ""
        yield f"ssh: {_flow({'config': quoted(stack.ssh_config)})}"


def _tier_lines(stack: Stack) -> Iterator[str]:
    yield "tiers:"
    for tier in stack.tiers:
        discovered = tier.discovered
        for other in discovered.assumed:
            yield f"  # Assumed: {discovered.name} uses {other}. No file of {discovered.name} names it."
        for loses in dict.fromkeys(own.loses for own in tier.own.values() if own.loses):
            yield f"  # Not restarted because {loses}. `allow_data_loss: true` allows a restart."
        yield f"  {discovered.name}:"
        yield f"    hosts: [{', '.join(instance.host.name for instance in discovered.instances)}]"
        yield f"    service: {discovered.deployment}"
        yield f"    port: {discovered.port}"
        if discovered.forwards_to:
            yield f"    forwards_to: {discovered.forwards_to}"
        if discovered.uses:
            yield f"    uses: [{', '.join(discovered.uses)}]"
        yield f"    templates: {quoted(stack.templates)}"


def _parameters(stack: Stack) -> Iterator[str]:
    yield "# Each `default` is the value in the files, or the software's default if the files set none."
    yield "# Kernel settings are tuned too, starting from the hosts' values. `{drop: true}` excludes a"
    yield "# parameter. `autotune params` lists the whole catalogue."
    yield "parameters:"
    for tier in stack.tiers:
        left: dict[str, list[str]] = {}
        for dimension in tier.dimensions:
            key = adoption.key_of(dimension)
            if dimension.derived is not None:
                continue
            if key in tier.values:
                yield _tuned(dimension, tier.values[key])
            if key in tier.left:
                left.setdefault(tier.left[key], []).append(dimension.name)
        for why, names in left.items():
            yield f"  {comment(f'Not tuned ({why}):')}"
            yield from (f"  {name}: {{drop: true}}" for name in names)


def _tuned(dimension: Dimension, value: Value) -> str:
    default = {"default": scalar(value)}
    if dimension.parameter.on_demand:
        keys, default = {"fixed": scalar(value)}, {}
    elif dimension.choices:
        keys = {"choices": f"[{', '.join(map(scalar, dimension.choices))}]"}
    else:
        assert isinstance(value, int | float)
        low, high = dimension.bounds
        keys = {"range": f"[{scalar(min(low, value))}, {scalar(max(high, value))}]"}
    unit = dimension.parameter.unit
    counted = f" ({unit})" if unit else ""
    line = f"  {dimension.name}: {_flow({**keys, **default})}"
    return f"  # {dimension.parameter.meaning}{counted}\n{line}"


def _load(stack: Stack) -> Iterator[str]:
    yield "# Load comes from this machine unless `hosts:` names others, and goes only to the first tier."
    yield "# `path` is requested by address, without a host name. Load never exceeds max_rate. Each"
    yield "# answer is compared with the answers before the first trial. `expect: {body: TEXT}` sets text"
    yield "# that every correct answer contains."
    if stack.asked.remark:
        yield comment(stack.asked.remark)
    yield f"load: {{generator: httperf, {stack.asked.text}, max_rate: 5000/s}}"
    yield "budget: {trials: 40, time: 45m}"


def _flow(keys: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def comment(text: str) -> str:
    """Return one comment line, without secrets and without control characters."""
    return "# " + "".join(c for c in " ".join(masked(text).split()) if c.isprintable())


def scalar(value: Value) -> str:
    """Return a value as YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else f"{value}"


def quoted(word: str) -> str:
    """Return text as YAML: in quotes unless it is a plain word."""
    plain = word.replace("_", "a").replace("-", "a").replace("+", "a")
    special = word.lower() in ("on", "off", "yes", "no", "true", "false", "null", "y", "n")
    if plain.isalnum() and word[0].isalpha() and not special:
        return word
    return json.dumps(word, ensure_ascii=False)
