"""The reference page of Node.js."""

from __future__ import annotations

from autotune.services.reference import (
    SET_BY_COMMAND,
    TEMPLATE_UNIT,
    ServiceReference,
    UntunedReason,
)

REFERENCE = ServiceReference(
    recognised="A unit whose command starts `node`, `npm`, `yarn` or `pnpm`. Its port is `PORT` in its"
    " environment, or the only port that Node.js listens on.",
    edited="`Environment=` in your own unit or, if the unit belongs to a package, in a drop-in"
    " (`zz-autotune.conf`). The application's code is never edited.",
    validated="`node` starts with the new environment and exits.",
    read_back="The environment of the running processes. autotune counts the processes that a cluster"
    " forked as workers.",
    untuned=(
        UntunedReason(
            "`workers`, if no variable sets their number",
            "Applications read different variables. Set"
            " `Environment=WEB_CONCURRENCY=1` if your application reads this variable.",
        ),
        UntunedReason(
            "`max_semi_space_size`, if `NODE_OPTIONS` does not set it and no process of the unit runs",
            "The default depends on the memory of the process. Set `--max-semi-space-size` in"
            " `NODE_OPTIONS` to tune it.",
        ),
        UntunedReason(
            "A unit without `PORT`, if Node.js listens on several ports",
            "The port of the unit is unclear. Set `Environment=PORT=…`.",
        ),
        UntunedReason(
            "A variable from a file that cannot be read", "The file may override the value."
        ),
        SET_BY_COMMAND,
        TEMPLATE_UNIT,
    ),
)
