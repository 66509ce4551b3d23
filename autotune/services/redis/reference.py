"""The reference page of Redis."""

from __future__ import annotations

from autotune.services.reference import BY_COMMAND, STARTS, Reference, Untuned

REFERENCE = Reference(
    recognised="`redis-server.service`, `redis.service` or `redis@default.service` is active and reads"
    " the distribution's configuration file.",
    edited="The last line that sets the option, in `redis.conf` or in a file that it includes."
    " autotune adds a missing option at the end of `redis.conf`.",
    validated=STARTS,
    read_back="`redis-cli CONFIG GET`, with the password from the host's own file. The length of"
    " the accept queue comes from `ss`.",
    untuned=(
        Untuned("Parameters that need a restart, if `save` and `appendonly` are off",
            "A restart loses all data. `allow_data_loss: true` in the tier allows it."),
        Untuned("A server whose password is not in a file",
            "A restart would remove the password. `CONFIG REWRITE` writes it to the file."),
        Untuned("`maxmemory`, eviction, snapshots and the append-only file",
            "They determine which data is kept."),
        Untuned("Passwords and ACLs", "They control access."),
        BY_COMMAND,
    ),
)  # fmt: skip
