"""Map settings of PHP-FPM's pools to parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotune.services import unit_environment
from autotune.services.adoption import Adoption, Layout, Layouts, RunningHost, RunningService
from autotune.services.config_files import Config, Tree, gather, included
from autotune.services.directives import NUMBER, QUOTED_WORD, SECONDS_S, Absent, Tunable, behind
from autotune.services.php_fpm import syntax
from autotune.services.understood import Understood

BACKLOG = 511  # default before PHP 8.2; later versions use the kernel's limit
SPARE = {"start_servers": 2, "min_spare_servers": 1, "max_spare_servers": 3}
LAYOUTS = Layouts((
    Layout("Debian, Ubuntu", "php{version}-fpm.service", "/etc/php/{version}/fpm/php-fpm.conf"),
    Layout("Fedora, RHEL", "php-fpm.service", "/etc/php-fpm.conf"),
    *(Layout("SUSE", "php-fpm.service", f"/etc/php{version}/fpm/php-fpm.conf") for version in (8, 7)),
))  # fmt: skip
OTHER_WAYS = ("static", "ondemand")


def read(tree: Tree, main: str) -> Config:
    """Return the directives of each pool. The last occurrence takes effect, in any file."""
    config = gather(tree, main, syntax.read, included)
    last = {(placed.directive.within, placed.name): placed for placed in config.directives}
    return replace(config, directives=tuple(last.values()))


def find(host: RunningHost) -> Iterator[RunningService | str]:
    """Yield the newest running version."""
    running = filter(None, (LAYOUTS[0].having(unit) for unit in host.units if host.runs(unit)))
    newest = max(
        running, key=lambda of: [int(part) for part in of.version.split(".")], default=None
    )
    if not (layout := newest or LAYOUTS.of(host)):
        return
    words = unit_environment.words(host.tree, layout.unit)
    if {*unit_environment.values_of(words, "-y", "--fpm-config")} - {layout.main}:
        yield f"PHP-FPM is not tuned: {layout.unit} does not read {layout.main}"
        return
    config = read(host.tree, layout.main)
    yield RunningService(
        host=host, key="php-fpm", config=config, listen=listens(config), unit=layout.own_unit
    )


def _tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield every parameter in these files. If pools differ, only values common to all are tunable."""
    config = service.config
    # Read the socket's backlog, because the default depends on the PHP version.
    backlog = service.host.backlogs.get(service.listen, BACKLOG)
    pm = next((placed.words[0] for placed in config.called("pm") if placed.words), "")
    yield Tunable("pm", "pm", QUOTED_WORD)
    yield Tunable("max_children", "pm.max_children", NUMBER)
    after = behind(config, "pm.max_children")
    for name, directive, notation, default, places in (
        ("process_idle_timeout", "pm.process_idle_timeout", SECONDS_S, 10, after),
        ("max_requests", "pm.max_requests", NUMBER, 0, after),
        ("listen_backlog", "listen.backlog", NUMBER, backlog, behind(config, "listen")),
    ):
        absent = Absent(default, places, f"\n{directive} = ")
        yield Tunable(name, directive, notation, absent=absent)
    for name, default in SPARE.items():
        # FPM requires these with `dynamic`. If `pm` has another mode now, they are written with
        # `dynamic`.
        absent = Absent(default, after, f"\npm.{name} = ", condition='pm == "dynamic"')
        otherwise = QUOTED_WORD.read(pm) in OTHER_WAYS
        yield Tunable(name, f"pm.{name}", NUMBER, absent=absent if otherwise else None)


def listens(config: Config) -> str:
    """Return a socket path or port, or an empty string if pools listen at several addresses."""
    places = {placed.words[0] for placed in config.called("listen") if placed.words}
    place = places.pop() if len(places) == 1 else ""
    return place if place.startswith("/") else place.rpartition(":")[2]


UNDERSTOOD = Understood(syntax.read, frozenset((
    "pm", "pm.max_children", "pm.process_idle_timeout", "pm.max_requests", "listen", "listen.backlog",
    *(f"pm.{name}" for name in SPARE),
)), reads=frozenset(("listen",)))  # fmt: skip

ADOPTION = Adoption(
    known_as="PHP-FPM behind a web server",
    units=("php*-fpm.service",),
    elsewhere=LAYOUTS.elsewhere,
    paths=("etc/php", "etc/php-fpm.conf", "etc/php-fpm.d", "etc/php[78]/fpm"),
    version="""for fpm in /usr/sbin/php-fpm*; do
    runs "${fpm#/usr/sbin/}" || runs "php${fpm#/usr/sbin/php-fpm}-fpm.service" || continue
    "$fpm" -v | sed -n 's,^PHP \\([^ ]*\\).*,PHP-FPM \\1,p'
done""",
    find=find,
    understood=UNDERSTOOD,
    tunables=_tunables,
)
