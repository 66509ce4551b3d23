"""Find units that run Node, their addresses, and parameters in their environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename

from autotune.services import app_server, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import Candidate, Place
from autotune.services.directives import Accepts, Adopted
from autotune.services.nodejs.service import FLAGS, OPTIONS, POOL, Nodejs
from autotune.services.understood import Understood
from autotune.services.unit_environment import Environment, Setting

# Fedora and SUSE also add the version to the name.
_PROGRAMS = re.compile(r"node(js)?(-?[0-9]+)?|npm|yarn|pnpm")
# Applications read different variables. autotune assumes that they read those the unit sets.
_WORKERS = ("WEB_CONCURRENCY", "CLUSTER_WORKERS", "NODE_WORKERS", "NUM_WORKERS", "WORKERS",
            "NODE_CLUSTER_WORKERS", "CLUSTER_SIZE", "INSTANCES")  # fmt: skip
_UNSAID = ("its environment does not set the number: `Environment=WEB_CONCURRENCY=1` in the unit makes"
    " it tunable if the application reads the variable")  # fmt: skip
# Node's own value; the other option's default depends on the host
_OWN = {"max_semi_space_size": 16}


def _candidates(host: RunningHost) -> Iterator[Candidate | str]:
    units = dict.fromkeys(unit for program in ("node", "npm", "yarn", "pnpm")
                          for unit in unit_files.naming(host.tree, program))  # fmt: skip
    running = {unit: environment for unit in units if (environment := _of_node(host, unit))}
    ports = {unit: environment.number("PORT") for unit, environment in running.items()}
    own = {listener.port for listener in host.listeners
           if listener.program in Nodejs.programs["node"]} - {*ports.values()}  # fmt: skip
    for unit, environment in running.items():
        port = ports[unit]
        if port is None and len(own) == 1 and list(ports.values()).count(None) == 1:
            port = next(iter(own))
        if port is not None:
            main = unit_files.files(host.tree, unit)[0]
            yield unit, unit_environment.config(environment, main), str(port)
        elif own:
            yield f"{unit}: unknown port. Set `Environment=PORT=…` in the unit to tune it"


def _of_node(host: RunningHost, unit: str) -> Environment | None:
    """Return the environment of a unit that starts Node or one of its package managers."""
    programs = [basename(word) for word in _words(host, unit) if "=" not in word]
    first = next((program for program in programs if program != "env"), "")
    return unit_environment.read(host.tree, unit) if _PROGRAMS.fullmatch(first) else None


def _words(host: RunningHost, unit: str) -> list[str]:
    """Return the words of a unit's command."""
    starting = unit_files.starting(host.tree, unit)
    return [word.text.lstrip("-@:+!") for word in starting[1].arguments] if starting else []


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Tune parameters in the unit's environment, unless its command sets them, which overrides it."""
    environment = unit_environment.read(service.host.tree, service.unit)
    words = [word.replace("_", "-") for word in _words(service.host, service.unit)]
    places: dict[str, Place] = {"uv_threadpool_size": Setting("uv_threadpool_size", POOL, 4)}
    for name, option in OPTIONS.items():
        places[name] = Setting(name, FLAGS, _OWN.get(name), option)
        if any(f"--{word}".startswith(option) for word in words):
            places[name] = app_server.said_by_command(option, FLAGS)
    places["workers"] = _UNSAID
    for variable in filter(environment.value, reversed(_WORKERS)):
        places["workers"] = Setting("workers", variable, None)
    return app_server.tune(service.config, environment, places, accepts)


UNDERSTOOD = Understood(
    lambda _: (),  # it has no configuration file
    frozenset(OPTIONS.values()),
    variables=re.compile("|".join((*_WORKERS, POOL, FLAGS, "PORT"))),
)

ADOPTION = app_server.adoption(
    Nodejs, _candidates, tune, understood=UNDERSTOOD,
    version="command -v node >/dev/null && echo Node.js $(node --version)",
)  # fmt: skip
