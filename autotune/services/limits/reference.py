"""The reference page of unit limits."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="Every unit in a tier whose files autotune replaces (`replace: true`).",
    edited="A drop-in of each unit, `/etc/systemd/system/UNIT.d/autotune.conf`, with"
    " `LimitNOFILE=`.",
    validated="systemd reads the drop-in. The unit must start with the drop-in.",
    read_back="`/proc/PID/limits` of the unit's main process.",
    untuned=(
        UntunedReason(
            "Units whose own files are edited",
            "A drop-in would be a new file on the host, so these units keep their limit.",
        ),
        UntunedReason(
            "Any limit except the number of open files",
            "No supported service has reached any other limit.",
        ),
    ),
)
