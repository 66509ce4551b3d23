"""The reference page of Puma."""

from __future__ import annotations

from autotune.services.reference import (
    SET_BY_UNIT_COMMAND,
    SOCKET_UNIT,
    TEMPLATE_UNIT,
    ServiceReference,
    UntunedReason,
)

REFERENCE = ServiceReference(
    recognised="A unit whose command starts `puma`, with a configuration file such as `config/puma.rb`.",
    edited="The number in the configuration file. If the file reads a variable, `Environment=` in the"
    " unit or in a drop-in. If a setting is missing, autotune adds it at the end of the file.",
    validated="`puma -C FILE`, with the user, directory and environment of the unit. A hook prints the"
    " options and stops the process before it listens.",
    read_back="The options that Puma resolves, the number of running workers, and the control"
    " server if there is one. The length of the accept queue comes from `ss`.",
    untuned=(
        UntunedReason("Puma without a configuration file",
            "autotune needs a file to edit. Create an empty `config/puma.rb`."),
        UntunedReason("A value that Ruby code computes",
            "The computed value is unknown before Puma starts. Write a number, or read one variable."),
        UntunedReason("A value that the file sets several times or under a condition",
            "The effective line is unclear. Write one unconditional line."),
        SET_BY_UNIT_COMMAND,
        SOCKET_UNIT,
        TEMPLATE_UNIT,
    ),
)  # fmt: skip
