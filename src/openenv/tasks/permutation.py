"""A pseudorandom permutation of any size that needs no memory.

The permutation is a Feistel network over the smallest even number of bits that fits the size. A
result out of range is permuted again ("cycle walking"; Black and Rogaway 2002, "Ciphers with
Arbitrary Finite Domains", section 3). On average this takes at most four passes.
"""

from __future__ import annotations

import hashlib

ROUNDS = 6
MASK = 2**64 - 1


class Permutation:
    """A permutation of the numbers from 0 to `size` - 1; ``order[3]`` is the fourth number."""

    __slots__ = ("_half", "_keys", "_low", "size")

    def __init__(self, size: int, seed: str) -> None:
        self.size = size
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._low = (1 << self._half) - 1
        digest = hashlib.blake2b(f"{size}:{seed}".encode(), digest_size=8 * ROUNDS).digest()
        self._keys = [
            int.from_bytes(digest[begin : begin + 8], "little")
            for begin in range(0, len(digest), 8)
        ]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: int) -> int:
        if not 0 <= place < self.size:
            raise IndexError(place)
        while True:
            place = self._mix(place)
            if place < self.size:
                return place

    def _mix(self, number: int) -> int:
        left, right = number >> self._half, number & self._low
        for key in self._keys:
            left, right = right, left ^ (_scramble(right ^ key) & self._low)
        return left << self._half | right


def _scramble(number: int) -> int:
    """Apply the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & MASK
    return number ^ (number >> 31)
