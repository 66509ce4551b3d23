"""Diagnosis of the bottleneck: generic rules, and the rules of the running services."""
