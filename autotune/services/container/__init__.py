"""What the container of a tier may use of its host."""
