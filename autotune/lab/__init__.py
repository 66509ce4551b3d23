"""Lab hosts for a target: systemd-nspawn containers on a private bridge of this machine."""
