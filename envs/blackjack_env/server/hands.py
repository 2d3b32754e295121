"""The rules of blackjack as Sutton and Barto play it (2018, example 5.1).

They are those of Gymnasium's Blackjack-v1: cards are drawn with replacement, the dealer draws to
17, soft or hard, and there is neither doubling nor splitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

from ..models import Rank

__all__ = ["LONGEST_DEAL", "RANKS", "Hand", "dealer_stands", "is_natural", "payout", "value"]

RANKS: tuple[Rank, ...] = get_args(Rank)
_VALUES = {rank: min(index, 10) for index, rank in enumerate(RANKS, start=1)}
_LIMIT = 21
_DEALER_STANDS_AT = 17

# Cards that a player can draw (21 aces and one more) and a dealer (less, as 17 is enough).
LONGEST_DEAL = 22 + 17


class Hand(NamedTuple):
    """What cards are worth."""

    total: int
    usable_ace: bool

    @classmethod
    def of(cls, cards: Sequence[Rank]) -> Hand:
        """Add cards up; one ace counts 11 where that is no bust."""
        hard = sum(map(value, cards))
        usable = "A" in cards and hard + 10 <= _LIMIT
        return cls(hard + 10 if usable else hard, usable)

    @property
    def is_bust(self) -> bool:
        """It is over 21, and lost."""
        return self.total > _LIMIT


def value(card: Rank) -> int:
    """What a card counts, an ace 1."""
    return _VALUES[card]


def is_natural(cards: Sequence[Rank]) -> bool:
    """Two cards that make 21."""
    return len(cards) == 2 and Hand.of(cards).total == _LIMIT


def dealer_stands(cards: Sequence[Rank]) -> bool:
    """The dealer takes no further card."""
    return Hand.of(cards).total >= _DEALER_STANDS_AT


def payout(player: Sequence[Rank], dealer: Sequence[Rank], *, natural: bool, sab: bool) -> float:
    """What a finished hand pays.

    Args:
        player: The player's cards.
        dealer: The dealer's cards; those on the table where the player is bust.
        natural: A natural that wins pays 1.5; without effect under `sab`.
        sab: A natural beats every hand of the dealer's but another natural.
    """
    mine, theirs = Hand.of(player), Hand.of(dealer)
    if mine.is_bust:
        return -1.0
    if sab and is_natural(player) and not is_natural(dealer):
        return 1.0
    score = 0 if theirs.is_bust else theirs.total
    reward = float((mine.total > score) - (mine.total < score))
    return 1.5 if reward == 1.0 and natural and not sab and is_natural(player) else reward
