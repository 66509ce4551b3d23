"""The reference page of kernel settings."""

from __future__ import annotations

from autotune.services.reference import Reference, Untuned

REFERENCE = Reference(
    recognised="Every host of a tier that uses the units of its distribution.",
    edited="The running kernel during a study. `apply`, `--keep` and exports also write a file in"
    " `/etc/sysctl.d`.",
    validated="The kernel accepts or refuses each value. A refused value is an error.",
    read_back="`sysctl KEY`, after the change.",
    untuned=(
        Untuned("A key that the kernel does not have, such as `net.ipv4.tcp_tw_recycle` since"
            " Linux 4.12",
            "It is left out of the search."),
        Untuned("Kernel settings of a container", "A container shares the kernel of its host."),
    ),
)  # fmt: skip
