"""Puma, which runs Ruby applications."""
