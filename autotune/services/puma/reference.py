"""The reference page of Puma."""

from __future__ import annotations

from autotune.services.reference import (
    BY_UNIT_COMMAND,
    SOCKET_UNIT,
    TEMPLATE_UNIT,
    Reference,
    Untuned,
)

REFERENCE = Reference(
    recognised="A unit whose command starts `puma`, with a configuration file such as `config/puma.rb`.",
    edited="The number in the configuration file, or `Environment=` in a drop-in of the unit if"
    " the file reads a variable. autotune adds a missing call at the end of the file.",
    validated="`puma -C FILE`, run as the unit runs it. A hook prints the options and ends the"
    " process before it listens.",
    read_back="The options that Puma resolves, the number of running workers, and the control"
    " server if there is one. The length of the accept queue comes from `ss`.",
    untuned=(
        Untuned("All of Puma without a configuration file",
            "autotune needs a file to edit. Create an empty `config/puma.rb`."),
        Untuned("A value that Ruby code computes",
            "The result is unknown before the start. Write a number, or read one variable."),
        Untuned("A value that the file sets several times or below a condition",
            "The effective line is unknown. Write one unconditional line."),
        BY_UNIT_COMMAND,
        SOCKET_UNIT,
        TEMPLATE_UNIT,
    ),
)  # fmt: skip
