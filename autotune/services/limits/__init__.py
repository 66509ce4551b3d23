"""systemd's limit of open files for a tier's units."""
