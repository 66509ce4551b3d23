"""Apache has one reference page, for both ways in which it runs."""

from autotune.services.apache.reference import REFERENCE

__all__ = ["REFERENCE"]
