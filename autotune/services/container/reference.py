"""The reference page of container limits."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="A tier whose service runs in a container of a Compose project.",
    edited="`override.json` in autotune's directory, which Compose reads after your files. Your"
    " files are not changed.",
    validated="The engine creates the container with the new limits.",
    read_back="The limits are not read back: the container does not start if they are refused.",
    untuned=(
        UntunedReason(
            "Any limit except CPUs and memory", "No supported service has reached any other limit."
        ),
    ),
)
