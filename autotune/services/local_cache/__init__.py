"""A small memcached with short expiry on each web host, in front of the remote memcached."""
