"""`autotune init --from`: a stack that runs already made into a target with its own templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.adopt import adoption, target_text
from autotune.adopt.adoption import AdoptedTier
from autotune.adopt.found import FoundHost, Member, members
from autotune.adopt.template import Adopted
from autotune.adopt.tiers import FoundTier, tiers
from autotune.deploy import manifest, render
from autotune.discovery.host_reading import read_host
from autotune.errors import AutotuneError
from autotune.target.fields import NAME
from autotune.transports import curl
from autotune.transports.base import Transport
from autotune.transports.endpoint import SshHost
from autotune.transports.local import LocalTransport
from autotune.transports.parallel import on_all

_LOGIN = re.compile(r"(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:]+)(?::(?P<port>[0-9]+))?")
NOTHING = (
    "nginx, Apache (mpm_event, or mpm_prefork with mod_php), PHP-FPM behind nginx, memcached and "
    "Redis are known, as Debian's units; start them, or write a target by hand: `autotune init`"
)


@dataclass(frozen=True)
class Written:
    """``tiers`` and ``parameters`` in words; ``notes`` are what was left as it is, and why."""

    target: Path
    templates: Path
    tiers: tuple[str, ...]
    parameters: int
    notes: tuple[str, ...]


def adopt(
    logins: Sequence[str], out: Path | None, ssh_config: Path | None, path: str | None
) -> Written:
    """Read the hosts (``[user@]host[:port]``) and write ``out`` with its templates beside it.

    Changes nothing on any host. Raises AutotuneError, HostUnreachable.
    """
    if not logins:
        raise AutotuneError("--from names no host", hint="--from user@host[,user@host…]")
    return write(_hosts(logins, ssh_config), out, ssh_config, path)


def write(
    found: Sequence[FoundHost], out: Path | None, ssh_config: Path | None, path: str | None
) -> Written:
    """The target file of hosts that were read, and the templates made of their files.

    Without ``path`` what load is sent to is the first of `/index.php` and `/` that is answered
    with 200. Raises AutotuneError where there is nothing to tune, or something to overwrite.
    """
    every = [members(host) for host in found]
    known = tiers(member for some, _ in every for member in some)
    notes = [note for _, some in every for note in some]
    if not known:
        told = [f"{host.name}: nothing that autotune tunes is running" for host in found]
        raise AutotuneError("\n".join(notes or told), hint=NOTHING)
    adopted = [adoption.adopt(tier) for tier in known]
    notes += _unread(known)
    name = _name(out, found)
    out = out or Path("targets") / f"{name}.yaml"
    templates = out.parent / "templates" / name
    for place in (out, templates):
        if place.exists():
            raise AutotuneError(f"{place} exists already", hint="name another file with --out")
    config = str(ssh_config.expanduser().resolve()) if ssh_config else None
    stack = target_text.Stack(
        name=name,
        hosts=found,
        tiers=adopted,
        path=path or _path(known),
        templates=f"templates/{name}",
        ssh_config=config,
        notes=notes,
    )
    _check(adopted)
    _write(templates, adopted)
    out.write_text(target_text.text(stack), encoding="utf-8")
    return Written(
        out,
        templates,
        tuple(map(_told, adopted)),
        sum(len(tier.values) for tier in adopted),
        tuple(notes),
    )


def _hosts(logins: Sequence[str], ssh_config: Path | None) -> list[FoundHost]:
    if ssh_config and not ssh_config.expanduser().exists():
        raise AutotuneError(f"there is no {ssh_config}", hint="--ssh-config takes an ssh_config(5)")
    # Its libraries take a second to load.
    from autotune.transports.ssh import SshTransport

    wanted = [_login(login, ssh_config) for login in logins]
    ways: dict[str, Transport] = {host.name: SshTransport(host) for host in wanted}
    by_name = {host.name: host for host in wanted}
    try:
        read = on_all(ways.values(), lambda way: read_host(way, by_name[way.name])).everywhere()
    finally:
        for way in ways.values():
            way.close()
    return _distinct(list(read.values()))


def _login(login: str, ssh_config: Path | None) -> SshHost:
    found = _LOGIN.fullmatch(login.strip())
    if found is None:
        raise AutotuneError(f"{login!r} is no host", hint="--from user@host[,user@host…]")
    return SshHost(
        name=login.strip(),
        address=found["address"].strip("[]"),
        user=found["user"],
        port=int(found["port"]) if found["port"] else None,
        config=str(ssh_config.expanduser()) if ssh_config else None,
    )


def _distinct(hosts: list[FoundHost]) -> list[FoundHost]:
    """Names that the target can have, each once."""
    taken: dict[str, int] = {}
    named = []
    for host in hosts:
        taken[host.name] = taken.get(host.name, 0) + 1
        times = taken[host.name]
        named.append(replace(host, name=host.name if times == 1 else f"{host.name}-{times}"))
    return named


def _name(out: Path | None, hosts: Iterable[FoundHost]) -> str:
    name = out.stem if out else next(iter(hosts)).name
    if not re.match(NAME, name):
        raise AutotuneError(
            f"{name!r} cannot be a target's name", hint="--out with letters, digits, _ and -"
        )
    return name


def _unread(known: Iterable[FoundTier]) -> list[str]:
    return list(dict.fromkeys(
        f"{member.host.name}: {path}: {why}"
        for tier in known for member in tier.members
        for config in member.configs.values() for path, why in config.unread.items()
    ))  # fmt: skip


def _path(known: Sequence[FoundTier]) -> str:
    """What is answered: PHP's own page before one that may be a file."""
    behind = {name for tier in known for name in (tier.forwards_to, *tier.uses)}
    entry = next((tier for tier in known if tier.name not in behind), known[0])
    member: Member = entry.members[0]
    here = LocalTransport()
    for path in ("/index.php", "/"):
        got = curl.answer(here, f"http://{member.host.address}:{entry.port}{path}")
        if not isinstance(got, str) and got.ok:
            return path
    return "/"


def _check(adopted: Iterable[AdoptedTier]) -> None:
    """Nothing is written that does not give the files back as they were found."""
    for tier in adopted:
        for member in tier.found.members:
            for service, config in member.configs.items():
                own = tier.own[f"{tier.found.name}.{member.host.name}.{service}"]
                values = _baseline(tier, service)
                for file in own.files:
                    made = Adopted(tier.templates[file.template], {})
                    if render.of_text(made.template, values) != config.texts[file.path]:
                        raise AutotuneError(f"{file.path} cannot be made into a template exactly")


def _baseline(tier: AdoptedTier, service: str) -> Mapping[str, object]:
    """Values by bare names, those that follow from others as the software has them now."""
    values = {name.partition(".")[2]: value for name, value in tier.values.items()
              if name.startswith(f"{service}.")}  # fmt: skip
    if service == "apache" and "ServerLimit" in values:
        threads = values["ThreadsPerChild"]
        values["MaxRequestWorkers"] = int(values["ServerLimit"]) * int(threads)
    return values


def _write(directory: Path, adopted: Iterable[AdoptedTier]) -> None:
    own = {part: files for tier in adopted for part, files in tier.own.items()}
    texts = {path: text for tier in adopted for path, text in tier.templates.items()}
    for path, text in {**texts, manifest.NAME: manifest.text(own)}.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())


def _told(tier: AdoptedTier) -> str:
    found = tier.found
    hosts = ", ".join(member.host.name for member in found.members)
    onward = [*([f"forwards to {found.forwards_to}"] if found.forwards_to else []),
              *([f"uses {', '.join(found.uses)}"] if found.uses else [])]  # fmt: skip
    behind = f"; {', '.join(onward)}" if onward else ""
    return f"{found.name}: {found.deployment} on {hosts}, port {found.port}{behind}"
