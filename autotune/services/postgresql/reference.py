"""The reference page of PostgreSQL."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="The unit of a cluster is active: `postgresql@VERSION-NAME.service`,"
    " `postgresql-VERSION.service` or `postgresql.service`.",
    edited="The last line that sets the parameter, in `postgresql.conf` or in a file that it"
    " includes. autotune adds a missing parameter at the end of `postgresql.conf`. The data"
    " directory is not changed.",
    validated="`postgres -C`, as the owner of the cluster.",
    read_back="`pg_settings`, queried with `psql` through the unix socket as the owner of the cluster.",
    untuned=(
        UntunedReason(
            "A parameter in `postgresql.auto.conf`",
            "`ALTER SYSTEM` overrides the file. `ALTER SYSTEM RESET NAME` makes the parameter"
            " tunable.",
        ),
        UntunedReason(
            "A parameter that `ALTER ROLE` or `ALTER DATABASE` sets for connected clients",
            "Sessions of this role or database do not use the value in the file. `ALTER ROLE NAME RESET`"
            " makes the parameter tunable.",
        ),
        UntunedReason(
            "A parameter in `pg_ctl.conf`",
            "The command line overrides the file. Move the parameter to `postgresql.conf`.",
        ),
        UntunedReason(
            "`max_connections` and `max_worker_processes`, if `pg_hba.conf` admits standbys",
            "A standby stops replaying if the value on its primary exceeds its own.",
        ),
        UntunedReason(
            "A cluster without a unix socket", "autotune does not use database passwords."
        ),
        UntunedReason(
            "Accounts, `pg_hba.conf`, TLS and replication",
            "These settings control access to the data.",
        ),
    ),
)
