"""Private helpers that several packages share; nothing here is part of the public interface.

Read `targets` and `addresses` for how texts name environments and servers, `net.http` for all HTTP
requests, and `lazy` for how packages load on first use.
"""
