"""Common parts of servers with the Redis protocol: clients, their queue, `CONFIG GET`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import ClassVar

from autotune.services.base import (
    REPLACED_WHOLE,
    Argv,
    Loader,
    Readback,
    Role,
    Service,
    Settings,
    Site,
    accept_queue,
    on_restart,
)
from autotune.services.diagnosis import ClientLimit, CounterQuery
from autotune.services.readback import Parser, backlog_in_force, number
from autotune.strict import is_whole, split_lines

MARK = "autotune:data-set"
# Deterministic, because a block's first key seeds its random numbers.
_WRITE_PAIRS = """
math.randomseed(tonumber(ARGV[1]) + 1)
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local shrink = math.log(1 - 1 / tonumber(ARGV[3]))
local filler = string.rep('abcdefghijklmnopqrstuvwxyz', 4)
for i = first, first + count - 1 do
  local length = math.min(100, 1 + math.floor(math.log(1 - math.random()) / shrink))
  redis.call('SET', string.format('k%010d', i), string.sub(filler, 1, length))
end
return count
"""
LEVELS = frozenset((
    "connected_clients", "maxclients", "blocked_clients", "used_memory", "maxmemory",
))  # fmt: skip
COUNTS = frozenset((
    "rejected_connections", "used_cpu_user", "used_cpu_sys", "total_commands_processed",
    "evicted_keys",
))  # fmt: skip


def _whole_bulk(data: bytes) -> bool:
    r"""True if a RESP bulk string, ``$<length>\\r\\n<bytes>\\r\\n``, or an error has arrived."""
    head, end, rest = data.partition(b"\r\n")
    length = head[1:].decode(errors="replace")
    if not end or not head.startswith(b"$") or not is_whole(length):
        return bool(end)
    return len(rest) >= int(length) + 2


# Uses the password in the host's own files, which never leaves the host.
_AUTH = r"""
file=$1
files="$1 $(sed -n 's/^[ \t]*include[ \t]\+//p' "$1")"
REDISCLI_AUTH=$(sed -n -e 's/^[ \t]*requirepass[ \t]\+//p' -- $files | tail -n 1 |
    sed -e "s/^\(['\"]\)\(.*\)\1[ \t]*$/\2/")
[ -z "$REDISCLI_AUTH" ] || export REDISCLI_AUTH
shift
"""
_PROTECTED = re.compile(rb"(?m)^[ \t]*(?:requirepass|aclfile|user)[ \t]")
_WITH_AUTH = f'{_AUTH}exec "$@"\n'
# Users in the files have their passwords there. Otherwise the server is queried with the file's
# password. It refuses the query if its own password differs.
_UNSAVED = (
    _AUTH
    + r"""
if [ -n "$4" ] && grep -q -e '^[ \t]*\(requirepass\|aclfile\|user\)[ \t]' -- $files; then
    echo "uses users or a password from $file, which the replaced file would lose"
    echo '"""
    + REPLACED_WHOLE
    + r"""'
    exit
fi
! grep -q -e '^[ \t]*\(aclfile\|user\)[ \t]' -- $files || exit 0
for address in "$2" 127.0.0.1; do
    case $("$1" -h "$address" -p "$3" PING 2>&1) in
        *NOAUTH* | *WRONGPASS* | *'without any password'*)
            echo "at port $3 uses another password than its files, which a restart would lose"
            echo "run $1 -h $address -p $3 --askpass CONFIG REWRITE to save it in its file"
            exit ;;
    esac
done
"""
)


def _file(site: Site, default: str) -> str:
    """Return the file that a server reads first."""
    return site.own.files[0].path if site.own and site.own.files else default


def _client(site: Site, *command: str) -> Argv:
    address = site.own_place or site.listen.host
    asked = (site.programs["redis-cli"], "-h", address, "-p", str(site.listen.port), *command)
    if site.own is None or not site.own.files:
        return asked
    return ("sh", "-c", _WITH_AUTH, "sh", _file(site, ""), *asked)


COUNTERS = CounterQuery(
    question=b"INFO\r\n",
    complete=_whole_bulk,
    command=lambda site: _client(site, "INFO"),
    names=LEVELS | COUNTS,
    levels=LEVELS,
)
CLIENT_LIMIT = ClientLimit("maxclients", "rejected_connections")


# Each server adds the `source` of its documentation.
backlog = partial(accept_queue, "tcp_backlog", stock=511)
clients = partial(on_restart, "maxclients", "Maximum concurrent clients. More are refused.",
    low=128, high="min(65536, nofile - 100)", log=True, stock=10_000)  # fmt: skip


class RedisProtocolServer(Service):
    """A store that ``redis-cli`` queries. ``in_effect`` maps the server's option names to
    parameters.
    """

    role = Role.STORE
    in_effect: ClassVar[Mapping[str, str]]

    def effective(self, site: Site) -> tuple[Readback, ...]:
        switches = {p.name for p in self.parameters if isinstance(p.stock, bool)}
        parse = alternating(self.in_effect, switches)
        return (
            Readback(_client(site, "CONFIG", "GET", "*"), parse),
            backlog_in_force(site, "tcp_backlog"),
        )

    def unsaved(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        """Return a check for passwords that no file contains.

        `CONFIG SET` may have changed the password, and replacing a file may drop its password.
        """
        file, client = _file(site, self.config_path(site)), site.programs["redis-cli"]
        open_to_all = site.own is None and not any(map(_PROTECTED.search, files.values()))
        return ("sh", "-c", _UNSAVED, "sh", file, client, site.listen.host, str(site.listen.port),
                "whole" if open_to_all else "")  # fmt: skip

    def loader(self, site: Site) -> Loader:
        """Return a loader that writes pairs with a script in the store, so memory use stays
        constant.
        """
        ask = _client(site, "-e")
        return Loader(
            (*ask, "GET", MARK),
            lambda *numbers: (*ask, "EVAL", _WRITE_PAIRS, "0", *map(str, numbers)),
            lambda mark: ((*ask, "SET", MARK, mark), (*ask, "SAVE")),
            busy="LOADING",
            read=lambda keys: (*ask, "--raw", "MGET", *keys),
        )


def alternating(names: Mapping[str, str], switches: Collection[str] = ()) -> Parser:
    """Return a parser of alternating name and value lines (``redis-cli CONFIG GET``).

    ``switches`` are parameters with the values yes and no.
    """

    def parse(text: str) -> Settings:
        lines = [line.strip() for line in split_lines(text)]
        pairs = zip(lines[::2], lines[1::2], strict=False)
        values = {names[name]: value for name, value in pairs if name in names}
        return {n: v == "yes" if n in switches else number(v) for n, v in values.items()}

    return parse


def as_user(user: str | None, group: str | None) -> Argv:
    """Return a ``setpriv`` (util-linux) prefix for servers that cannot change their user
    themselves.

    The result is empty without a user.
    """
    if user is None:
        return ()
    return ("setpriv", f"--reuid={user}", f"--regid={group or ''}", "--init-groups")
