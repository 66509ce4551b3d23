"""Real workloads on lab hosts, where settings decide the capacity, and their recorded studies."""
