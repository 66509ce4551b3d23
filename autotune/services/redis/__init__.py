"""Redis: the store behind the cache."""
