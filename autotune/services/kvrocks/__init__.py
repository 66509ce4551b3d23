"""Kvrocks: an on-disk store (RocksDB) with the Redis protocol, for data that exceed the memory."""
