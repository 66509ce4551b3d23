"""The reference page of Redis."""

from __future__ import annotations

from autotune.services.reference import (
    SECOND_INSTANCE_TEXT,
    SET_BY_COMMAND,
    ServiceReference,
    UntunedReason,
)

REFERENCE = ServiceReference(
    recognised="`redis-server.service`, `redis.service` or `redis@default.service` is active and reads"
    " the distribution's configuration file.",
    edited="The last line that sets the option, in `redis.conf` or in a file that it includes."
    " autotune adds a missing option at the end of `redis.conf`.",
    validated=SECOND_INSTANCE_TEXT,
    read_back="`redis-cli CONFIG GET`, with the password from the host's own file. The length of"
    " the accept queue comes from `ss`.",
    untuned=(
        UntunedReason(
            "Parameters that need a restart, if `save` and `appendonly` are off",
            "A restart loses all data. `allow_data_loss: true` in the tier allows it.",
        ),
        UntunedReason(
            "A server whose password is not in a file",
            "A restart would remove the password. `CONFIG REWRITE` writes the password to the file.",
        ),
        UntunedReason(
            "A server that keeps less data on disk than its files set, after `CONFIG SET` or options in"
            " its command",
            "A restart would lose data. `CONFIG REWRITE` writes `save` and `appendonly` to the file.",
        ),
        UntunedReason(
            "A server whose `maxmemory`, `maxmemory-policy`, `timeout`, `appendfsync` or"
            " `notify-keyspace-events` differs from its files",
            "A restart would restore the files' values. `CONFIG REWRITE` writes the effective values.",
        ),
        UntunedReason(
            "A primary whose files make it a replica, after `REPLICAOF NO ONE`",
            "A restart would replace its data. `CONFIG REWRITE` removes `replicaof` from the file.",
        ),
        UntunedReason(
            "`maxmemory`, eviction, snapshots and the append-only file",
            "These settings determine which data is kept.",
        ),
        UntunedReason("Passwords and ACLs", "Passwords and ACLs control access."),
        SET_BY_COMMAND,
    ),
)
