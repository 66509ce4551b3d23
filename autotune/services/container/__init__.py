"""Resource limits of a tier's container."""
