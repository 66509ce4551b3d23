"""Lab hosts for a target: systemd-nspawn containers on a private bridge on this machine."""
