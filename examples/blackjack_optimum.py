"""The exact expected reward of the best possible player of OpenSpiel's blackjack.

    python examples/blackjack_optimum.py

The game (open_spiel/games/blackjack/blackjack.cc): one deck of 52 cards, dealt afresh for each
hand and without replacement; two cards for the player and two for the dealer, the second of them
face up; the player may only hit or stand; the dealer then draws to 17 and stands on every 17, soft
ones too; +1 for the higher total, -1 for the lower or for going over 21, 0 for a tie; a natural
pays no more than any other 21.

A hand is its ten counts of ace, 2, ..., 9 and ten-valued cards, which is all the information that a
player can use. Until the dealer turns the hidden card over, it is as random as any card in the
deck, so the value of a hand is

    max(stand, sum over cards c of P(c) * value(hand + c)),

with P from the unseen cards, and `stand` from all possible final hands of the dealer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache

__all__ = ["best_table", "of_table", "optimal_value", "policy_value", "table_key"]

Hand = tuple[int, ...]
"""Ten counts: aces, twos, ..., nines, tens and faces."""

Policy = Callable[[Hand, int], float]
"""The probability of hitting, given the hand and the dealer's face-up rank (1 to 10)."""

Key = tuple[int, bool, int]
"""Best total, whether an ace counts eleven in it, and the dealer's face-up rank."""

DECK: Hand = (4, 4, 4, 4, 4, 4, 4, 4, 4, 16)
RANKS = range(1, 11)


def add(hand: Hand, rank: int) -> Hand:
    """Return `hand` with one more card."""
    return (*hand[: rank - 1], hand[rank - 1] + 1, *hand[rank:])


def hard_total(hand: Hand) -> int:
    """Return the total with every ace counted as one."""
    return sum(rank * count for rank, count in zip(RANKS, hand, strict=True))


def is_soft(hand: Hand) -> bool:
    """Return whether an ace can count eleven without going over 21."""
    return hand[0] > 0 and hard_total(hand) <= 11


def best_total(hand: Hand) -> int:
    """Return the best total up to 21, or the lowest total if every total is over 21."""
    return hard_total(hand) + 10 * is_soft(hand)


def table_key(hand: Hand, up: int) -> Key:
    """Return the features of a hand that the learner of `openenv demo` sees."""
    return best_total(hand), is_soft(hand), up


def hand_of(*ranks: int) -> Hand:
    """Return the hand that holds these ranks."""
    counts = Counter(ranks)
    return tuple(counts[rank] for rank in RANKS)


def unseen(hand: Hand, up: int) -> Hand:
    """Return all cards except the player's hand and the dealer's face-up card."""
    left = [have - held for have, held in zip(DECK, hand, strict=True)]
    left[up - 1] -= 1
    return tuple(left)


@cache
def dealer_ends(up: int) -> dict[tuple[Hand, int], int]:
    """Return the number of orders of each (cards drawn, final total) of the dealer."""
    ends: Counter[tuple[Hand, int]] = Counter()

    def draw(drawn: Hand, held: Hand) -> None:
        for rank in RANKS:
            more, hand = add(drawn, rank), add(held, rank)
            if hand[rank - 1] > DECK[rank - 1]:
                continue
            if best_total(hand) >= 17:
                ends[more, best_total(hand)] += 1
            else:
                draw(more, hand)

    draw((0,) * 10, hand_of(up))
    return dict(ends)


@cache
def dealer_plan(up: int) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
    """Return `dealer_ends` as (final total, orders, cards drawn, [(rank index, count)])."""
    return [
        (total, orders, sum(drawn), [(index, n) for index, n in enumerate(drawn) if n])
        for (drawn, total), orders in dealer_ends(up).items()
    ]


def falling(n: int, k: int) -> int:
    """Return n * (n - 1) * ... of k factors: the ways to draw k of n cards in order."""
    product = 1
    for factor in range(n, n - k, -1):
        product *= factor
    return product


FALLING = [[falling(n, k) if k <= n else 0 for k in range(17)] for n in range(53)]


@cache
def stand(hand: Hand, up: int) -> float:
    """Return the expected reward of standing."""
    left = unseen(hand, up)
    cards, mine, value = sum(left), best_total(hand), 0.0
    for total, orders, drawn, counts in dealer_plan(up):
        sign = 1 if total > 21 else (mine > total) - (mine < total)
        if sign:
            ways = orders
            for index, n in counts:
                ways *= FALLING[left[index]][n]
            value += sign * ways / FALLING[cards][drawn]
    return value


def draws(hand: Hand, up: int) -> Iterator[tuple[Hand, float]]:
    """Yield each hand that one more card may give, with its probability."""
    left = unseen(hand, up)
    cards = sum(left)
    for rank in RANKS:
        if left[rank - 1]:
            yield add(hand, rank), left[rank - 1] / cards


@cache
def optimum(hand: Hand, up: int) -> float:
    """Return the value of a hand for the best player."""
    if hard_total(hand) > 21:
        return -1.0
    hit = sum(chance * optimum(more, up) for more, chance in draws(hand, up))
    return max(stand(hand, up), hit)


def deals() -> Iterator[tuple[Hand, int, float]]:
    """Yield each first hand and face-up rank, with their probability."""
    for first in RANKS:
        for second in RANKS:
            for up in RANKS:
                probability, left = 1.0, list(DECK)
                for taken, rank in enumerate((first, second, up)):
                    probability *= left[rank - 1] / (52 - taken)
                    left[rank - 1] -= 1
                yield hand_of(first, second), up, probability


def optimal_value() -> float:
    """Return the expected reward of a hand for a player who uses every card seen."""
    return sum(chance * optimum(hand, up) for hand, up, chance in deals())


@cache
def value(policy: Policy, hand: Hand, up: int) -> float:
    """Return the value of a hand for a player who follows `policy`."""
    if hard_total(hand) > 21:
        return -1.0
    hits, result = policy(hand, up), 0.0
    if hits < 1:
        result += (1 - hits) * stand(hand, up)
    if hits > 0:
        result += hits * sum(chance * value(policy, more, up) for more, chance in draws(hand, up))
    return result


def policy_value(policy: Policy) -> float:
    """Return the expected reward of a hand under `policy`."""
    return sum(chance * value(policy, hand, up) for hand, up, chance in deals())


def best_table() -> dict[Key, bool]:
    """Return the best table of totals: whether to hit, by `table_key`.

    A table ignores single cards. The method is policy iteration: each entry is improved by the gain
    of hitting over standing, averaged over the hands of the entry and weighted by how often the
    table reaches them.
    """
    table: dict[Key, bool] = {}
    while True:
        improved = {key: gain > 0 for key, gain in gains_of_hitting(table).items()}
        if all(table.get(key) == hits for key, hits in improved.items()):
            return table
        table |= improved


def gains_of_hitting(table: dict[Key, bool]) -> dict[Key, float]:
    """Return the gain of hitting once, and then following `table`, over standing, by key."""
    policy = of_table(table)
    gains: defaultdict[Key, float] = defaultdict(float)
    for (hand, up), reach in reached(policy).items():
        hit = sum(chance * value(policy, more, up) for more, chance in draws(hand, up))
        gains[table_key(hand, up)] += reach * (hit - stand(hand, up))
    return gains


def of_table(table: dict[Key, bool]) -> Policy:
    """Return the policy that looks hands up in `table`, and stands if there is no entry."""
    return lambda hand, up: float(table.get(table_key(hand, up), False))


def reached(policy: Policy) -> dict[tuple[Hand, int], float]:
    """Return the probability that `policy` has to decide each hand of 21 or less."""
    total: defaultdict[tuple[Hand, int], float] = defaultdict(float)
    layer: dict[tuple[Hand, int], float] = {}
    for hand, up, chance in deals():
        layer[hand, up] = layer.get((hand, up), 0.0) + chance
    while layer:
        following: dict[tuple[Hand, int], float] = {}
        for (hand, up), reach in layer.items():
            total[hand, up] += reach
            hits = reach * policy(hand, up)
            for more, chance in draws(hand, up) if hits else ():
                if hard_total(more) <= 21:
                    following[more, up] = following.get((more, up), 0.0) + hits * chance
        layer = following
    return total


def main() -> None:
    """Print the expected reward of several players."""
    players: dict[str, float] = {
        "best, by every card seen": optimal_value(),
        "best, by a table of totals": policy_value(of_table(best_table())),
        "draws to 17, as the dealer": policy_value(lambda hand, up: float(best_total(hand) < 17)),
        "at random": policy_value(lambda hand, up: 0.5),
        "always stands": policy_value(lambda hand, up: 0.0),
    }
    for name, reward in players.items():
        print(f"{name:28s}{reward:+.6f}")


if __name__ == "__main__":
    main()
