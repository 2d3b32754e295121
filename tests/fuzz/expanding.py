"""Small inputs that become large ones, so that a fuzzer need not grow them byte by byte.

``*`` at the beginning, and then three parts with `APART` between them, stand for the first part,
as many of the second as make `SIZE` bytes, and the third. ``%d`` in the second is its number.
"""

from __future__ import annotations

__all__ = ["APART", "SIZE", "expanded", "repeated", "size"]

APART = b"\x1e\x1e"
SIZE = 100_000
HEAD = 6  # bytes of a client's frame (RFC 6455, section 5.2)


def expanded(data: bytes) -> bytes:
    """What an input stands for."""
    if not data.startswith(b"*"):
        return data
    before, _, rest = data[1:].partition(APART)
    again, _, after = rest.partition(APART)
    if not again:
        return before + after
    count = SIZE // len(again)
    if b"%d" in again:
        return before + b"".join(again.replace(b"%d", b"%d" % n) for n in range(count)) + after
    return before + again * count + after


def repeated(again: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    """Write such an input."""
    return b"*" + before + APART + again + APART + after


def size(data: bytes) -> int:
    """How many bytes an input stands for, with the heads of the frames that it is split into."""
    whole = expanded(data)
    return len(whole) + HEAD * whole.count(APART)
