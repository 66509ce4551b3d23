"""memcached: the cache between the web servers and the store."""
