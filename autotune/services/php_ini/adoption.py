"""What PHP's files on a host say, and the file in which that is changed.

Debian's builds share files of extensions: a line of them is never edited, but overridden by the last file
that one build alone reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import Parameter
from autotune.services.config_files import Config, PlacedDirective, Tree, Unreadable
from autotune.services.directives import (
    Absent,
    Accepts,
    Adopted,
    Notation,
    Tunable,
    at_end,
    joined,
    map_directives,
)
from autotune.services.php_fpm import adoption as fpm
from autotune.services.php_fpm.syntax import read
from autotune.services.php_ini.parameters import PARAMETERS, directive
from autotune.services.php_ini.service import FILE, PhpIniApache, PhpIniFpm, meaning

_VERSION = re.compile(r"/etc/php/([0-9.]+)/")
_LOADED = re.compile(r"php([0-9.]+)\.load")
_MODULES = "/etc/apache2/mods-enabled"
_OF_POOL = re.compile(r"php_(?:admin_)?(?:value|flag)\[([^\]]+)\]")


def find(host: RunningHost) -> Iterator[RunningService | str]:
    """Of the PHP-FPM that is tuned, and of the module that Apache has loaded."""
    for pools in fpm.find(host):
        if isinstance(pools, str) or not (match := _VERSION.match(pools.config.main)):
            continue
        if f"{match[0]}fpm/php.ini" in host.tree.files:
            yield _running(host, PhpIniFpm(), match[1], pools.config)
    loaded = (
        _LOADED.match(path.rpartition("/")[2]) for path in host.tree.matching(f"{_MODULES}/*")
    )
    version = next(filter(None, loaded), None)
    if version and host.runs("apache2.service"):
        yield _running(host, PhpIniApache(), version[1], Config(""))


def _running(
    host: RunningHost, service: PhpIniFpm | PhpIniApache, version: str, pools: Config
) -> RunningService:
    """Its config is the file that may be changed, with what pools set themselves; the first of
    them is asked."""
    place = f"/etc/php/{version}/{service.interpreter}/conf.d/{FILE}"
    text, unread = "", dict[str, str]()
    try:
        text = host.tree.text(place) if place in host.tree.files else ""
        own = [PlacedDirective(place, assignment) for assignment in read(text)]
    except (UnicodeDecodeError, Unreadable) as error:
        own, unread[place] = [], str(error)
    of_pools = [placed for placed in pools.directives if _OF_POOL.match(placed.name)]
    config = Config(place, {} if unread else {place: text}, (*own, *of_pools), unread)
    listen = next((placed.words[0] for placed in pools.called("listen") if placed.words), "")
    address = f"127.0.0.1:{listen}" if listen.isdecimal() else listen
    return RunningService(host=host, key=service.key, config=config, listen=address)


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter but those that a pool sets itself, and those of an extension that is not there."""
    try:
        before = _before(service.host.tree, service.config.main)
    except Unreadable as error:
        return Adopted(left=dict.fromkeys((p.name for p in PARAMETERS), str(error)))
    pools = {m[1] for placed in service.config.directives if (m := _OF_POOL.match(placed.name))}
    left = {p.name: "a pool sets it itself" for p in PARAMETERS if directive(p) in pools}
    if not any("opcache" in before[name] for name in before if name == "zend_extension"):
        left |= {p.name: "OPcache is not loaded" for p in PARAMETERS if "opcache_" in p.name}
    tunables, parts = [], [Adopted(left=left)]
    for parameter in PARAMETERS:
        written = before.get(directive(parameter))
        default = parameter.stock if written is None else meaning(parameter, written)
        if parameter.name in left:
            continue
        if default is None:
            why = f"`{directive(parameter)} = {written}` is no value to start from"
            parts.append(Adopted(left={parameter.name: why}))
            continue
        line = f'"{directive(parameter)} = " ~ {_written(parameter)} ~ "\\n"'
        tunables.append(Tunable(parameter.name, directive(parameter), _notation(parameter),
                                absent=Absent(default, at_end, line)))  # fmt: skip
    return joined(*parts, map_directives(service.config, tunables, accepts))


def _before(tree: Tree, place: str) -> Mapping[str, str]:
    """What every other file of this PHP says: of a name that is there several times the last counts,
    and of extensions all do. Raises Unreadable."""
    values: dict[str, str] = {}
    build = place.partition("/conf.d/")[0]
    for path in tree.matching(f"{build}/php.ini") + tree.matching(f"{build}/conf.d/*.ini"):
        try:
            assignments = read(tree.text(path)) if path != place else ()
        except (UnicodeDecodeError, Unreadable) as error:
            raise Unreadable(f"{path} cannot be read: {error}") from None
        for assignment in assignments:
            name = assignment.name.text
            # Sections that begin with these count for some paths or names alone.
            if not any(
                block[0].upper().startswith(("PATH", "HOST")) for block in assignment.within
            ):
                earlier = values.get(name, "") if name == "zend_extension" else ""
                words = [argument.text for argument in assignment.arguments]
                values[name] = " ".join([*filter(None, [earlier]), *words])
    return values


def _notation(parameter: Parameter) -> Notation:
    return Notation(partial(meaning, parameter), lambda _: _written(parameter))


def _written(parameter: Parameter) -> str:
    """The expression of its value in PHP's own notation."""
    if isinstance(parameter.stock, bool):
        return f"({parameter.name} | int)"
    bare = parameter.name in ("opcache_memory_consumption", "opcache_interned_strings_buffer")
    letter = "" if bare else {"MB": "M", "KB": "K"}.get(parameter.unit, "")
    return f'({parameter.name} ~ "{letter}")'


ADOPTION = Adoption(
    known_as="PHP's own settings",
    units=("php*-fpm.service", "apache2.service"),
    paths=("etc/php", "etc/apache2/mods-enabled"),
    version="",
    find=find,
    tune=tune,
)
