"""The reference page of the reference application."""

from __future__ import annotations

from autotune.services.reference import ServiceReference

REFERENCE = ServiceReference(
    recognised="A tier with `app: reference`.",
    edited="`kv.php` in the document root. `kv.php` exists only during the study, or on the hosts of a"
    " lab.",
    validated="The body of the first response, which must contain every requested key.",
    read_back="The reference application has no parameters to read back.",
)
