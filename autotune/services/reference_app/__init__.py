"""The reference application: a PHP script that reads a hundred cached keys per request."""
