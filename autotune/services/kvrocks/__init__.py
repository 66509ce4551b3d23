"""Kvrocks: an on-disk store (RocksDB) with the Redis protocol, for data larger than memory."""
