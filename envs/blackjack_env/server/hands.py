"""The rules of blackjack by Sutton and Barto (2018, example 5.1), as in Gymnasium's Blackjack-v1.

Cards are drawn with replacement. The dealer draws to 17, soft or hard. There is neither doubling
nor splitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

from ..models import Rank

__all__ = ["LONGEST_DEAL", "RANKS", "Hand", "dealer_stands", "is_natural", "payout", "card_value"]

RANKS: tuple[Rank, ...] = get_args(Rank)
_VALUES = {rank: min(index, 10) for index, rank in enumerate(RANKS, start=1)}
_LIMIT = 21
_DEALER_STANDS_AT = 17

# A player can draw at most 21 aces and one more card, a dealer fewer than 17 cards.
LONGEST_DEAL = 22 + 17


class Hand(NamedTuple):
    """The value of some cards."""

    total: int
    usable_ace: bool

    @classmethod
    def of(cls, cards: Sequence[Rank]) -> Hand:
        """Add the cards up; one ace counts 11 unless that is a bust."""
        hard = sum(map(card_value, cards))
        usable = "A" in cards and hard + 10 <= _LIMIT
        return cls(hard + 10 if usable else hard, usable)

    @property
    def is_bust(self) -> bool:
        """Whether the total is over 21, so that the hand is lost."""
        return self.total > _LIMIT


def card_value(card: Rank) -> int:
    """Return the value of a card; an ace counts 1."""
    return _VALUES[card]


def is_natural(cards: Sequence[Rank]) -> bool:
    """Return whether these are two cards that make 21."""
    return len(cards) == 2 and Hand.of(cards).total == _LIMIT


def dealer_stands(cards: Sequence[Rank]) -> bool:
    """Return whether the dealer takes no further card."""
    return Hand.of(cards).total >= _DEALER_STANDS_AT


def payout(player: Sequence[Rank], dealer: Sequence[Rank], *, natural: bool, sab: bool) -> float:
    """Return the payout of a finished hand.

    Args:
        player: The player's cards.
        dealer: The dealer's cards; if the player is bust, those on the table.
        natural: Pay 1.5 for a natural that wins; no effect with `sab`.
        sab: A natural beats every dealer's hand except another natural.
    """
    mine, theirs = Hand.of(player), Hand.of(dealer)
    if mine.is_bust:
        return -1.0
    if sab and is_natural(player) and not is_natural(dealer):
        return 1.0
    score = 0 if theirs.is_bust else theirs.total
    reward = float((mine.total > score) - (mine.total < score))
    return 1.5 if reward == 1.0 and natural and not sab and is_natural(player) else reward
