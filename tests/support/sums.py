"""One question an episode, whose answer is a text and scored by what the task has in secret."""

from __future__ import annotations

from typing import Any, ClassVar

from openenv import Action, Environment, Observation, State
from openenv.environment import termination
from openenv.errors import Unscored
from openenv.reward import RewardSpec, Score


class SumAction(Action):
    answer: str


class SumObservation(Observation):
    question: str = ""


class SumsEnvironment(Environment[SumAction, SumObservation, State]):
    """Asks for a sum. An answer of ``broken`` in the task cannot be scored with."""

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    REWARD = RewardSpec("terminal", range=(0.0, 1.0), components=("correct", "format"))

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self._answer = ""

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> SumObservation:
        self._state = State()
        self._answer = str((task or {}).get("criteria", {}).get("answer", "2")).split()[0]
        return SumObservation(question="Answer with the number alone.")

    def step(
        self, action: SumAction, timeout_s: float | None = None, **kwargs: Any
    ) -> SumObservation:
        self._state.step_count += 1
        seen = SumObservation(question="Thank you.", done=True)
        try:
            return termination(seen, self._score(action.answer))
        except Unscored as why:
            return termination(seen, Score(unscored=str(why)))

    def _score(self, answer: str) -> Score:
        if self._answer == "broken":
            raise Unscored("the judge did not answer")
        correct, is_number = 0.8 * (answer == self._answer), 0.2 * answer.isdigit()
        return Score(correct + is_number, {"correct": correct, "format": is_number})

    @property
    def state(self) -> State:
        return self._state
