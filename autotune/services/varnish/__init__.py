"""Varnish, as an HTTP cache."""
