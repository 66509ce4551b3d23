"""Workloads on lab hosts: real applications whose capacity depends on settings."""
