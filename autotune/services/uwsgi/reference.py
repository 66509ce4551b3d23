"""The reference page of uWSGI."""

from __future__ import annotations

from autotune.services.reference import (
    SET_BY_UNIT_COMMAND,
    TEMPLATE_UNIT,
    ServiceReference,
    UntunedReason,
)

REFERENCE = ServiceReference(
    recognised="A unit whose command contains one `.ini` file with a section `[uwsgi]`, an emperor with"
    " one vassal, or Debian's `uwsgi.service` with one application.",
    edited="The last line in the `.ini` file that sets the option. autotune adds a missing option"
    " below `[uwsgi]`.",
    validated="`uwsgi --no-server --strict` with the new file, and with the same user,"
    " directory and environment as the unit.",
    read_back="The stats socket (`stats =`), read with `perl`. The length of the accept queue"
    " comes from `ss`. Without a stats socket, the report shows the values in the file.",
    untuned=(
        UntunedReason(
            "Several applications that share a unit",
            "A change would apply to all these applications. Give the application its own unit.",
        ),
        UntunedReason(
            "A configuration in XML, YAML or JSON, or on the command line only",
            "autotune edits only `.ini` files.",
        ),
        UntunedReason(
            "An option under a condition (`if-env`, …)",
            "uWSGI evaluates the condition when it starts. Write an unconditional line"
            " to tune the option.",
        ),
        SET_BY_UNIT_COMMAND,
        TEMPLATE_UNIT,
    ),
)
