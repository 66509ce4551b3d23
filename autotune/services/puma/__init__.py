"""Puma, which runs applications in Ruby."""
