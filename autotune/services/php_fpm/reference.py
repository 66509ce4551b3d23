"""The reference page of PHP-FPM."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="`php*-fpm.service` is active. If several versions are running, autotune tunes the one to"
    " which the web server forwards requests.",
    edited="The line in the pool that sets the directive. autotune adds a missing directive below"
    " `pm.max_children`.",
    validated="`php-fpm -t`, with the new files, all includes and the variables of the unit.",
    read_back="`php-fpm -tt`. The length of the accept queue comes from `ss`.",
    untuned=(
        UntunedReason(
            "A directive with different values in several pools",
            "The pools serve different applications. Use one value in all pools to tune the directive.",
        ),
        UntunedReason(
            "`pm.max_children`, if several pools set it",
            "With one value for N pools, N × `pm.max_children` processes could run.",
        ),
        UntunedReason(
            "Environment variables and `php_admin_value`",
            "These values belong to the application, and may contain secrets.",
        ),
    ),
)
