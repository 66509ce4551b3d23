"""The reference page of PHP's own settings."""

from __future__ import annotations

from autotune.services.reference import ServiceReference, UntunedReason

REFERENCE = ServiceReference(
    recognised="The PHP version that the tuned FPM, or Apache's PHP module, runs. Its files are under"
    " `/etc/php/VERSION`, as on Debian and Ubuntu.",
    edited="`conf.d/zz-autotune.ini` of this PHP build. Files that several builds share are"
    " never edited.",
    validated="The same build reads the new file (`php -i`) and must report each value.",
    read_back="`ini_get` and `opcache_get_status`, in a script that autotune requests through FPM or"
    " Apache on the host itself.",
    untuned=(
        UntunedReason(
            "A setting that a pool sets with `php_value` or `php_admin_value`",
            "The pool overrides the file.",
        ),
        UntunedReason(
            "A setting in a file that is read after `zz-autotune.ini`",
            "The later file overrides `zz-autotune.ini`.",
        ),
        UntunedReason(
            "OPcache settings, if the extension is not loaded",
            "OPcache settings have no effect without OPcache.",
        ),
        UntunedReason("`opcache.preload` without a script", "autotune does not write a script."),
        UntunedReason(
            "PHP on Fedora, RHEL and SUSE",
            "PHP's files have other paths there, which autotune does not support.",
        ),
    ),
)
