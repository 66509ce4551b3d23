"""Varnish of the distribution: its options are in its unit, and its VCL belongs to the user.

All options take effect at a restart, because the next restart would discard `param.set` changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

from autotune.services.base import Argv, Programs, Readback, Role, Service, Settings, Site
from autotune.services.command_line import started
from autotune.services.readback import backlog_in_force
from autotune.services.unit_files import drop_in
from autotune.services.varnish.parameters import BY_NAME, NEEDS, PARAMETERS
from autotune.strict import LARGEST, parse_json
from autotune.target.units import SIZE

UNIT = "varnish.service"
DROP_IN = drop_in(UNIT)
# file argv…: prints errors of a start with the options in that file. `-C` compiles the VCL and
# prints it.
_CHECK = """
shift
said=$("$@" -C 2>&1 >/dev/null) && exit
printf '%s\\n' "$said"
exit 1
"""


class Varnish(Service):
    """Caches responses in memory and forwards other requests to the tier behind."""

    name = "varnish"
    title = "Varnish"
    deployment = "varnish"
    role = Role.HTTP_CACHE
    port = 6081
    forgets_on_restart = True
    serving = ("cache-main",)
    config = ("", DROP_IN)
    template = "varnish/options.conf.j2"
    unit_name = UNIT
    # LimitNOFILE in Debian's unit.
    unit_nofile = "min(131072, nofile)"
    packages = ("varnish",)
    programs: ClassVar[Programs] = {
        name: (name,) for name in ("varnishd", "varnishadm", "varnishstat")
    }
    parameters = PARAMETERS
    needs = NEEDS
    at_most = (("thread_pool_min", "thread_pool_max"),)

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        for path, content in files.items():
            if words := started(content.decode(errors="replace")):
                # Avoid the address of the running Varnish.
                others = ("127.0.0.1:0" if before == "-a" else word
                          for before, word in pairwise(words) if word != "-F")  # fmt: skip
                return ("sh", "-c", _CHECK, "sh", path, site.programs["varnishd"], *others)
        return None  # the package's own command

    def effective(self, site: Site) -> tuple[Readback, ...]:
        asked = (site.programs["varnishadm"], *instance(site), "param.show", "-j")
        return (
            Readback(asked, in_effect),
            Readback(counting(site), storage_in_effect),
            backlog_in_force(site, "listen_depth"),
        )


SERVICES = (Varnish(),)


def instance(site: Site) -> Argv:
    """Return the option that selects a Varnish instance by name."""
    return ("-n", site.own_place) if site.own_place else ()


def counting(site: Site) -> Argv:
    """Return the command that prints its counters."""
    return (site.programs["varnishstat"], *instance(site), "-1", "-j")


def in_effect(text: str) -> Settings:
    """Parse `param.show -j` in the parameters' units."""
    values: dict[str, Any] = {str(row.get("name")): row.get("value") for row in _parsed(text, [])
                              if isinstance(row, dict)}  # fmt: skip
    return {
        name: int(value) // SIZE.get(BY_NAME[name].unit, 1)
        for name, value in values.items()
        if name in BY_NAME and name != "listen_depth" and _is_number(value)
    }


def storage_in_effect(text: str) -> Settings:
    """Return the memory for objects: the sum of used and free bytes."""
    sizes = [number for name, number in counters(text).items()
             if name.startswith("SMA.") and name.endswith((".g_bytes", ".g_space"))
             and ".Transient." not in name]  # fmt: skip
    return {"storage": round(sum(sizes) / SIZE["MB"])} if sizes else {}


def counters(text: str) -> Mapping[str, float]:
    """Parse every counter of `varnishstat -j`."""
    printed = _parsed(text, {})
    every = printed.get("counters", printed)
    return {name: float(counter["value"])
            for name, counter in (every if isinstance(every, dict) else {}).items()
            if isinstance(counter, dict) and _is_number(counter.get("value"))}  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST


def _parsed(text: str, otherwise: Any) -> Any:
    try:
        printed = parse_json(text)
    except ValueError:
        return otherwise
    return printed if isinstance(printed, type(otherwise)) else otherwise
