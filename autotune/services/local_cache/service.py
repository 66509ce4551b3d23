"""A small, short-lived memcached on each web host, in front of the remote one.

What is asked for most is answered without the network; what it holds is at most ``ttl`` old. It
may help the mean and harm the tail, so whether to have it is for the search to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.services.base import (
    Action,
    Argv,
    ConfigFile,
    Endpoint,
    Needs,
    Parameter,
    Readback,
    Role,
    Service,
    Site,
    TrialStart,
)
from autotune.services.memcached.service import TOOL, options, settings_in_effect

SOURCE = "memcached(1); local and remote cache tiers in front of a web server (mod_mcpage)"
PRESENT = (("enabled", (True,)),)
UNIT = "autotune-local-cache.service"

PARAMETERS = (
    Parameter(
        name="enabled", choices=(False, True), stock=False, action=Action.RESTART, source=SOURCE,
        meaning="Whether each host has a cache of its own in front of the remote one.",
    ),
    Parameter(
        name="memory", low=1, high="memory / 8 / 1048576", log=True, stock=8, unit="MB",
        when=PRESENT, action=Action.RESTART, source=SOURCE,
        meaning="Its memory for items.",
    ),
    Parameter(
        name="ttl", low=1, high=300, log=True, stock=5, unit="s", when=PRESENT,
        action=Action.NONE, source=SOURCE,
        meaning="How long what it holds may be answered before it is asked for again.",
    ),
    Parameter(
        name="threads", low=1, high="2 * cpus", stock=1, when=PRESENT, action=Action.RESTART,
        source=SOURCE,
        meaning="Its worker threads.",
    ),
)  # fmt: skip

NEEDS = Needs(
    memory="enabled * (memory * 1.1 + 6 MB)", source="memcached.org, user internals"
)  # fmt: skip


class LocalCache(Service):
    """It listens on its own host alone; the application there asks it first."""

    name = "local_cache"
    title = "local cache"
    role = Role.LOCAL
    # Not memcached's own, which a cache tier on the same host has.
    port = 11311
    packages = ("memcached",)
    parameters = PARAMETERS
    needs = NEEDS
    runs_when = PRESENT

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"memcached": ("memcached",), "memcached-tool": (TOOL,)}

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        private = ConfigFile("local_cache.conf", "local_cache/options.j2")
        return (
            site.place(private, ConfigFile(f"/etc/systemd/system/{UNIT}", "local_cache/unit.j2")),
        )

    def unit(self, site: Site) -> str:
        return UNIT

    def validate(self, site: Site, files: Mapping[str, bytes]) -> TrialStart | None:
        argv = self.start(site, files)
        return TrialStart((*argv, "-s", "trial.sock"), "trial.sock") if argv else None

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        content = files.get("local_cache.conf")
        return (site.programs["memcached"], *options(content)) if content is not None else None

    def socket(self, site: Site) -> Endpoint:
        return site.listen

    def effective(self, site: Site) -> tuple[Readback, ...]:
        argv = (site.programs["memcached-tool"], str(site.listen), "settings")
        return (Readback(argv, settings_in_effect(("memory", "threads"))),)


SERVICES = (LocalCache(),)
