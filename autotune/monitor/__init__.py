"""What hosts and services do while a reading runs."""
