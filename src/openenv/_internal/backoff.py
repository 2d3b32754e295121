"""Pauses between attempts: exponential backoff, with jitter where many clients wait at once."""

from __future__ import annotations

import math
import random

__all__ = ["backoff_s"]

LARGEST_EXPONENT = 60  # a float overflows above 1,000


def backoff_s(
    failures: int, first_s: float, longest_s: float = math.inf, *, jitter: float = 0.0
) -> float:
    """Return the seconds to wait after so many failures in a row; 0 after none.

    Args:
        failures: The number of failures in a row.
        first_s: The pause after the first failure; it doubles with each further one.
        longest_s: The longest pause.
        jitter: The random part of the pause, from 0 to 1, so that many clients do not come back at
            once. 1 is "full jitter" (Brooker, Exponential Backoff And Jitter, AWS Architecture
            Blog, 2015).
    """
    if failures < 1:
        return 0.0
    pause_s = min(first_s * 2.0 ** min(failures - 1, LARGEST_EXPONENT), longest_s)
    return pause_s * random.uniform(1.0 - jitter, 1.0)  # nosec B311  # no secret
