"""Discover a target from running hosts."""
