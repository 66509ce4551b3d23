"""The reference application: a PHP job of a hundred cached keys a request."""
