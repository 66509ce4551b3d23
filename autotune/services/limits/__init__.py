"""systemd's open-file limit for the units of a tier."""
