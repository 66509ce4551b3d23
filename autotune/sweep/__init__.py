"""Grids of settings and host counts, measured in shuffled order and drawn as figures."""
