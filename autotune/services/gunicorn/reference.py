"""The reference page of gunicorn."""

from __future__ import annotations

from autotune.services.reference import SOCKET_UNIT, TEMPLATE_UNIT, Reference, Untuned

REFERENCE = Reference(
    recognised="A unit whose command starts `gunicorn`, at a TCP port or a unix socket that is open.",
    edited="A drop-in of the unit, `zz-autotune.conf`, with the unit's command and the changed"
    " options. The Python configuration file is read, but never edited.",
    validated="`gunicorn --check-config`, run as the unit runs it: same user, directory and"
    " environment.",
    read_back="`gunicorn --print-config` for the command of the running process. The length of the"
    " accept queue comes from `ss`.",
    untuned=(
        Untuned("A value that the configuration file computes",
            "The result is unknown before the start. Write a number to tune it."),
        Untuned("`threads` with an asynchronous worker class", "These workers have no threads."),
        Untuned("A command with variables or `--env`",
            "The options cannot be read. Use `EnvironmentFile=`, and write the options out."),
        SOCKET_UNIT,
        TEMPLATE_UNIT,
        Untuned("A second instance at a unix socket on the same host",
            "autotune tunes one instance at a unix socket for each host."),
    ),
)  # fmt: skip
