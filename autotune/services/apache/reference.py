"""The reference page of Apache, both with mod_php and in front of PHP-FPM."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`apache2.service` or `httpd.service` is active, with mpm_event, or with mpm_prefork and"
    " mod_php.",
    edited="The last line that sets the directive, in the main file or in a file that it includes."
    " autotune adds a missing directive at the end of the main file.",
    validated="`apache2ctl -t`, with the new files and all includes in place.",
    read_back="`/server-status` and `/server-info`, requested with `curl` from the host itself."
    " The length of the accept queue comes from `ss`.",
    untuned=(
        UntunedReason(
            "Apache with mpm_worker, or with mpm_prefork but without mod_php",
            "autotune supports only mpm_event, and mpm_prefork with mod_php.",
        ),
        UntunedReason(
            "`ServerLimit`, if `MaxRequestWorkers` is not a multiple of `ThreadsPerChild`",
            "Apache adds workers only in whole processes.",
        ),
        UntunedReason(
            "`MaxRequestWorkers` of mpm_prefork, if it is above `ServerLimit` (256 by default)",
            "Apache lowers the number to `ServerLimit`. Raise `ServerLimit` to tune it.",
        ),
        UntunedReason(
            "`ThreadsPerChild` and `ServerLimit`, if a file sets `ThreadLimit` below 64",
            "A reload cannot raise `ThreadLimit`.",
        ),
        UntunedReason(
            "A directive in a section whose module is not loaded",
            "The directive has no effect without its module.",
        ),
        UntunedReason(
            "Directives of the load balancer (`lbmethod`, `proxy_max`, …) in your own files",
            "autotune writes these directives only to files of private servers, and to files with"
            " `replace: true`.",
        ),
        UntunedReason(
            "TLS settings, virtual hosts and access rules",
            "Settings of a site determine what is served.",
        ),
    ),
)
