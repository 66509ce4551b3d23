"""Access logs of web servers as workloads."""
