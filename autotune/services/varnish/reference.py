"""The reference page of Varnish."""

from __future__ import annotations

from autotune.services.reference import Reference, Untuned

REFERENCE = Reference(
    recognised="`varnish.service` is active. Its options are on the unit's command line.",
    edited="A drop-in of the unit, `zz-autotune.conf`, with the unit's command and the changed"
    " options.",
    validated="`varnishd -C` with the new options, which compiles the VCL.",
    read_back="`varnishadm param.show` and `varnishstat`. The length of the accept queue comes"
    " from `ss`.",
    untuned=(
        Untuned("All of Varnish, if its options contain a variable (`$NAME`)",
            "The effective options are unknown. Write them out in the unit."),
        Untuned("`storage` with several stores, or with a store other than `malloc`",
            "One number cannot describe them."),
        Untuned("A listener for the PROXY protocol or at a unix socket only",
            "Load is sent over HTTP to a TCP port."),
        Untuned("VCL, time to live and grace",
            "Only the owner of the site knows which responses may be stale."),
    ),
)  # fmt: skip
