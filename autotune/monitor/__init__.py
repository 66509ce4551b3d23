"""Observe the activity of hosts and services during a reading."""
