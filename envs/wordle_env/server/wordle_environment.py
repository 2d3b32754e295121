"""A game of guessing a secret five-letter word, by the rules of the newspaper's Wordle."""

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
_SHOWN_CHARACTERS = 40  # maximum length of a guess that is quoted in an observation


class WordleRules(BaseModel):
    """The rules of an episode."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    hard_mode: bool = Field(default=False, description="Whether guesses must use known letters.")
    max_guesses: int = Field(default=6, ge=1, le=20, description="Guesses that count.")
    max_rejected: int = Field(
        default=10, ge=0, description="Guesses that may be rejected before truncation."
    )
    accept: Literal["letters", "listed"] = Field(
        default="letters",
        description="letters: any five letters with a vowel (y is one) count as a word. "
        "listed: only the words that may be a secret, of both splits.",
    )


class WordleEnvironment(Environment[WordleAction, WordleObservation, WordleState]):
    """A game of guessing a secret five-letter word from colored marks.

    A guess that is no word, or that hard mode does not allow, does not count. The observation says
    what was wrong, with `accepted=False`. After `max_rejected` such guesses the next one truncates
    the episode.

    Only the secret is random. It depends on `seed` and `split`, or on the task.

    Args:
        hard_mode: Require known letters in every further guess.
        max_guesses: Maximum number of guesses that count, 1 to 20.
        max_rejected: Maximum number of rejected guesses in an episode.
        accept: The guesses that count as words: ``letters`` accepts any five letters with a vowel,
            ``listed`` accepts the words of the list.

    Raises:
        ValueError: An argument is not valid.
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
        self._default = self._rules = _make_rules(
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
            seed: Determines the secret within the split; any integer. None chooses at random.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task or its id. It determines the secret; seed and split have no effect then.
            split: The words to choose from, ``train`` or ``test``.
            hard_mode: The class's option for this episode; None uses the environment's own.
            max_guesses: Like `hard_mode`.
            max_rejected: Like `hard_mode`.
            accept: Like `hard_mode`.

        Raises:
            Refused: The task or split is unknown, or an option is not valid. The running episode
                continues.
        """
        given = {
            "hard_mode": hard_mode,
            "max_guesses": max_guesses,
            "max_rejected": max_rejected,
            "accept": accept,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        rules = _make_rules(**{**self._default.model_dump(), **changed})
        secret = _draw_secret(seed, split) if task is None else _find_secret(task)
        self._begin(secret, rules, episode_id or str(uuid.uuid4()))
        return restart(self._observe(self._write_instruction(), accepted=None))

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: WordleAction
    ) -> WordleObservation:
        """Mark a guess.

        Raises:
            Refused: No episode is running. Nothing changes.
        """
        secret = self._require_secret()
        word = action.guess.strip().lower()
        objection = self._find_objection(word)
        if objection is not None:
            return self._reject(action.guess, objection)
        before = known_share(self._guesses)
        self._guesses.append(MarkedGuess(word=word, marks=mark(word, secret)))
        observation = self._observe(self._describe_guess(), accepted=True)
        observation.metadata["shaping"] = round(known_share(self._guesses) - before, 6)
        if self._solved or self._guesses_left == 0:
            solved = float(self._solved)
            return termination(observation, Score(solved, {"solved": solved}))
        return transition(observation, 0.0)

    @property
    def state(self) -> WordleState:
        """The state of the episode, with the secret as a private field."""
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
        """Restore a stored episode, after making its guesses again and checking each.

        Raises:
            ValueError: `snapshot` did not write these bytes. Nothing changes.
        """
        stored = _Snapshot.model_validate_json(data)
        if stored.secret not in WORDS:
            raise ValueError("the stored secret is none of this environment's words")
        if stored.rejected > stored.rules.max_rejected + 1:
            raise ValueError("the stored episode has more rejected guesses than its rules allow")
        again = WordleEnvironment()
        again._begin(stored.secret, stored.rules, stored.episode_id)
        for word in stored.guesses:
            if again._is_over or again._find_objection(word) is not None:
                raise ValueError("the stored episode has a guess that cannot have been made")
            again._guesses.append(MarkedGuess(word=word, marks=mark(word, stored.secret)))
        self._begin(stored.secret, stored.rules, stored.episode_id)
        self._guesses, self._rejected = again._guesses, stored.rejected

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the splits ``train`` and ``test``, which share no word."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[WordleTask]:
        """Return a task for every word of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the words of a split."""
        return len(words_of(_check_split(split)))

    def get_task(self, split: str, index: int) -> WordleTask:
        """Return the task of one word.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        words = words_of(_check_split(split))
        if not 0 <= index < len(words):
            raise IndexError(f"{split} has tasks 0 to {len(words) - 1}, not {index}")
        return _task(words[index])

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[WordleTask]:
        """Return the tasks of the slice ``[start:stop]``."""
        return [_task(word) for word in words_of(_check_split(split))[start:stop]]

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

    def _require_secret(self) -> str:
        if self._secret is None:
            raise Refused("step() was called before reset(): there is no word to guess")
        if self._is_over:
            raise Refused("step() was called after done: the episode is over, call reset()")
        return self._secret

    def _find_objection(self, word: str) -> str | None:
        """Return the reason why a guess does not count, or None."""
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
        text = f"{quoted!r} does not count: {objection}. {self._describe_rest()}"
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

    def _write_instruction(self) -> str:
        lines = [
            f"Guess the secret word of {WORD_LENGTH} letters. {self._describe_rest()}",
            "Each letter of a guess is marked: green, it stands in its place; yellow, it is in "
            "the word, but elsewhere; grey, it is not in the word (any more often).",
        ]
        if self._rules.hard_mode:
            lines.append("Hard mode: green and yellow letters must be used in further guesses.")
        return "\n".join(lines)

    def _describe_guess(self) -> str:
        guess = self._guesses[-1]
        marked = ", ".join(
            f"{letter.upper()} {given}"
            for letter, given in zip(guess.word, guess.marks, strict=True)
        )
        if self._solved:
            return f"{marked}. Solved with guess {len(self._guesses)}."
        if self._guesses_left == 0:
            return f"{marked}. No guess is left; the word was {str(self._secret).upper()}."
        return f"{marked}. {self._describe_rest()}"

    def _describe_rest(self) -> str:
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


def _make_rules(**given: Any) -> WordleRules:
    try:
        return WordleRules.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refused(f"{first['loc'][0]}={first['input']!r}: {first['msg']}") from None


def _draw_secret(seed: int | None, split: str) -> str:
    words = words_of(_check_split(split))
    return words[_make_generator(seed).randrange(len(words))]


def _make_generator(seed: int | None) -> Random:
    if seed is None:
        return Random()  # nosec B311  # a game's dice
    if type(seed) is not int:
        raise Refused(f"seed must be an integer or null, not {seed!r}")
    # Random ignores the sign of an integer, but -1 must not start the same game as 1.
    return Random(seed if seed >= 0 else str(seed))  # nosec B311  # a game's dice


def _check_split(split: str) -> Split:
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


def _find_secret(task: str | dict[str, Any] | WordleTask) -> str:
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
