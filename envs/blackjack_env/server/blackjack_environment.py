"""Blackjack against a dealer with fixed rules.

The rules and defaults are those of Gymnasium's Blackjack-v1 (Farama Foundation), after Sutton and
Barto 2018, "Reinforcement Learning: An Introduction", 2nd edition, example 5.1.
"""

from __future__ import annotations

import hashlib
import uuid
from itertools import combinations_with_replacement
from random import Random
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from openenv.environment import Environment, restart, termination, transition
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import (
    BlackjackAction,
    BlackjackObservation,
    BlackjackState,
    BlackjackTask,
    Move,
    Rank,
)
from .hands import LONGEST_DEAL, RANKS, Hand, card_value, dealer_stands, payout
from .picture import HIDDEN, table_svg

__all__ = ["BlackjackEnvironment"]

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
_TEST_SHARE = 0.2

_DEALT = 4  # two cards of the dealer's, then two of the player's


class BlackjackEnvironment(Environment[BlackjackAction, BlackjackObservation, BlackjackState]):
    """Blackjack, one hand per episode.

    Cards are drawn with replacement, so counting them is of no use. The dealer gets two cards,
    the first face up, then the player gets two. The player hits or stands. Then the dealer draws
    to 17, soft or hard. A win pays 1, a loss -1, a draw 0.

    The seed determines all cards of a hand, drawn or not. With a task, it determines all but the
    three visible cards at the start.

    Args:
        natural: Pay 1.5 for a natural (an ace and a ten) that wins. It has no effect with `sab`.
        sab: Play by the rules of Sutton and Barto: a natural beats every hand except another
            natural, also a 21 of more cards. The default is that of Gymnasium's Blackjack-v1.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    NEVER_BLOCKS: ClassVar[bool] = True
    REWARD = RewardSpec("terminal", range=(-1.0, 1.5), components=("outcome", "natural"))

    def __init__(self, natural: bool = False, sab: bool = True) -> None:
        super().__init__()
        self._default_natural = self._natural = _check_boolean("natural", natural)
        self._default_sab = self._sab = _check_boolean("sab", sab)
        self._shoe: list[Rank] = []
        self._hits = 0
        self._stood = False
        self._task: str | None = None
        self._episode_id: str | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | BlackjackTask | None = None,
        natural: bool | None = None,
        sab: bool | None = None,
    ) -> BlackjackObservation:
        """Deal a hand.

        Args:
            seed: Determines the cards; any integer. None deals a fresh random hand.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task or its id. It fixes the visible cards at the start.
            natural: The class's `natural` for this hand; None uses the environment's own.
            sab: The class's `sab` for this hand; None uses the environment's own.

        Raises:
            Refused: The task is unknown, or an argument has the wrong type. The running hand
                continues.
        """
        natural = self._default_natural if natural is None else _check_boolean("natural", natural)
        sab = self._default_sab if sab is None else _check_boolean("sab", sab)
        known = None if task is None else _find_task(task)
        shoe = _make_generator(seed).choices(RANKS, k=_DEALT + LONGEST_DEAL)
        if known is not None:
            shoe[0] = known.dealer_card
            shoe[2:_DEALT] = known.player_cards
        self._natural, self._sab = natural, sab
        self._shoe, self._hits, self._stood = shoe, 0, False
        self._task = None if known is None else known.id
        self._episode_id = episode_id or str(uuid.uuid4())
        return restart(self._observe())

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: BlackjackAction
    ) -> BlackjackObservation:
        """Take a card, or stand and let the dealer play.

        Raises:
            Refused: No hand is running. Nothing changes.
        """
        if not self._shoe:
            raise Refused("step() was called before reset(): no cards are dealt")
        if self._is_over:
            raise Refused("step() was called after done: the hand is over, call reset()")
        if action.action == "hit":
            self._hits += 1
        else:
            self._stood = True
        observation = self._observe()
        return (
            termination(observation, _score(self._payout))
            if self._is_over
            else transition(observation, 0.0)
        )

    @property
    def state(self) -> BlackjackState:
        """The state of the hand, with the dealer's hidden card as a private field."""
        return BlackjackState(
            episode_id=self._episode_id,
            step_count=self._hits + self._stood,
            natural=self._natural,
            sab=self._sab,
            task=self._task,
            dealer_hidden=self._shoe[1] if self._shoe else None,
        )

    def render(self) -> str:
        """Draw the table as SVG.

        Raises:
            Refused: There is no hand yet.
        """
        if not self._shoe:
            raise Refused("render() was called before reset(): no cards are dealt")
        player, dealer = self._player, self._dealer_shown
        face_down = [] if self._stood else [HIDDEN]
        rows: list[tuple[str, list[Rank | str]]] = [
            (f"dealer: {_describe_total(dealer)}", [*dealer, *face_down]),
            (f"player: {_describe_total(player)}", [*player]),
        ]
        return table_svg(rows)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the hand: its cards, including those to come, and the moves.

        Raises:
            Refused: There is no hand yet.
        """
        if not self._shoe:
            raise Refused("snapshot() was called before reset(): there is no hand to store")
        stored = _Snapshot(
            shoe=self._shoe,
            hits=self._hits,
            stood=self._stood,
            natural=self._natural,
            sab=self._sab,
            task=self._task,
            episode_id=self._episode_id,
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored hand.

        Raises:
            ValueError: `snapshot` did not write these bytes. Nothing changes.
        """
        stored = _Snapshot.model_validate_json(data)
        shoe = stored.shoe
        before_last = Hand.of(shoe[2 : _DEALT + stored.hits - 1]) if stored.hits else None
        now = Hand.of(shoe[2 : _DEALT + stored.hits])
        if (before_last is not None and before_last.is_bust) or (stored.stood and now.is_bust):
            raise ValueError("the stored hand has a move that was made after its end")
        if stored.task is not None:
            known = _find_task(stored.task)
            if (shoe[0], *shoe[2:_DEALT]) != (known.dealer_card, *known.player_cards):
                raise ValueError("the stored hand is not that of its task")
        self._shoe, self._hits, self._stood = shoe, stored.hits, stored.stood
        self._natural, self._sab = stored.natural, stored.sab
        self._task, self._episode_id = stored.task, stored.episode_id

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the splits ``train`` and ``test``, which share no situation."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[BlackjackTask]:
        """Return every situation of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the situations of a split."""
        return len(_TASKS[_check_split(split)])

    def get_task(self, split: str, index: int) -> BlackjackTask:
        """Return one situation.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        tasks = _TASKS[_check_split(split)]
        if not 0 <= index < len(tasks):
            raise IndexError(f"{split} has tasks 0 to {len(tasks) - 1}, not {index}")
        return tasks[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[BlackjackTask]:
        """Return the situations of the slice ``[start:stop]``."""
        return _TASKS[_check_split(split)][start:stop]

    # ------------------------------------------------------------------ a hand

    @property
    def _player(self) -> list[Rank]:
        return self._shoe[2 : _DEALT + self._hits]

    @property
    def _dealer_shown(self) -> list[Rank]:
        """The dealer's visible cards."""
        if not self._stood:
            return self._shoe[:1]
        cards = self._shoe[:2]
        coming = iter(self._shoe[_DEALT + self._hits :])
        while not dealer_stands(cards):
            cards.append(next(coming))
        return cards

    @property
    def _is_over(self) -> bool:
        return self._stood or Hand.of(self._player).is_bust

    @property
    def _payout(self) -> float:
        player, dealer = self._player, self._dealer_shown
        return payout(player, dealer, natural=self._natural, sab=self._sab)

    def _observe(self) -> BlackjackObservation:
        player, dealer = self._player, self._dealer_shown
        mine = Hand.of(player)
        return BlackjackObservation(
            text=self._describe(player, dealer),
            player_cards=player,
            player_total=mine.total,
            usable_ace=mine.usable_ace,
            dealer_cards=dealer,
            dealer_value=card_value(dealer[0]),
            legal_actions=[] if self._is_over else list(get_args(Move)),
            outcome=_outcome_of(self._payout) if self._is_over else None,
        )

    def _describe(self, player: list[Rank], dealer: list[Rank]) -> str:
        lines = [f"Your hand: {' '.join(player)} ({_describe_total(player)})."]
        if self._stood:
            lines.append(f"Dealer's hand: {' '.join(dealer)} ({_describe_total(dealer)}).")
        else:
            lines.append(f"Dealer shows: {dealer[0]}.")
        if not self._is_over:
            lines.append("Hit or stand?")
        else:
            verdict = {"win": "You win", "lose": "You lose", "draw": "It is a draw"}
            lines.append(f"{verdict[_outcome_of(self._payout)]} ({self._payout:+g}).")
        return "\n".join(lines)


class _Snapshot(BaseModel):
    """A stored hand."""

    model_config = ConfigDict(extra="forbid")

    shoe: list[Rank] = Field(min_length=_DEALT + LONGEST_DEAL, max_length=_DEALT + LONGEST_DEAL)
    hits: int = Field(ge=0, le=LONGEST_DEAL)
    stood: bool
    natural: bool
    sab: bool
    task: str | None
    episode_id: str | None


def _describe_total(cards: list[Rank]) -> str:
    hand = Hand.of(cards)
    return f"bust with {hand.total}" if hand.is_bust else f"{_soft_prefix(hand)}{hand.total}"


def _soft_prefix(hand: Hand) -> str:
    return "soft " if hand.usable_ace else ""


def _score(paid: float) -> Score:
    """Split the payout of a finished hand into its outcome and the bonus of a natural."""
    outcome = min(paid, 1.0)
    parts = {"outcome": outcome, "natural": paid - outcome}
    return Score(paid, {name: part for name, part in parts.items() if part or name == "outcome"})


def _outcome_of(reward: float) -> Literal["win", "lose", "draw"]:
    return "draw" if reward == 0 else "win" if reward > 0 else "lose"


def _check_boolean(name: str, given: bool) -> bool:
    if type(given) is not bool:
        raise Refused(f"{name} must be true or false, not {given!r}")
    return given


def _make_generator(seed: int | None) -> Random:
    if seed is None:
        return Random()  # nosec B311  # a game's dice
    if type(seed) is not int:
        raise Refused(f"seed must be an integer or null, not {seed!r}")
    # Random ignores the sign of an integer, but -1 must not deal the same hand as 1.
    return Random(seed if seed >= 0 else str(seed))  # nosec B311  # a game's dice


# ------------------------------------------------------------------ situations


def _make_tasks() -> dict[Split, list[BlackjackTask]]:
    tasks: dict[Split, list[BlackjackTask]] = {split: [] for split in SPLITS}
    ten_values = RANKS[:10]  # a jack plays like a ten
    for cards in combinations_with_replacement(ten_values, 2):
        for dealer in ten_values:
            task = _make_task(cards, dealer)
            tasks[task.split].append(task)
    return tasks


def _make_task(cards: tuple[Rank, Rank], dealer: Rank) -> BlackjackTask:
    name = f"{cards[0]}-{cards[1]}-vs-{dealer}"
    place = hashlib.blake2b(name.encode(), digest_size=8, person=b"blackjack_env").digest()
    return BlackjackTask(
        id=name,
        split="test" if int.from_bytes(place, "big") < _TEST_SHARE * 2**64 else "train",
        player_cards=cards,
        dealer_card=dealer,
        instruction=f"Play {cards[0]} and {cards[1]} against a dealer who shows {dealer}.",
    )


_TASKS = _make_tasks()
_BY_ID = {task.id: task for tasks in _TASKS.values() for task in tasks}


def _check_split(split: str) -> Split:
    if split not in SPLITS:
        raise Refused(f"there is no split {split!r}; there are {' and '.join(SPLITS)}")
    return split


def _find_task(task: str | dict[str, Any] | BlackjackTask) -> BlackjackTask:
    if isinstance(task, BlackjackTask):
        name: Any = task.id
    else:
        name = task.get("id") if isinstance(task, dict) else task
    known = _BY_ID.get(name) if isinstance(name, str) else None
    if known is None:
        raise Refused(
            f"there is no task {name!r}; expected a task, or its id: the player's cards, the lower "
            "one first (A is 1, no J, Q, K), and the dealer's, as in 6-10-vs-9"
        )
    return known
