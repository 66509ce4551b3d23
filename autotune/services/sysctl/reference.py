"""The reference page of kernel settings."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="Every host in a tier that runs units of the distribution.",
    edited="The running kernel, during a study. `apply`, `--keep` and exports also write a file to"
    " `/etc/sysctl.d`.",
    validated="The kernel accepts or refuses each value. A refused value is an error.",
    read_back="`sysctl KEY`, after the change.",
    untuned=(
        UntunedReason(
            "A key that the kernel does not have, such as `net.ipv4.tcp_tw_recycle` since"
            " Linux 4.12",
            "A missing key is excluded from the search.",
        ),
        UntunedReason(
            "Kernel settings of a container", "A container shares the kernel of its host."
        ),
    ),
)
