"""The reference page of MariaDB."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`mariadb.service` is active. Its files are `/etc/mysql/my.cnf` or `/etc/my.cnf`, with"
    " all includes.",
    edited="The last line in a server group (`[mysqld]`, `[mariadb]`, …) that sets the option."
    " autotune adds a missing option to the last server group. If `max_connections`"
    " changes, autotune also adds the options that MariaDB would compute from it, such as `back_log`.",
    validated="`mariadbd --help --verbose` reads the files and reports unknown options and wrong"
    " values.",
    read_back="`mariadb -e 'SHOW GLOBAL VARIABLES'` through the unix socket. The length of the accept"
    " queue comes from `ss`.",
    untuned=(
        UntunedReason(
            "MySQL and Percona Server",
            "The options and files of these servers differ from MariaDB's.",
        ),
        UntunedReason(
            "MariaDB, if `/etc/my.cnf` exists in addition to files in `/etc/mysql`",
            "MariaDB reads both places. Move the options to `/etc/mysql`.",
        ),
        UntunedReason(
            "A node of a Galera cluster",
            "autotune restarts all hosts of a tier together, which would stop the cluster. `check`"
            " refuses such a host.",
        ),
        UntunedReason(
            "A server that `SET GLOBAL` gave other values than its files",
            "A restart would restore the files' values. Write the effective values to the files.",
        ),
        UntunedReason(
            "An option under another name (`skip_…`, `maximum_…`, an abbreviation)",
            "The effective line would be unclear. Use the full name.",
        ),
        UntunedReason(
            "Accounts, TLS, replication and the data directory",
            "These settings determine access, and which data is kept.",
        ),
    ),
)
