"""The reference page of Apache, which covers both ways in which it runs PHP."""

from autotune.services.apache.reference import REFERENCE

__all__ = ["REFERENCE"]
