"""PHP-FPM: which settings of its pools are the catalogue's parameters."""

from __future__ import annotations

from autotune.adopt import ini
from autotune.adopt.config import Config, gather
from autotune.adopt.knob import Absent, Accepts, Knob, Tuned, behind, tuned
from autotune.adopt.syntax import Directive
from autotune.adopt.tree import Tree
from autotune.adopt.values import NUMBER, SECONDS_S, WORD

BACKLOG = 511  # before PHP 8.2; since then as much as the kernel allows
SPARE = {"start_servers": 2, "min_spare_servers": 1, "max_spare_servers": 3}
_AFTER = behind("pm.max_children")


def read(tree: Tree, version: str) -> Config:
    return gather(tree, f"/etc/php/{version}/fpm/php-fpm.conf", ini.read, _included)


def _included(directive: Directive) -> str | None:
    named = directive.name.text == "include" and len(directive.arguments) == 1
    return directive.arguments[0].text.strip("\"'") if named else None


def tune(config: Config, backlog: int, accepts: Accepts) -> Tuned:
    """Every parameter in these files; with pools of different sizes, those they agree in.

    ``backlog`` is what the socket has now: without the directive that depends on PHP's version.
    """
    knobs = [
        Knob("pm", "pm", WORD),
        Knob("max_children", "pm.max_children", NUMBER),
        *(_spare(name, default, _pm(config)) for name, default in SPARE.items()),
        Knob("process_idle_timeout", "pm.process_idle_timeout", SECONDS_S, absent=Absent(
            10, _AFTER, r'"\npm.process_idle_timeout = " ~ process_idle_timeout ~ "s"')),
        Knob("max_requests", "pm.max_requests", NUMBER, absent=Absent(
            0, _AFTER, r'"\npm.max_requests = " ~ max_requests')),
        Knob("listen_backlog", "listen.backlog", NUMBER, absent=Absent(
            backlog, behind("listen"), r'"\nlisten.backlog = " ~ listen_backlog')),
    ]  # fmt: skip
    return tuned(config, knobs, accepts)


def _pm(config: Config) -> str:
    return next((seen.words[0] for seen in config.called("pm") if seen.words), "")


def _spare(name: str, default: int, pm: str) -> Knob:
    """FPM wants these with `dynamic`: they come with it where another way is in use today."""
    text = rf'"\npm.{name} = " ~ {name}'
    absent = Absent(default, _AFTER, text, 'pm == "dynamic"') if pm != "dynamic" else None
    return Knob(name, f"pm.{name}", NUMBER, absent=absent)


def listens(config: Config) -> str:
    """A socket's path, or a port; empty for pools that listen at several places."""
    found = {seen.words[0] for seen in config.called("listen") if seen.words}
    place = found.pop() if len(found) == 1 else ""
    return place if place.startswith("/") else place.rpartition(":")[2]
