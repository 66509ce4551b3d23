"""The reference page of Apache, both with mod_php and in front of PHP-FPM."""

from autotune.services.apache.reference import REFERENCE

__all__ = ["REFERENCE"]
