"""The reference page of memcached."""

from __future__ import annotations

from autotune.services.reference import SECOND_INSTANCE_TEXT, ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`memcached.service` is active and reads `/etc/memcached.conf`.",
    edited="The last line of `/etc/memcached.conf` that sets the option. autotune adds a missing"
    " option at the end.",
    validated=SECOND_INSTANCE_TEXT,
    read_back="`memcached-tool HOST:PORT settings`. The length of the accept queue comes from"
    " `ss`.",
    untuned=(
        UntunedReason(
            "Parameters that need a restart, without `allow_data_loss: true`",
            "A restart empties the cache. `allow_data_loss: true` in the tier allows it.",
        ),
        UntunedReason(
            "`udp` and extstore in your own file",
            "autotune writes these options only to files of private servers, and to files with"
            " `replace: true`.",
        ),
        UntunedReason(
            "SASL and the file with its users", "SASL and the list of users control access."
        ),
        UntunedReason(
            "memcached on any distribution except Debian and Ubuntu",
            "autotune reads only `/etc/memcached.conf`.",
        ),
    ),
)
