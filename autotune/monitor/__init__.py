"""Activity of hosts and services during a reading."""
