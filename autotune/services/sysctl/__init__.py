"""Kernel settings of a tier's hosts."""
