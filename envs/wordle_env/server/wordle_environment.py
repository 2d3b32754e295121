"""Guess a secret five-letter word: the rules are those of the newspaper game Wordle."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openenv.environment import Environment, restart, termination, transition, truncation
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import (
    WORD_LENGTH,
    MarkedGuess,
    WordleAction,
    WordleObservation,
    WordleState,
    WordleTask,
)
from .marking import best_marks, known_share, mark, unused_hint
from .picture import board_svg
from .words import SPLITS, WORDS, Split, digest, split_of, words_of

__all__ = ["WordleEnvironment", "WordleRules"]

_VOWELS = frozenset("aeiouy")
_SHOWN_CHARACTERS = 40  # of a guess that is quoted back


class WordleRules(BaseModel):
    """The rules of an episode."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    hard_mode: bool = Field(default=False, description="What is known must be used.")
    max_guesses: int = Field(default=6, ge=1, le=20, description="Guesses that count.")
    max_rejected: int = Field(
        default=10, ge=0, description="Guesses that may be rejected before the episode is cut off."
    )
    accept: Literal["letters", "listed"] = Field(
        default="letters",
        description="letters: any five letters with a vowel (y is one) count as a word. "
        "listed: only the words that may be a secret, of both splits.",
    )


class WordleEnvironment(Environment[WordleAction, WordleObservation, WordleState]):
    """Guess a secret five-letter word from coloured marks.

    A guess that is no word, or that hard mode does not allow, costs none of the guesses: the
    observation says what was wrong, with `accepted=False`. After `max_rejected` of them the next
    one cuts the episode off (`done` and `truncated`).

    The secret is all that is left to chance; it depends on `seed` and `split`, or on the task.

    Args:
        hard_mode: Letters that are known must be used in every further guess.
        max_guesses: Guesses of an episode, 1 to 20.
        max_rejected: Guesses that may be rejected, in an episode.
        accept: What counts as a word: any five ``letters`` with a vowel, or ``listed`` words.

    Raises:
        ValueError: An argument is none of these values.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    NEVER_BLOCKS: ClassVar[bool] = True
    REWARD = RewardSpec("terminal", (0.0, 1.0), ("solved",))

    def __init__(
        self,
        hard_mode: bool = False,
        max_guesses: int = 6,
        max_rejected: int = 10,
        accept: Literal["letters", "listed"] = "letters",
    ) -> None:
        super().__init__()
        self._default = self._rules = _rules(
            hard_mode=hard_mode, max_guesses=max_guesses, max_rejected=max_rejected, accept=accept
        )
        self._secret: str | None = None
        self._guesses: list[MarkedGuess] = []
        self._rejected = 0
        self._episode_id: str | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | dict[str, Any] | WordleTask | None = None,
        split: Split = "train",
        hard_mode: bool | None = None,
        max_guesses: int | None = None,
        max_rejected: int | None = None,
        accept: Literal["letters", "listed"] | None = None,
    ) -> WordleObservation:
        """Choose a secret.

        Args:
            seed: Determines the secret within the split; any integer. None chooses afresh.
            episode_id: Becomes `state.episode_id`; None makes one up.
            task: A task, or its id. It decides the secret, so that seed and split have no say.
            split: The words to choose from, ``train`` or ``test``.
            hard_mode: Another rule for this episode, as are those that follow; None takes the
                environment's own.
            max_guesses: See the class.
            max_rejected: See the class.
            accept: See the class.

        Raises:
            Refused: There is no such task, split or rule. The running episode goes on.
        """
        given = {
            "hard_mode": hard_mode,
            "max_guesses": max_guesses,
            "max_rejected": max_rejected,
            "accept": accept,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        rules = _rules(**{**self._default.model_dump(), **changed})
        secret = _drawn(seed, split) if task is None else _secret_of(task)
        self._begin(secret, rules, episode_id or str(uuid.uuid4()))
        return restart(self._observe(self._instruction(), accepted=None))

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: WordleAction
    ) -> WordleObservation:
        """Mark a guess.

        Raises:
            Refused: There is no running episode. Nothing changes.
        """
        secret = self._running_secret()
        word = action.guess.strip().lower()
        objection = self._objection(word)
        if objection is not None:
            return self._reject(action.guess, objection)
        before = known_share(self._guesses)
        self._guesses.append(MarkedGuess(word=word, marks=mark(word, secret)))
        observation = self._observe(self._report(), accepted=True)
        observation.metadata["shaping"] = round(known_share(self._guesses) - before, 6)
        if self._solved or self._guesses_left == 0:
            solved = float(self._solved)
            return termination(observation, Score(solved, {"solved": solved}))
        return transition(observation, 0.0)

    @property
    def state(self) -> WordleState:
        """Where the episode stands; the secret is a private field of it."""
        return WordleState(
            episode_id=self._episode_id,
            step_count=len(self._guesses) + self._rejected,
            secret=self._secret,
            task=None if self._secret is None else _task_id(self._secret),
            hard_mode=self._rules.hard_mode,
            max_guesses=self._rules.max_guesses,
            guesses_used=len(self._guesses),
            rejected=self._rejected,
            solved=self._solved,
        )

    def render(self) -> str:
        """Draw the board as SVG.

        Raises:
            Refused: There is no episode yet.
        """
        if self._secret is None:
            raise Refused("render() was called before reset(): there is no board to draw")
        return board_svg(self._guesses, self._rules.max_guesses)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the secret, the guesses and the rules.

        Raises:
            Refused: There is no episode yet.
        """
        if self._secret is None:
            raise Refused("snapshot() was called before reset(): there is no episode to store")
        stored = _Snapshot(
            secret=self._secret,
            guesses=[guess.word for guess in self._guesses],
            rejected=self._rejected,
            rules=self._rules,
            episode_id=self._episode_id,
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Go on with a stored episode. Its guesses are made again, and each is checked.

        Raises:
            ValueError: The bytes are none that `snapshot` has written. Nothing changes.
        """
        stored = _Snapshot.model_validate_json(data)
        if stored.secret not in WORDS:
            raise ValueError("the stored secret is none of this environment's words")
        if stored.rejected > stored.rules.max_rejected + 1:
            raise ValueError("the stored episode has more rejected guesses than its rules allow")
        again = WordleEnvironment()
        again._begin(stored.secret, stored.rules, stored.episode_id)
        for word in stored.guesses:
            if again._is_over or again._objection(word) is not None:
                raise ValueError("the stored episode has a guess that cannot have been made")
            again._guesses.append(MarkedGuess(word=word, marks=mark(word, stored.secret)))
        self._begin(stored.secret, stored.rules, stored.episode_id)
        self._guesses, self._rejected = again._guesses, stored.rejected

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """The splits: ``train`` and ``test``, which have no word in common."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[WordleTask]:
        """Every word of a split, as a task that does not tell it."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the words of a split."""
        return len(words_of(_known_split(split)))

    def get_task(self, split: str, index: int) -> WordleTask:
        """The task of one word.

        Raises:
            IndexError: The split has fewer words, or the index is negative.
        """
        words = words_of(_known_split(split))
        if not 0 <= index < len(words):
            raise IndexError(f"{split} has tasks 0 to {len(words) - 1}, not {index}")
        return _task(words[index])

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[WordleTask]:
        """The tasks from `start` to before `stop`, as a slice gives them."""
        return [_task(word) for word in words_of(_known_split(split))[start:stop]]

    # ------------------------------------------------------------------ an episode

    def _begin(self, secret: str, rules: WordleRules, episode_id: str | None) -> None:
        self._secret = secret
        self._rules = rules
        self._guesses = []
        self._rejected = 0
        self._episode_id = episode_id

    @property
    def _solved(self) -> bool:
        return bool(self._guesses) and self._guesses[-1].word == self._secret

    @property
    def _guesses_left(self) -> int:
        return self._rules.max_guesses - len(self._guesses)

    @property
    def _is_cut_off(self) -> bool:
        return self._rejected > self._rules.max_rejected

    @property
    def _is_over(self) -> bool:
        return self._solved or self._guesses_left == 0 or self._is_cut_off

    def _running_secret(self) -> str:
        if self._secret is None:
            raise Refused("step() was called before reset(): there is no word to guess")
        if self._is_over:
            raise Refused("step() was called after done: the episode is over, call reset()")
        return self._secret

    def _objection(self, word: str) -> str | None:
        """Why a guess does not count; None if it does."""
        if len(word) != WORD_LENGTH or not (word.isascii() and word.isalpha()):
            return f"a guess has {WORD_LENGTH} letters from A to Z"
        if self._rules.accept == "listed" and word not in WORDS:
            return "it is not in the list of words"
        if not _VOWELS.intersection(word):
            return "it is no word, as it has no vowel"
        return unused_hint(word, self._guesses) if self._rules.hard_mode else None

    def _reject(self, guess: str, objection: str) -> WordleObservation:
        self._rejected += 1
        quoted = guess if len(guess) <= _SHOWN_CHARACTERS else guess[:_SHOWN_CHARACTERS] + "..."
        text = f"{quoted!r} does not count: {objection}. {self._outlook()}"
        if self._is_cut_off:
            text += f"\nThe episode is cut off after {self._rejected} guesses that did not count."
            return truncation(self._observe(text, accepted=False), 0.0)
        return transition(self._observe(text, accepted=False), 0.0)

    def _observe(self, text: str, accepted: bool | None) -> WordleObservation:
        over = self._is_over
        return WordleObservation(
            text=text,
            guesses=list(self._guesses),
            guesses_left=self._guesses_left,
            accepted=accepted,
            letters=best_marks(self._guesses),
            solved=self._solved,
            answer=self._secret if over else None,
        )

    # ------------------------------------------------------------------ words for the agent

    def _instruction(self) -> str:
        lines = [
            f"Guess the secret word of {WORD_LENGTH} letters. {self._outlook()}",
            "Each letter of a guess is marked: green, it stands in its place; yellow, it is in "
            "the word, but elsewhere; grey, it is not in the word (any more often).",
        ]
        if self._rules.hard_mode:
            lines.append("Hard mode: green and yellow letters must be used in further guesses.")
        return "\n".join(lines)

    def _report(self) -> str:
        guess = self._guesses[-1]
        marked = ", ".join(
            f"{letter.upper()} {given}"
            for letter, given in zip(guess.word, guess.marks, strict=True)
        )
        if self._solved:
            return f"{marked}. Solved with guess {len(self._guesses)}."
        if self._guesses_left == 0:
            return f"{marked}. No guess is left; the word was {str(self._secret).upper()}."
        return f"{marked}. {self._outlook()}"

    def _outlook(self) -> str:
        left = self._guesses_left
        return f"{left} guess{'' if left == 1 else 'es'} left."


class _Snapshot(BaseModel):
    """A stored episode."""

    model_config = ConfigDict(extra="forbid")

    secret: str
    guesses: list[str]
    rejected: int = Field(ge=0)
    rules: WordleRules
    episode_id: str | None


def _rules(**given: Any) -> WordleRules:
    try:
        return WordleRules.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refused(f"{first['loc'][0]}={first['input']!r}: {first['msg']}") from None


def _drawn(seed: int | None, split: str) -> str:
    words = words_of(_known_split(split))
    return words[_generator(seed).randrange(len(words))]


def _generator(seed: int | None) -> Random:
    if seed is None:
        return Random()  # nosec B311  # a game's dice
    if type(seed) is not int:
        raise Refused(f"seed must be an integer or null, not {seed!r}")
    # Random ignores the sign of an integer, and -1 shall not begin the same game as 1.
    return Random(seed if seed >= 0 else str(seed))  # nosec B311  # a game's dice


def _known_split(split: str) -> Split:
    for known in SPLITS:
        if split == known:
            return known
    raise Refused(f"there is no split {split!r}; there are {' and '.join(SPLITS)}")


def _task_id(word: str) -> str:
    return f"{split_of(word)}/{digest(word)}"


def _task(word: str) -> WordleTask:
    return WordleTask(
        id=_task_id(word),
        split=split_of(word),
        instruction=f"Guess the secret word of {WORD_LENGTH} letters.",
    )


_SECRETS = {_task_id(word): word for word in WORDS}


def _secret_of(task: str | dict[str, Any] | WordleTask) -> str:
    if isinstance(task, WordleTask):
        name: Any = task.id
    else:
        name = task.get("id") if isinstance(task, dict) else task
    secret = _SECRETS.get(name) if isinstance(name, str) else None
    if secret is None:
        raise Refused(
            f"there is no task {name!r}; expected a task, or its id, such as "
            f"{_task_id(words_of('train')[0])!r}"
        )
    return secret
