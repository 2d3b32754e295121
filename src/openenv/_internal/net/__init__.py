"""HTTP requests, keys, proxies and certificates: one implementation for all callers."""
