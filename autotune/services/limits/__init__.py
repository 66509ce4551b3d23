"""What systemd lets the units of a tier open."""
