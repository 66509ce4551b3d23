"""A small memcached with short expiry on each web host, in front of the remote memcached.

The local cache serves the most frequent keys without network access, and its data are at most ``ttl``
seconds old. The cache may improve the mean latency but worsen the tail, so the search decides whether
to enable it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from autotune.services.base import (
    Argv,
    ConfigFile,
    Placement,
    Programs,
    Readback,
    ResourceNeeds,
    Role,
    Service,
    TrialStart,
    at_once,
    on_restart,
    with_guidance,
)
from autotune.services.diagnosis import EMPTY_DIAGNOSIS
from autotune.services.memcached.service import (
    PROGRAMS,
    build_settings_parser,
    build_stats_command,
    parse_options,
)

DOCS = "memcached(1); local and remote cache tiers in front of a web server (mod_mcpage)"
IF_ENABLED = (("enabled", (True,)),)
build_cache_option = partial(on_restart, source=DOCS)

PARAMETERS = with_guidance(
    (
        build_cache_option(
            "enabled", "Run a cache on each host in front of the remote one.", stock=False
        ),
        build_cache_option(
            "memory",
            "Memory for items in the local cache.",
            low=1,
            high="memory / 8 / 1048576",
            log=True,
            stock=8,
            unit="MB",
            when=IF_ENABLED,
        ),
        at_once(
            "ttl",
            "Time after which the local cache fetches an item again.",
            low=1,
            high=300,
            log=True,
            stock=5,
            unit="s",
            when=IF_ENABLED,
            source=DOCS,
        ),
        build_cache_option(
            "threads",
            "Number of worker threads of the local cache.",
            low=1,
            high="2 * cpus",
            stock=1,
            when=IF_ENABLED,
        ),
    ),
    capacity="enabled memory+ ttl",
    small="threads",
)


class LocalCache(Service):
    """A cache that listens only for its own host. The host's application queries the local cache
    first.
    """

    name = "local_cache"
    title = "local cache"
    role = Role.LOCAL
    # This is not memcached's default port, because a cache tier on the same host may use the default
    # port.
    port = 11311
    unit_name = "autotune-local-cache.service"
    packages = ("memcached",)
    programs: ClassVar[Programs] = PROGRAMS
    parameters = PARAMETERS
    needs = ResourceNeeds(
        memory="enabled * (memory * 1.1 + 6 MB)", source="memcached.org, user internals"
    )
    runs_when = IF_ENABLED

    def list_config_files(self, placement: Placement) -> tuple[ConfigFile, ...]:
        options_file = ConfigFile("local_cache.conf", "local_cache/options.j2")
        unit = ConfigFile(f"/etc/systemd/system/{self.unit_name}", "local_cache/unit.j2")
        return (placement.choose(options_file, unit),)

    def build_validation(
        self, placement: Placement, files: Mapping[str, bytes]
    ) -> TrialStart | None:
        argv = self.build_start_command(placement, files)
        return TrialStart((*argv, "-s", "trial.sock"), "trial.sock") if argv else None

    def build_start_command(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        content = files.get("local_cache.conf")
        return (
            (placement.programs["memcached"], *parse_options(content))
            if content is not None
            else None
        )

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (
            Readback(
                build_stats_command(placement, "settings"),
                build_settings_parser(("memory", "threads")),
            ),
        )


SERVICES = (LocalCache(),)
# Clients see only the application's responses, so autotune does not diagnose the local cache.
DIAGNOSIS = EMPTY_DIAGNOSIS
