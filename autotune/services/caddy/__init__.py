"""Caddy, as a load balancer or in front of PHP-FPM."""
