"""A small, short-lived memcached on each web host, in front of the remote one."""
