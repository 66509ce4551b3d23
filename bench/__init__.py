"""Benchmarks that print tables. Their results depend only on the seed."""
