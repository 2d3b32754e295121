"""The network door: HTTP requests, keys, proxies and certificates, decided once for all callers."""
