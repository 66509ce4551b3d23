"""A page for each service, with facts from its code, its `REFERENCE` text and its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from autotune.report import format as fmt
from autotune.report import parameters
from autotune.services.adoption import Adoption
from autotune.services.base import Action, Effect, Parameter, Role, Service
from autotune.services.reference import ServiceReference
from autotune.services.registry import SHIPPED, load_references
from autotune.target.messages import format_count
from scripts.reference.markdown import listed, page, section, table

DIRECTORY = Path("docs") / "services"
ROLES = {
    Role.PROXY: "load balancer",
    Role.HTTP_CACHE: "HTTP cache",
    Role.WEB: "web server",
    Role.APP: "application server",
    Role.CACHE: "cache",
    Role.STORE: "store",
    Role.DATABASE: "SQL database",
    Role.LOCAL: "cache on the host of the application",
    Role.HOST: "settings of a host",
}
COSTS = {Action.NONE: "none", Action.RELOAD: "reload", Action.RESTART: "restart"}
EFFECTS = {Effect.CAPACITY: "large", Effect.SMALL: "small", Effect.COSMETIC: "negligible"}
DIRECTIONS = {"": "", "+": "guides recommend raising it", "-": "guides recommend lowering it"}
INDEX = """\
autotune tunes these services. Each page shows how autotune finds, edits, validates and reads back the
service, and lists its parameters."""
EVERYWHERE = {
    "A directive with several different values": "autotune tunes it only if all occurrences have the"
    " same value, or if the service uses only the last one.",
    "A value that differs between the hosts of a tier": "A tier has one configuration. Split the hosts"
    " into two tiers.",
    "A value outside the range in the catalogue": "Set a wider `range` for it under `parameters:`.",
    "A value that is a variable or an expression": "Its result is unknown. Write a number instead.",
    "A file that cannot be read": "It may override any value.",
    "A file behind a link in a directory that other accounts can write to": "Another account could"
    " redirect the link.",
    "Passwords, addresses, accounts and access rules": "They affect security.",
}


def pages() -> Mapping[Path, str]:
    """Return the contents of the services' pages and of the index, by their paths in a checkout."""
    texts = {
        DIRECTORY / f"{name}.md": _page(name, text) for name, text in load_references().items()
    }
    return {DIRECTORY / "README.md": _index(), **texts}


def _kinds(name: str) -> tuple[Service, ...]:
    return tuple(service for service in SHIPPED.services if service.name == name)


def _targets(kinds: Iterable[Service]) -> list[str]:
    """Return the keys and values in a target's tier that select one of the services ``kinds``."""
    keys = {service.key for service in kinds}
    services = [name for name in SHIPPED.deployments
                if keys & {service.key for service, _ in SHIPPED.services_of(name)}]  # fmt: skip
    return [*services, *(f"app: {s.application}" for s in kinds if s.application)]


def _index() -> str:
    rows = []
    for name in reversed(load_references()):
        kinds = _kinds(name)
        rows.append((f"[{kinds[0].title}]({name}.md)", _roles(kinds), listed(_targets(kinds)),
                     str(len(parameters.list_catalogue_entries().get(name, ())))))  # fmt: skip
    heads = ("Service", "Role", "Target", "Parameters")
    reasons = table(("Setting", "Reason"), EVERYWHERE.items())
    return page("Services", INDEX, table(heads, rows), section("Not tuned in any service", reasons))


def _roles(kinds: Iterable[Service]) -> str:
    """Return the names of all roles that the services ``kinds`` have in deployments."""
    keys = {service.key: service.role for service in kinds}
    roles = dict.fromkeys(keys.values())
    for name in SHIPPED.deployments:
        roles |= {role: None for service, role in SHIPPED.services_of(name) if service.key in keys}
    return ", ".join(ROLES[role] for role in roles)


def _page(name: str, reference: ServiceReference) -> str:
    kinds = _kinds(name)
    facts = [
        ("Role", _roles(kinds)),
        ("In a target", listed(_targets(kinds))),
        ("Recognised by", reference.recognised),
        ("Edited file", reference.edited),
        ("Validated by", reference.validated),
        ("Read back from", reference.read_back),
        ("Cost of a change", _cost(kinds)),
        *_facts(kinds),
    ]
    untuned = table(("Setting", "Reason"), ((u.setting, u.reason) for u in reference.untuned))
    entries = parameters.list_catalogue_entries().get(name, [])
    return page(
        kinds[0].title,
        table(("", ""), [(f"**{key}**", value) for key, value in facts if value]),
        section("Not tuned", untuned and f"{untuned}\n\nSee also [all services](README.md)."),
        section("Parameters", _parameters(name, entries)),
    )


def _facts(kinds: tuple[Service, ...]) -> Iterator[tuple[str, str]]:
    by_key = SHIPPED.map_adoptions()
    adopted = next((by_key[service.key] for service in kinds if service.key in by_key), None)
    packages = dict.fromkeys(name for service in kinds for name in service.packages)
    yield "Units", _units(kinds, adopted)
    yield "Default port", ", ".join(dict.fromkeys(str(s.port) for s in kinds if s.port))
    yield "Debian packages", listed(packages)
    yield (
        "Other sources",
        "; ".join(service.package_source for service in kinds if service.package_source),
    )
    yield "Can run as a private process", "yes" if all(s.can_run_privately for s in kinds) else "no"


def _units(kinds: tuple[Service, ...], adopted: Adoption | None) -> str:
    units = dict.fromkeys(service.unit_name for service in kinds if service.unit_name)
    if adopted:
        units |= dict.fromkeys((*adopted.units, *adopted.other_units))
    return listed(units)


def _cost(kinds: tuple[Service, ...]) -> str:
    names = {p.name: p.action for service in kinds for p in service.parameters}
    counts = Counter(names.values())
    costs = [
        f"{count} {'needs' if count == 1 else 'need'} a {COSTS[action]}"
        for action in (Action.RESTART, Action.RELOAD)
        if (count := counts[action])
    ]
    if count := counts[Action.NONE]:
        costs.append(f"{count} {'takes' if count == 1 else 'take'} effect at once")
    sentences = ["It has no parameters."]
    if names:
        sentences = [f"Of {format_count(len(names), 'parameter')}, {' and '.join(costs)}."]
    if len(names) > 1 and len(costs) == 1:
        sentences = [f"All {costs[0].replace(' ', ' parameters ', 1)}."]
    if any(service.forgets_on_restart for service in kinds):
        sentences.append("A restart empties the cache, and autotune warms it up again.")
    if any(service.keeps_data for service in kinds):
        sentences.append("A restart keeps its data.")
    return " ".join(sentences)


def _parameters(name: str, entries: list[parameters.CatalogueEntry]) -> str:
    if not entries:
        return ""
    rows = [tuple(_cells(each)) for each in entries]
    heads = ("Parameter", "Values", "Stock", "Recommended", "Change needs", "Effect", "Source")
    command = (
        f"`autotune params {name}` prints this list. Add `--json` for machine-readable output."
    )
    notes = [
        command,
        "By default (`tune: core`), the search starts with the parameters that have a large effect.",
        "In a range, `cpus`, `memory` and `nofile` mean the host's CPUs, memory and open-file limit.",
    ]
    if any(each.parameter.on_demand for each in entries):
        notes.append(
            "A parameter marked *On demand* is tuned only if `parameters:` gives it a range or choices."
        )
    if any(each.parameter.adopted for each in entries):
        notes.append(
            "A parameter marked *In your files* is tuned only if autotune edits your own files."
        )
    return "\n\n".join(["\n".join(f"- {note}" for note in notes), table(heads, rows)])


def _cells(each: parameters.CatalogueEntry) -> Iterator[str]:
    parameter = each.parameter
    conditions = [f"{text[0].upper()}{text[1:]}." for text in parameters.format_conditions(each)]
    conditions += ["On demand."] if parameter.on_demand else []
    conditions += ["In your files."] if parameter.adopted else []
    if parameter.derive:
        conditions.append(f"Computed: `{parameter.derive}`.")
    yield " ".join([f"`{parameter.name}`: {parameter.meaning}", *conditions])
    yield parameters.format_range(parameter)
    yield fmt.format_setting(parameter.stock, parameter.unit)
    yield ", ".join(_recommended(parameter))
    yield COSTS[parameter.action]
    safe = f"safe from {parameter.safe[0]} to {parameter.safe[1]}" if parameter.safe else ""
    effect = (EFFECTS[parameter.effect], DIRECTIONS[parameter.direction], safe)
    yield ", ".join(filter(None, effect))
    yield parameter.source


def _recommended(parameter: Parameter) -> Iterator[str]:
    if parameter.recommended is not None:
        yield fmt.format_setting(parameter.recommended, parameter.unit)
    for role, value in parameter.published.items():
        yield f"{fmt.format_setting(value, parameter.unit)} as {ROLES[role]} (published)"
