"""The reference page of gunicorn."""

from __future__ import annotations

from autotune.services.reference import SOCKET_UNIT, TEMPLATE_UNIT, ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="A unit whose command starts `gunicorn`, which listens on a TCP port or a unix socket.",
    edited="The options in your own unit. If the unit belongs to a package, a drop-in"
    " (`zz-autotune.conf`) with the unit's command and the changed options. The Python"
    " configuration file is read, but never edited.",
    validated="`gunicorn --check-config`, with the same user, directory and environment as the"
    " unit.",
    read_back="`gunicorn --print-config` for the command of the running process. The length of the"
    " accept queue comes from `ss`.",
    untuned=(
        UntunedReason("A value that the configuration file computes, except sums and products of numbers"
            " and `cpu_count()`",
            "The computed value is unknown before gunicorn starts. Write a number to tune the setting."),
        UntunedReason("`threads` with an asynchronous worker class",
            "Asynchronous workers have no threads."),
        UntunedReason("A command with variables or `--env`",
            "autotune cannot read the options. Use `EnvironmentFile=`, and write out the options."),
        SOCKET_UNIT,
        TEMPLATE_UNIT,
        UntunedReason("A second instance on a unix socket of the same host",
            "autotune tunes only one instance on a unix socket per host."),
    ),
)  # fmt: skip
