"""The reference page of Varnish."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`varnish.service` is active. Its options are on the unit's command line.",
    edited="The options in your own unit. If the unit belongs to a package, a drop-in"
    " (`zz-autotune.conf`) with the unit's command and the changed options.",
    validated="`varnishd -C` with the new options, which compiles the VCL.",
    read_back="`varnishadm param.show` and `varnishstat`. The length of the accept queue comes"
    " from `ss`.",
    untuned=(
        UntunedReason(
            "Varnish, if its options contain a variable (`$NAME`)",
            "The effective options are unclear. Write out the options in the unit.",
        ),
        UntunedReason(
            "`storage` with several stores, or with a store other than `malloc`",
            "A single number cannot describe the size of such storage.",
        ),
        UntunedReason(
            "A listener that accepts only the PROXY protocol or a unix socket",
            "autotune sends load over HTTP to a TCP port.",
        ),
        UntunedReason(
            "VCL, time to live (TTL) and grace",
            "Whether a response may be stale depends on the site.",
        ),
    ),
)
