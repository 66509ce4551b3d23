"""What limits a stack: generic rules, and those of the services that run."""
