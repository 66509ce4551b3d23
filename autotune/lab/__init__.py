"""Hosts to try a target on: systemd-nspawn machines on a private bridge of this machine."""
