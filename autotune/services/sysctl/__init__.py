"""The kernel of a tier's hosts."""
