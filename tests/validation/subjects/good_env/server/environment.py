"""A drive past three signs, each of which asks for a word that has to be learned."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar

from openenv.environment import Environment, restart, termination, transition
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import SignAction, SignObservation, SignState

__all__ = ["TASKS", "WORDS", "SignpostEnvironment"]

WORDS = {"red": "halt", "green": "drive", "amber": "brake", "blue": "turn"}
SIGNS = tuple(WORDS)
DRIVE = 3

TASKS = {
    "train": [
        {"id": f"train-{i}", "signs": [SIGNS[i % 4], SIGNS[i // 2], SIGNS[3 - i % 4]]}
        for i in range(6)
    ],
    "test": [{"id": f"test-{i}", "signs": [SIGNS[i], SIGNS[i + 1], SIGNS[i]]} for i in range(3)],
}


class SignpostEnvironment(Environment[SignAction, SignObservation, SignState]):
    """Three signs an episode. The reward comes at the end: a part for each right word, and a
    fifth where all are.

    Args:
        machine: Variables of the machine that it runs on; it takes none of them.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    REWARD: ClassVar[RewardSpec | None] = RewardSpec(
        "terminal", range=(0.0, 1.0), components=("right", "whole")
    )

    def __init__(self, machine: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.machine = machine or {}
        self.signs: list[str] = []
        self.said: list[str] = []
        self.count = 0
        self.seed: int | None = None
        self.task: str | None = None
        self.episode_id: str | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
    ) -> SignObservation:
        """Begin a drive; a task has signs of its own."""
        self.begin(seed, episode_id)
        self.task = task
        if task is not None:
            known = {one["id"]: one["signs"] for tasks in TASKS.values() for one in tasks}
            if task not in known:
                raise Refused(f"there is no task {task!r}")
            self.signs = list(known[task])
        return restart(self.observe())

    def begin(self, seed: int | None, episode_id: str | None) -> None:
        self.signs = Random(seed).choices(SIGNS, k=DRIVE)
        self.said, self.count, self.seed, self.episode_id = [], 0, seed, episode_id

    def step(self, action: SignAction) -> SignObservation:  # type: ignore[override]
        """Say a word to the sign, and drive on to the next."""
        if not self.signs or len(self.said) == DRIVE:
            raise Refused("there is no sign: call reset()")
        self.said.append(action.say)
        self.count += 1
        if len(self.said) < DRIVE:
            return transition(self.observe(), 0.0)
        return termination(self.observe(), self.score())

    @property
    def right(self) -> int:
        """How many words are right."""
        return sum(map(self.is_right, self.said, self.signs))

    def is_right(self, word: str, sign: str) -> bool:
        return word == self.word(sign)

    def word(self, sign: str) -> str:
        return WORDS[sign]

    def score(self) -> Score:
        return self.made(0.8 * self.right / DRIVE, 0.2 * (self.right == DRIVE))

    def made(self, right: float, whole: float) -> Score:
        return Score(right + whole, {"right": right, "whole": whole})

    def observe(self) -> SignObservation:
        place = len(self.said)
        sign = self.signs[place] if place < DRIVE else ""
        return SignObservation(sign=sign, left=DRIVE - place)

    @property
    def state(self) -> SignState:
        place = len(self.said)
        word = self.word(self.signs[place]) if self.signs and place < DRIVE else ""
        return SignState(
            episode_id=self.episode_id, step_count=self.count, task=self.task, word=word
        )

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        return list(TASKS)

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return [{"id": task["id"]} for task in TASKS[split]]

    def num_tasks(self, split: str) -> int:
        return len(TASKS[split])

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return self.list_tasks(split)[index]
