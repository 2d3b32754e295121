"""Bridges between rubrics, which score steps, and scorers, which score episodes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from openenv.errors import Unscored
from openenv.reward import Score, adds_up, components_of
from openenv.rewards.credit import terminal
from openenv.rewards.delayed import Trajectory, TrajectoryScorer
from openenv.rewards.external.limits import ScoringSlots
from openenv.rewards.external.scorers import (
    as_score,
    make_score,
    on_thread,
    require_score,
    scorer_name,
)
from openenv.rewards.rubric import NO_PARTS, Rubric, is_pending
from openenv.rewards.trajectory import TrajectoryRubric

AnyRubric = Rubric | Callable[[Any, Any], Any]


class RubricScorer:
    """A rubric as a trajectory scorer, created by `from_rubric`."""

    def __init__(self, rubric: AnyRubric | type[Rubric], name: str) -> None:
        self.rubric = rubric
        self.name = name
        if not isinstance(rubric, type):
            self.max_concurrency = 1  # an instance holds the state of one episode at a time
        self._turns = ScoringSlots(1)

    async def __call__(self, trajectory: Trajectory[Any, Any]) -> Score:
        """Score an episode.

        Raises:
            Unscored: The rubric could not score a step.
        """
        if isinstance(self.rubric, type):
            return await _RubricReplay(self.rubric(), trajectory).score()
        await self._turns.acquire()
        play = _RubricReplay(self.rubric, trajectory)
        try:
            return await play.score()
        finally:
            play.when_over(self._turns.release)


class _RubricReplay:
    """A replay of a recorded episode through a rubric."""

    def __init__(self, rubric: Any, trajectory: Trajectory[Any, Any]) -> None:
        self.rubric = rubric
        self.trajectory = trajectory
        self.rewards: list[float | None] = []
        self.components: dict[str, float] = {}
        self._work: Any = None

    def when_over(self, then: Callable[[], None]) -> None:
        """Call `then` once no thread is running the rubric any more."""
        if self._work is None:
            then()
        else:
            self._work.add_done_callback(lambda _: then())

    async def score(self) -> Score:
        reset = getattr(self.rubric, "reset", None)
        if callable(reset):
            await self._call(reset)
        while len(self.rewards) < len(self.trajectory):
            # A rubric may compute for long, or block, so it is called on a thread. Its awaitables
            # are awaited on this event loop.
            pending = await self._call(self._step_until_pending)
            if pending is not None:
                try:
                    self._note(await pending.outcome)
                except Unscored as error:
                    raise self._at_step(error) from error
        if isinstance(self.rubric, TrajectoryRubric):
            return await self._of_the_end()
        given = [reward for reward in self.rewards if reward is not None]
        if not given:
            return Score()
        value = math.fsum(given)
        parts = self.components if adds_up(value, self.components) else {}
        return make_score(value, parts, [reward or 0.0 for reward in self.rewards])

    async def _of_the_end(self) -> Score:
        """Return the score of a rubric that scores the episode as a whole."""
        is_done = self.trajectory and getattr(self.trajectory[-1][1], "done", False)
        if not is_done:
            value = await self._call(self.rubric.score_trajectory, self.rubric.trajectory)
            return as_score(value, len(self.trajectory))
        if self.rewards[-1] is None:
            return Score()
        shares = await self._call(self.rubric.compute_step_rewards)
        return make_score(self.rewards[-1], components_of(self.rubric), shares)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._work = on_thread(function, *arguments)
        outcome = await asyncio.wrap_future(self._work)
        return await outcome if is_pending(outcome) else outcome

    def _step_until_pending(self) -> _PendingScore | None:
        """Score steps up to the first step whose score has to be awaited."""
        while len(self.rewards) < len(self.trajectory):
            action, observation = self.trajectory[len(self.rewards)]
            try:
                outcome = self.rubric(action, observation)
            except Unscored as error:
                raise self._at_step(error) from error
            if is_pending(outcome):
                return _PendingScore(outcome)
            self._note(outcome)
        return None

    def _at_step(self, error: Unscored) -> Unscored:
        return Unscored(f"step {len(self.rewards) + 1}: {error}")

    def _note(self, reward: Any) -> None:
        if reward is not None and not math.isfinite(reward):
            raise Unscored(f"step {len(self.rewards) + 1}: the rubric gave {reward}")
        self.rewards.append(None if reward is None else float(reward))
        for name, part in components_of(self.rubric).items():
            self.components[name] = self.components.get(name, 0.0) + part


class _PendingScore:
    """A step's score that has to be awaited."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome


def from_rubric(rubric: AnyRubric | type[Rubric], *, name: str | None = None) -> RubricScorer:
    """Make a trajectory scorer that replays each episode through a rubric, step by step.

    Each step gets the rubric's score, and the episode gets the sum. A `TrajectoryRubric`, which
    scores the episode as a whole, gives the episode's score at the end, and the rewards of steps.
    If the episode was cut off, so that the last observation is not done, `score_trajectory` is
    called.

    Args:
        rubric: A rubric, which then scores one episode at a time; a class of rubrics, of which each
            episode gets a new instance; or a function of an action and an observation.
        name: Name of the scorer; by default the name of the rubric's class or of the function.
    """
    own = rubric if isinstance(rubric, type) else type(rubric)
    return RubricScorer(
        rubric, name or (own.__name__ if issubclass(own, Rubric) else scorer_name(rubric))
    )


class ScorerRubric(Rubric):
    """A rubric that scores each step with a trajectory scorer, created by `to_rubric`."""

    def __init__(self, scorer: TrajectoryScorer, name: str) -> None:
        super().__init__()
        self._scorer = scorer
        self._name = name

    def forward(self, action: Any, observation: Any) -> Any:
        outcome = self._scorer(Trajectory([(action, observation)], rewards=[None]))
        return self._later(outcome) if is_pending(outcome) else self._value(outcome)

    async def _later(self, outcome: Any) -> float | None:
        return self._value(await outcome)

    def _value(self, outcome: Any) -> float | None:
        score = require_score(as_score(outcome, 1))
        self._parts = score.components or NO_PARTS
        return score.value

    @property
    def _label(self) -> str:
        return self._name


class WholeScorerRubric(TrajectoryRubric):
    """A rubric that scores an episode at the end with a scorer, created by `to_rubric`."""

    def __init__(self, scorer: TrajectoryScorer, name: str) -> None:
        super().__init__(keep=getattr(scorer, "keep", None))
        self._scorer = scorer
        self._name = name

    def _forget(self) -> None:
        super()._forget()
        self._score: Score | None = None

    def _add(self, action: Any, observation: Any) -> None:
        self._score = None
        super()._add(action, observation)

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        outcome = self._scorer(Trajectory(trajectory, rewards=[None] * len(trajectory)))
        return self._later(outcome) if is_pending(outcome) else self._value(outcome)

    async def _later(self, outcome: Any) -> float | None:
        return self._value(await outcome)

    def _value(self, outcome: Any) -> float | None:
        self._score = require_score(as_score(outcome, len(self._trajectory)))
        self._parts = self._score.components or NO_PARTS
        return self._score.value

    def compute_step_rewards(self) -> list[float]:
        """Return the scorer's rewards of steps, or give the last step the whole score.

        Raises:
            Unscored: The episode goes on or has no score.
        """
        if self._score is None or self._score.value is None:
            raise Unscored("the episode has no score that its steps could share")
        if self._score.step_rewards is not None:
            return list(self._score.step_rewards)
        return terminal(self._score.value, len(self._trajectory))

    @property
    def _label(self) -> str:
        return self._name


def to_rubric(
    scorer: TrajectoryScorer, *, whole: bool = False, name: str | None = None
) -> ScorerRubric | WholeScorerRubric:
    """Make a rubric from a trajectory scorer, for example as a child of a `WeightedSum`.

        rubric = WeightedSum([Correct(), to_rubric(http_scorer(URL))], [0.8, 0.2])

    Args:
        scorer: The scorer. If the scorer has to be awaited, so does the rubric.
        whole: Score the whole episode at its end, and earlier steps 0. By default each step is
            scored as an episode with one step.
        name: Name of the component; by default the scorer's name.
    """
    name = name or scorer_name(scorer).rpartition(".")[2]
    return WholeScorerRubric(scorer, name) if whole else ScorerRubric(scorer, name)
