"""The reference page of Kvrocks."""

from __future__ import annotations

from autotune.services.reference import SECOND_INSTANCE_TEXT, ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="autotune does not recognise a running Kvrocks. Name Kvrocks in the target, with `replace:"
    " true`, or as a private server of the study.",
    edited="`/etc/kvrocks/kvrocks.conf`, replaced by autotune's own file until the study ends.",
    validated=SECOND_INSTANCE_TEXT,
    read_back="`redis-cli CONFIG GET`. The length of the accept queue comes from `ss`.",
    untuned=(
        UntunedReason(
            "Your own `kvrocks.conf`",
            "autotune has no parser for this file and replaces it completely.",
        ),
        UntunedReason("Passwords and namespaces", "Passwords and namespaces control access."),
    ),
)
