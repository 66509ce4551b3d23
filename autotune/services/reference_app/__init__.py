"""The reference application: a PHP job that reads a hundred cached keys per request."""
