"""Resource limits for a tier's container."""
