"""Common parts of servers with the Redis protocol: client limit, accept queue, and `CONFIG GET`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import ClassVar

from autotune.services.base import (
    FILE_REPLACED_HINT,
    Argv,
    Placement,
    Readback,
    Role,
    Service,
    Settings,
    StoreLoader,
    build_accept_queue,
    on_restart,
)
from autotune.services.diagnosis import ClientLimit, CounterQuery
from autotune.services.readback import OutputParser, build_backlog_readback, parse_number
from autotune.strict_parsing import is_uint, split_lines

# The file that includes all others. It may contain the password, even if autotune edits only included
# files. autotune edits no own files of other servers with this protocol.
DEBIAN_FILE = "/etc/redis/redis.conf"
DATA_SET_KEY = "autotune:data-set"
# The values are reproducible, because the number of a block's first key seeds the random numbers.
_WRITE_PAIRS_SCRIPT = """
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
LEVEL_COUNTERS = frozenset(
    (
        "connected_clients",
        "maxclients",
        "blocked_clients",
        "used_memory",
        "maxmemory",
    )
)
TOTAL_COUNTERS = frozenset(
    (
        "rejected_connections",
        "used_cpu_user",
        "used_cpu_sys",
        "total_commands_processed",
        "evicted_keys",
    )
)


def _is_bulk_complete(reply: bytes) -> bool:
    r"""True if a RESP bulk string, ``$<length>\\r\\n<bytes>\\r\\n``, or an error has arrived."""
    reply_header, line_end, body = reply.partition(b"\r\n")
    length_text = reply_header[1:].decode(errors="replace")
    if not line_end or not reply_header.startswith(b"$") or not is_uint(length_text):
        return bool(line_end)
    return len(body) >= int(length_text) + 2


# Passes redis-cli the password that the host's own files set. The password never leaves the host. Redis
# ignores the case of names, and accepts paths in quotes. Included files may include others.
_AUTH_SCRIPT = r"""
file=$1 files="$1 "
for level in 1 2 3 4; do
    included=$(sed -n 's/^[ \t]*include[ \t]\+//Ip' -- $files | tr -d "\"'\r" | awk '!seen[$0]++')
    [ "$files" != "$1 $included" ] || break
    files="$1 $included"
done
REDISCLI_AUTH=$(sed -n -e 's/^[ \t]*requirepass[ \t]\+//Ip' -- $files | tail -n 1 |
    sed -e "s/^\(['\"]\)\(.*\)\1[ \t]*$/\2/")
[ -z "$REDISCLI_AUTH" ] || export REDISCLI_AUTH
shift
"""
_PROTECTED_PATTERN = re.compile(rb"(?mi)^[ \t]*(?:requirepass|aclfile|user)[ \t]")
_WITH_AUTH_SCRIPT = f'{_AUTH_SCRIPT}exec "$@"\n'
# When Redis starts, it loads the append-only file if its files enable it, or else the last snapshot.
# When it stops, it writes a snapshot only if `save` sets save points. CONFIG SET and the unit's command
# may change both settings.
_UNSAVED_DATA_SCRIPT = r"""
list_values() { # option: prints its values in the files, without blanks
    sed -n "s/^[ \t]*$1[ \t]\+//Ip" -- $files | tr -d ' \t\r'
}
last() { list_values "$1" | tail -n 1; } # option: prints its last value
ask() { "$client" -h "$address" -p "$port" "$@" 2>/dev/null; }
client=$1 port=$3 addresses="$2 127.0.0.1"
case $(last appendonly) in *[yY][eE][sS]*) loads=log ;; *) loads=snapshot ;; esac
# If the files keep no data, the server is restarted only if its tier allows data loss.
case $5$loads$(last save) in kept* | snapshot'""' | snapshot"''") addresses= ;; esac
for address in $addresses; do
    case $(ask INFO) in *role:slave*) break ;; *:keys=*) ;; *) continue ;; esac
    case $loads$(ask CONFIG GET save),$(ask CONFIG GET appendonly) in
        snapshotsave,* | log*,appendonly*no)
            echo "at port $port keeps less data on disk than its files set, and a restart would lose data"
            login=${REDISCLI_AUTH:+--askpass }
            command="$client -h $address -p $port ${login}CONFIG REWRITE"
            allow="set \`allow_data_loss: true\` in the tier"
            echo "run $command to save its settings in its file, or $allow"
            exit ;;
    esac
done
"""
# `CONFIG SET` may also have set limits of memory. Without them, the host may run out of memory after a
# restart. Applications may wait for events that `CONFIG SET` enabled. `REPLICAOF NO ONE` may have made
# the server a primary: as a replica, it would copy the data of the earlier primary. The unit's command
# may set the same options, which a restart keeps.
_UNSAVED_SETTINGS_SCRIPT = r"""
refuse() { # sentence about the server: prints it, and how to save the settings of the server
    echo "at port $port $1"
    command="$client -h $address -p $port ${REDISCLI_AUTH:+--askpass }CONFIG REWRITE"
    echo "run $command to save its settings in its file"
    exit
}
to_bytes() { # size, such as 2gb
    number=${1%%[!0-9]*}
    case ${1#"$number"} in
        '' | b) unit=1 ;; k) unit=1000 ;; kb) unit=1024 ;; m) unit=1000000 ;; mb) unit=1048576 ;;
        g) unit=1000000000 ;; gb) unit=1073741824 ;; *) number= ;;
    esac
    echo "${number:+$((number * unit))}"
}
started=$([ -z "$6" ] || systemctl show --value -p ExecStart -p ExecStartPost -- "$6" 2>/dev/null)
started=$(printf '%s' "$started" | tr A-Z a-z)
# Variables and included files may set options as well.
case $started in
    '' | *--include* | *\$*) addresses= ;;
    *) addresses="$2 127.0.0.1" ;;
esac
primary=$(list_values '\(replicaof\|slaveof\)' | tail -n 1 | tr -d "\"'" | tr A-Z a-z)
case $started$primary in *replicaof* | *slaveof* | *noone) primary= ;; esac
for address in $addresses; do
    case ${primary:+$(ask INFO)} in
        *role:master*) refuse "is a primary, but a restart would make it a replica with other data" ;;
    esac
    for default in maxmemory=0 maxmemory-policy=noeviction timeout=0 appendfsync=everysec \
        notify-keyspace-events=
    do
        name=${default%=*}
        case $started in *$name*) continue ;; esac
        values=$(list_values "$name" | tr -d "\"'" | tr A-Z a-z)
        [ -n "$values" ] || values=${default#*=}
        [ "$name" != maxmemory ] || values=$(for size in $values; do to_bytes "$size"; done)
        value=$(printf '%s\n' "$values" | tail -n 1)
        # Redis prints the letters of events in another order than the files.
        case $name$value in maxmemory | notify-keyspace-events?*) continue ;; esac
        now=$(ask CONFIG GET "$name" | sed -n "1{/^$name\$/!q}; 2p")
        # If several files set an option, the position of `include` decides which of them is in effect.
        if [ -n "$now" ] && ! printf '%s\n' "$values" | grep -qxF -e "$now"; then
            refuse "has $name $now, but its files set ${value:-nothing}, which a restart would restore"
        fi
    done
done
"""
# If the files define users, they also contain the users' passwords, so a restart loses nothing.
# Otherwise, the script queries the server with the password in the files. A server with a different
# password refuses the password in the files.
_UNPERSISTED_SCRIPT = (
    _AUTH_SCRIPT
    + _UNSAVED_DATA_SCRIPT
    + _UNSAVED_SETTINGS_SCRIPT
    + r"""
if [ -n "$4" ] && grep -qi -e '^[[:blank:]]*\(requirepass\|aclfile\|user\)[[:blank:]]' -- $files; then
    echo "uses users or a password from $file, which the replaced file would lose"
    echo '"""
    + FILE_REPLACED_HINT
    + r"""'
    exit
fi
! grep -qi -e '^[[:blank:]]*\(aclfile\|user\)[[:blank:]]' -- $files || exit 0
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


def _build_client_command(placement: Placement, *command: str) -> Argv:
    address = placement.adopted_address or placement.listen.host
    client_command = (
        placement.programs["redis-cli"],
        "-h",
        address,
        "-p",
        str(placement.listen.port),
        *command,
    )
    if placement.adopted is None:
        return client_command
    main_file = placement.adopted.main or DEBIAN_FILE
    return ("sh", "-c", _WITH_AUTH_SCRIPT, "sh", main_file, *client_command)


COUNTER_QUERY = CounterQuery(
    request=b"INFO\r\n",
    is_complete=_is_bulk_complete,
    build_command=lambda site: _build_client_command(site, "INFO"),
    counter_names=LEVEL_COUNTERS | TOTAL_COUNTERS,
    level_names=LEVEL_COUNTERS,
    refusal_pattern=re.compile(r"max number of clients (?:\+ cluster connections )?reached"),
)
CLIENT_LIMIT = ClientLimit("maxclients", "rejected_connections")


# Each server passes its own documentation as `source`.
build_backlog = partial(build_accept_queue, "tcp_backlog", stock=511)
build_client_limit = partial(on_restart, "maxclients",
    "Maximum number of concurrent clients. Others are refused.",
    low=128, high="min(65536, nofile - 100)", log=True, stock=10_000)  # fmt: skip


class RedisProtocolServer(Service):
    """A store that ``redis-cli`` can query. ``parameters_by_option`` maps the server's option names
    to parameters.
    """

    role = Role.STORE
    parameters_by_option: ClassVar[Mapping[str, str]]

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        switch_names = {p.name for p in self.parameters if isinstance(p.stock, bool)}
        output_parser = build_pair_parser(self.parameters_by_option, switch_names)
        return (
            Readback(_build_client_command(placement, "CONFIG", "GET", "*"), output_parser),
            build_backlog_readback(placement, "tcp_backlog"),
        )

    def build_unpersisted_check(
        self, placement: Placement, files: Mapping[str, bytes], *, allows_data_loss: bool = False
    ) -> Argv | None:
        """Return a check for data, passwords and settings that a restart would lose.

        `CONFIG SET` may have changed a password, an option or the persistence settings. A password may
        also be only in a file that autotune replaces.
        """
        client_program = placement.programs["redis-cli"]
        is_never_restarted = bool(placement.adopted and placement.adopted.loses)
        # In a container, `placement.unit` is set, and systemd is missing.
        unit = "" if placement.unit else self.get_unit(placement) or ""
        is_unprotected = placement.adopted is None and not any(
            map(_PROTECTED_PATTERN.search, files.values())
        )
        return (
            "sh",
            "-c",
            _UNPERSISTED_SCRIPT,
            "sh",
            self.config_path(placement),
            client_program,
            placement.listen.host,
            str(placement.listen.port),
            "whole" if is_unprotected else "",
            "kept" if is_never_restarted or allows_data_loss else "",
            unit if placement.adopted and not is_never_restarted else "",
        )

    def build_loader(self, placement: Placement) -> StoreLoader:
        """Return a loader whose script runs inside the store and writes the pairs, so that
        autotune's memory use stays constant.
        """
        eval_command = _build_client_command(placement, "-e")
        return StoreLoader(
            (*eval_command, "GET", DATA_SET_KEY),
            lambda *numbers: (*eval_command, "EVAL", _WRITE_PAIRS_SCRIPT, "0", *map(str, numbers)),
            lambda mark: ((*eval_command, "SET", DATA_SET_KEY, mark), (*eval_command, "SAVE")),
            busy_text="LOADING",
            build_read_command=lambda keys: (*eval_command, "--raw", "MGET", *keys),
        )


def build_pair_parser(
    parameters_by_option: Mapping[str, str], switches: Collection[str] = ()
) -> OutputParser:
    """Return a parser for lines that alternate between names and values (``redis-cli CONFIG GET``).

    ``switches`` are the parameters whose values are yes and no.
    """

    def parse(output: str) -> Settings:
        output_lines = [line.strip() for line in split_lines(output)]
        name_value_pairs = zip(output_lines[::2], output_lines[1::2], strict=False)
        printed_values = {
            parameters_by_option[name]: value
            for name, value in name_value_pairs
            if name in parameters_by_option
        }
        return {
            name: value == "yes" if name in switches else parse_number(value)
            for name, value in printed_values.items()
        }

    return parse
