"""Benchmarks: tables printed, deterministic under a seed."""
