"""Map options in a running Varnish's unit to parameters, and find the backends in its VCL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.services import command_line, unit_files
from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import Parameter
from autotune.services.config_files import Config, Directive, Tree, gather, included
from autotune.services.directives import (
    NUMBER,
    SECONDS,
    Absent,
    Accepts,
    Adopted,
    Notation,
    Tunable,
    size,
)
from autotune.services.understood import Understood
from autotune.services.varnish import syntax
from autotune.services.varnish.parameters import PARAMETERS
from autotune.services.varnish.service import DROP_IN, UNIT
from autotune.strict import is_whole

_STORAGE = re.compile(r"-s (?:(?!Transient=)[^=]*=)?(?:malloc|default)")
_WITHOUT_STORAGE = 100  # MB, from the manual


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.runs(UNIT):
        return
    config = command_line.gather(host.tree, UNIT, syntax.options)
    options = {placed.name: placed for placed in config.directives}
    if not options or any("$" in word for placed in config.directives for word in placed.words):
        yield f"Varnish is not tuned: {UNIT} does not write out its options"
    elif not (ports := _ports(config)):
        yield "Varnish is not adopted: it has no TCP port for HTTP"
    else:
        named = options["-n"].words if "-n" in options else ()
        yield RunningService(
            host=host, key="varnish", config=config, kind="http_cache", port=ports[0],
            listen="".join(named), behind=tuple(_behind(host.tree, config)),
        )  # fmt: skip


def _ports(config: Config) -> list[int]:
    """Return its HTTP ports, without unix sockets and the PROXY protocol."""
    places = [(placed.words or ("",))[0].split(",") for placed in config.called("-a")]
    spoken = [address for address, *protocol in places or [[":80"]] if "PROXY" not in protocol]
    words = [address.rpartition("=")[2] for address in spoken]
    ports = [word.rpartition(":")[2] or "80" for word in words if not word.startswith("/")]
    return [int(port) for port in ports if is_whole(port)]


def _behind(tree: Tree, config: Config) -> Iterator[str]:
    yield from (placed.words[0] for placed in config.called("-b") if placed.words)
    for main in (placed.words[0] for placed in config.called("-f") if placed.words):
        vcl = gather(tree, main, syntax.read_vcl, included)
        yield from (p.words[0] for p in vcl.called("backend") if p.words[0])


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    config = service.config
    return command_line.tune(config, (_tunable(config, p) for p in PARAMETERS), accepts, DROP_IN)


def _tunable(config: Config, parameter: Parameter) -> Tunable:
    name, notation = parameter.name, _notation(parameter)
    directive, default, before = f"-p {name}", parameter.stock, f" -p {name}="
    if name == "storage":
        stores = [placed.name for placed in config.directives if _STORAGE.fullmatch(placed.name)]
        directive, default, before = (*stores, "-s malloc")[0], _WITHOUT_STORAGE, " -s malloc,"
        if len(stores) != 1 and any(placed.name.startswith("-s ") for placed in config.directives):
            return Tunable(name, directive, notation, blocks=("none",))
    absent = Absent(default, command_line.end(config), before)
    return Tunable(name, directive, notation, absent=absent, last=True)


def _notation(parameter: Parameter) -> Notation:
    if parameter.unit == "s":
        return SECONDS
    return size(parameter.unit) if parameter.unit else NUMBER


def _is_storage(directive: Directive) -> bool:
    return bool(_STORAGE.fullmatch(directive.name.text))


UNDERSTOOD = Understood(
    syntax.read_vcl,
    frozenset(("-a", *(f"-p {parameter.name}" for parameter in PARAMETERS))),
    _is_storage,
    options=syntax.options,
)

ADOPTION = Adoption(
    known_as="Varnish",
    units=(UNIT,),
    paths=("etc/varnish", *unit_files.paths(UNIT)),
    version=f"runs {UNIT} && varnishd -V 2>&1 | sed -n 's,.*(varnish-\\([^ ]*\\) .*,Varnish \\1,p'",
    find=find,
    understood=UNDERSTOOD,
    tune=tune,
)  # fmt: skip
