"""What servers that speak the Redis protocol have in common: clients, their queue, `CONFIG GET`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autotune.services.base import Action, Argv, Parameter, Readback, Site
from autotune.services.readback import alternating, backlog_in_force


def clients(source: str) -> Parameter:
    """``maxclients``, as the server documents it in ``source``."""
    return Parameter(
        name="maxclients", low=128, high="min(65536, nofile - 100)", log=True, stock=10_000,
        action=Action.RESTART, source=source,
        meaning="Clients at one time; more are refused.",
    )  # fmt: skip


def backlog(source: str) -> Parameter:
    """``tcp-backlog``, likewise."""
    return Parameter(
        name="tcp_backlog", low=64, high=65535, log=True, stock=511, recommended=4096,
        action=Action.RESTART, source=source,
        meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.",
    )  # fmt: skip


def in_effect(
    site: Site, names: Mapping[str, str], switches: Collection[str]
) -> tuple[Readback, ...]:
    """Everything that the server says of itself (their names → ours), and its queue in force.

    ``switches`` are those of ours that say yes or no.
    """
    argv = (site.programs["redis-cli"], "-h", site.listen.host, "-p", str(site.listen.port),
            "CONFIG", "GET", "*")  # fmt: skip
    asked = Readback(argv, alternating(names, switches))
    return (asked, backlog_in_force(site, "tcp_backlog"))


def as_user(user: str | None, group: str | None) -> Argv:
    """These servers cannot drop to another user themselves: util-linux' ``setpriv`` does it before.

    Nothing without a user.
    """
    if user is None:
        return ()
    return ("setpriv", f"--reuid={user}", f"--regid={group or ''}", "--init-groups")
