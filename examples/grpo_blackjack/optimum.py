"""The exact expected reward of the best player of `blackjack_env` with its default rules.

    python examples/grpo_blackjack/optimum.py

Cards are drawn with replacement, so the state of a hand is its total, whether an ace counts eleven
in it, and the dealer's visible card (Sutton and Barto 2018, example 5.1). A natural, 21 with the
first two cards, beats every hand except another natural.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

__all__ = ["optimum"]

CARDS = dict.fromkeys(range(1, 10), 1 / 13) | {10: 4 / 13}
Hand = tuple[int, bool]


def add(hand: Hand, rank: int) -> Hand:
    """Add a card to a hand: return its best total, and whether an ace counts eleven."""
    total, is_soft = hand
    total += rank
    if rank == 1 and total + 10 <= 21:
        return total + 10, True
    return (total - 10, False) if is_soft and total > 21 else (total, is_soft)


@cache
def dealt(hand: Hand) -> Counter[int]:
    """Return the probability of each final total of the dealer, who draws to 17."""
    if hand[0] >= 17:
        return Counter({hand[0]: 1.0})  # type: ignore[dict-item]
    ends: Counter[int] = Counter()
    for rank, chance in CARDS.items():
        for total, likely in dealt(add(hand, rank)).items():
            ends[total] += chance * likely  # type: ignore[assignment]
    return ends


def stand(total: int, shown: int) -> float:
    """Return the expected reward of standing."""
    return sum(
        likely * (1 if other > 21 else (total > other) - (total < other))
        for other, likely in dealt(add((0, False), shown)).items()
    )


@cache
def value(hand: Hand, shown: int) -> float:
    """Return the expected reward of a hand for the best player."""
    if hand[0] > 21:
        return -1.0
    hit = sum(chance * value(add(hand, rank), shown) for rank, chance in CARDS.items())
    return max(hit, stand(hand[0], shown))


def first_value(hand: Hand, shown: int) -> float:
    """Return the expected reward of the first two cards for the best player."""
    if hand[0] < 21:
        return value(hand, shown)
    makes_natural = {1: CARDS[10], 10: CARDS[1]}
    return 1.0 - makes_natural.get(shown, 0.0)


def optimum() -> float:
    """Return the mean reward of the best player over all deals."""
    return sum(
        of_first * of_second * of_shown * first_value(add(add((0, False), first), second), shown)
        for first, of_first in CARDS.items()
        for second, of_second in CARDS.items()
        for shown, of_shown in CARDS.items()
    )


if __name__ == "__main__":
    print(f"{optimum():+.6f}")
