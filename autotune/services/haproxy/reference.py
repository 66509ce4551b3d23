"""The reference page of HAProxy."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`haproxy.service` is active. HAProxy's files are those that the unit names with `-f`,"
    " otherwise `/etc/haproxy/haproxy.cfg`.",
    edited="The line in the section that sets the value. autotune adds a missing line to `global`"
    " or to `defaults`, if the file has exactly one such section. If a timeout changes,"
    " autotune also adds the timeouts whose defaults depend on it.",
    validated="`haproxy -c -f FILE`, for all files of the unit together, with the variables of the unit.",
    read_back="The stats socket (`show info`, `show stat`, `show pools`), read with `perl`. The"
    " length of the accept queue comes from `ss`.",
    untuned=(
        UntunedReason(
            "A parameter that the stats socket does not report, such as a timeout",
            "The parameter is tuned, but not read back. The report shows the value in the file.",
        ),
        UntunedReason(
            "A directive with different values in several sections, or that only some of them set",
            "The sections serve different purposes. Use one value in all sections to tune the directive.",
        ),
        UntunedReason(
            "`maxconn` in `global`, if a frontend or `defaults` sets a lower `maxconn`",
            "The lower limit takes effect.",
        ),
        UntunedReason(
            "`option http-server-close`, if a file sets another connection mode",
            "The other mode, such as `option http-keep-alive`, replaces it.",
        ),
        UntunedReason(
            "`http-reuse aggressive` and `http-reuse always`",
            "Clients may lose their first request, which the load does not show. autotune keeps your"
            " value, and itself sets only `never` and `safe`.",
        ),
        UntunedReason(
            "All of HAProxy, if one of its files cannot be read",
            "The unread file may override the value.",
        ),
        UntunedReason(
            "A frontend that listens only on a unix socket",
            "autotune sends load only to TCP ports.",
        ),
        UntunedReason(
            "ACLs, TLS settings, health checks and server lists",
            "Settings of a site determine what is served, and by which server.",
        ),
    ),
)
