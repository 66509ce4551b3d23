"""Kvrocks: a store on disk (RocksDB) that speaks the Redis protocol, for data beyond memory."""
