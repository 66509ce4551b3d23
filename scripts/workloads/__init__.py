"""Real workloads on lab hosts whose capacity depends on settings, and their recorded studies."""
