"""The reference page of HAProxy."""

from __future__ import annotations

from autotune.services.reference import Reference, Untuned

REFERENCE = Reference(
    recognised="`haproxy.service` is active. Its files are those that the unit names with `-f`,"
    " otherwise `/etc/haproxy/haproxy.cfg`.",
    edited="The line of the section that sets the value. autotune adds a missing line to `global`"
    " or to `defaults`, if the file has exactly one such section.",
    validated="`haproxy -c -f FILE`, for all files of the unit together.",
    read_back="The stats socket (`show info`, `show stat`, `show pools`), read with `perl`. The"
    " length of the accept queue comes from `ss`.",
    untuned=(
        Untuned("A parameter that the stats socket does not report, such as a timeout",
            "It is tuned. The written value is reported, because no effective value can be read."),
        Untuned("A directive with different values in several sections",
            "The sections serve different purposes. Use one value to tune it."),
        Untuned("All of HAProxy, if one of its files cannot be read",
            "The unread file may override the value."),
        Untuned("A frontend at a unix socket only", "Load is sent to a TCP port."),
        Untuned("ACLs, TLS settings, health checks and server lists",
            "They decide on what is served, and by whom."),
    ),
)  # fmt: skip
