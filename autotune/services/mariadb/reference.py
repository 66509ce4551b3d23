"""The reference page of MariaDB."""

from __future__ import annotations

from autotune.services.reference import Reference, Untuned

REFERENCE = Reference(
    recognised="`mariadb.service` is active. Its files are `/etc/mysql/my.cnf` or `/etc/my.cnf`, with"
    " all includes.",
    edited="The last line of a server group (`[mysqld]`, `[mariadb]`, …) that sets the option."
    " autotune adds a missing option below the last server group.",
    validated="`mariadbd --help --verbose` reads the files and reports unknown options and wrong"
    " values.",
    read_back="`mariadb -e 'SHOW GLOBAL VARIABLES'` at the unix socket. The length of the accept"
    " queue comes from `ss`.",
    untuned=(
        Untuned("MySQL and Percona Server", "Their options and files differ."),
        Untuned("All of MariaDB, if `/etc/my.cnf` exists beside files in `/etc/mysql`",
            "Both are read. Move the options to `/etc/mysql`."),
        Untuned("An option under another name (`skip_…`, `maximum_…`, an abbreviation)",
            "The last line would be ambiguous. Use the full name."),
        Untuned("Accounts, TLS, replication and the data directory",
            "They decide on access and on which data is kept."),
    ),
)  # fmt: skip
