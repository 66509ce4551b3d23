"""The reference page of the local cache."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="A tier with `local_cache: true` and `app: reference`. The search decides whether the"
    " cache is used.",
    edited="`/etc/systemd/system/autotune-local-cache.service`, a unit that exists only during the"
    " study or after `apply`.",
    validated="systemd must start the unit. For a private server of a study, autotune first"
    " starts a second instance.",
    read_back="`memcached-tool HOST:PORT settings`. `ttl` is a setting of the application and is"
    " not read back.",
    untuned=(
        UntunedReason(
            "The local cache of your own application",
            "Only the reference application uses the local cache.",
        ),
    ),
)
