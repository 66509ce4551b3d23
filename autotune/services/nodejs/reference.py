"""The reference page of Node.js."""

from __future__ import annotations

from autotune.services.reference import BY_COMMAND, TEMPLATE_UNIT, Reference, Untuned

REFERENCE = Reference(
    recognised="A unit whose command starts `node`, `npm`, `yarn` or `pnpm`. `PORT` in its environment,"
    " or the only open port of Node.js, says where it listens.",
    edited="`Environment=` in a drop-in of the unit, `zz-autotune.conf`. The application's code is"
    " never edited.",
    validated="`node` starts with the new environment and exits.",
    read_back="The environment of the running processes. Workers are counted as the processes that"
    " a cluster forked.",
    untuned=(
        Untuned("`workers`, if no variable sets their number",
            "Applications differ in the variable that they read. Set"
            " `Environment=WEB_CONCURRENCY=1` if yours reads that."),
        Untuned("A unit without `PORT`, if several ports of Node.js are open",
            "Load cannot be assigned to a unit. Set `Environment=PORT=…`."),
        Untuned("A variable from a file that cannot be read", "The file may override the value."),
        BY_COMMAND,
        TEMPLATE_UNIT,
    ),
)  # fmt: skip
