"""Private helpers of several packages; nothing in here is part of the public interface.

Read `addresses` for what a text names, `net.http` for every HTTP request that we make, and
`lazy` for how packages load on first use.
"""
