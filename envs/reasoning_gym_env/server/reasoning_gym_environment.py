"""Questions of Reasoning Gym, one per episode.

Stojanovski et al. 2025, "REASONING GYM: Reasoning Environments for Reinforcement Learning with
Verifiable Rewards", arXiv:2505.24760.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python

from openenv.environment import Environment, restart, termination
from openenv.errors import Refused
from openenv.reward import RewardSpec, Score

from ..models import (
    ReasoningGymAction,
    ReasoningGymObservation,
    ReasoningGymState,
    ReasoningGymTask,
)
from .datasets import COMPOSITE, NAMES, Recipe, dataset_seed

__all__ = ["DEFAULT_DATASET", "DEFAULT_SIZE", "ReasoningGymEnvironment"]

logger = logging.getLogger(__name__)

DEFAULT_DATASET = "leg_counting"
DEFAULT_SIZE = 500  # the library's own default

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

# A dataset draws question i from seed + i, so these ranges of seeds do not overlap.
_TASK_SEEDS: dict[Split, int] = {"train": 1_000_000_000, "test": 2_000_000_000}
_TASKS_PER_DATASET: dict[Split, int] = {"train": 1_000, "test": 100}


class ReasoningGymEnvironment(
    Environment[ReasoningGymAction, ReasoningGymObservation, ReasoningGymState]
):
    """An environment that asks one question per episode.

    The answer ends the episode, and the dataset scores it. A dataset and its seed determine the
    questions. The first `reset` asks the first question. Each `reset` without arguments asks the
    next one, and starts again after the last.

    Scoring never runs an answer as a program; see `guard`.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    REWARD = RewardSpec("terminal", (0.0, 1.0), ("correctness",))

    def __init__(self) -> None:
        super().__init__()
        self._recipe: Recipe | None = None
        self._index = 0
        self._entry: dict[str, Any] = {}
        self._is_answered = False
        self._task: str | None = None
        self._episode_id: str | None = None
        self._last: ReasoningGymObservation | None = None

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | Mapping[str, Any] | ReasoningGymTask | None = None,
        dataset_name: str | None = None,
        dataset_config: Mapping[str, Any] | None = None,
        dataset_specs: Sequence[Mapping[str, Any]] | None = None,
        size: int | None = None,
    ) -> ReasoningGymObservation:
        """Ask a question.

        Args:
            seed: The dataset's seed; any integer. Those from 0 to 2**31 are passed on unchanged.
                None draws a seed.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task or its id. It determines the seed and all of the following arguments.
            dataset_name: The dataset; None is ``leg_counting``, or ``composite`` with specs.
            dataset_config: The dataset's options, by their names in the library.
            dataset_specs: The parts of a composite dataset, each with `name`, and optionally with
                `weight` (1) and `config` ({}).
            size: The number of questions of the dataset; None is 500.

        Without any argument except `episode_id`, this asks the next question of the running
        dataset.

        Raises:
            Refused: The dataset, an option or the task is unknown. The running episode continues.
        """
        recipe, index, task_id = self._choose_question(
            seed, task, dataset_name, dataset_config, dataset_specs, size
        )
        entry = recipe.make_question(index)
        self._recipe, self._index, self._entry = recipe, index, entry
        self._task, self._is_answered = task_id, False
        self._episode_id = episode_id or str(uuid.uuid4())
        self._last = restart(ReasoningGymObservation(question=str(entry["question"])))
        return self._last

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: ReasoningGymAction
    ) -> ReasoningGymObservation:
        """Score the answer, which ends the episode.

        Raises:
            Refused: No question is open. Nothing changes.
        """
        if self._recipe is None:
            raise Refused("step() was called before reset(): nothing was asked")
        if self._is_answered:
            raise Refused("step() was called after done: the question is answered, call reset()")
        score = self._score_answer(self._recipe, action.answer)
        self._is_answered = True
        observation = ReasoningGymObservation(
            question=str(self._entry["question"]),
            score=score.value,
            correct_answer=self._correct_answer,
            dataset_metadata=_to_json(self._entry.get("metadata")),
        )
        self._last = termination(observation, score)
        return self._last

    @property
    def state(self) -> ReasoningGymState:
        """The state of the episode, with the correct answer as a private field."""
        recipe = self._recipe
        if recipe is None:
            return ReasoningGymState()
        return ReasoningGymState(
            episode_id=self._episode_id,
            step_count=int(self._is_answered),
            dataset_name=recipe.name,
            dataset_config=dict(recipe.config),
            dataset_specs=[part.model_dump() for part in recipe.parts] or None,
            dataset_seed=recipe.seed,
            dataset_size=recipe.size,
            question_index=self._index,
            task=self._task,
            correct_answer=self._correct_answer,
        )

    def render(self) -> str:
        """Return the question; after the answer also its score and the dataset's own answer.

        Raises:
            Refused: There is no question yet.
        """
        if self._recipe is None:
            raise Refused("render() was called before reset(): nothing was asked")
        lines = [f"{self._recipe.name}, question {self._index}", "", str(self._entry["question"])]
        if self._is_answered:
            score = "unknown" if self._last is None else self._last.score
            lines += ["", f"score: {score}", f"correct answer: {self._correct_answer}"]
        return "\n".join(lines)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Store the question's position in its dataset, and whether it is answered.

        Raises:
            Refused: There is no question yet.
        """
        if self._recipe is None:
            raise Refused("snapshot() was called before reset(): there is no episode to store")
        stored = _Snapshot(
            recipe=self._recipe,
            index=self._index,
            is_answered=self._is_answered,
            task=self._task,
            episode_id=self._episode_id,
        )
        return stored.model_dump_json().encode()

    def restore(self, data: bytes) -> None:
        """Restore a stored episode, by making its question again.

        Raises:
            ValueError: `snapshot` did not write these bytes. Nothing changes.
        """
        stored = _Snapshot.model_validate_json(data)
        recipe = Recipe.from_arguments(**stored.recipe.model_dump())
        if stored.index >= recipe.size:
            raise ValueError("the stored question is beyond its dataset")
        if stored.task is not None and _find_task(stored.task) != (recipe, stored.index):
            raise ValueError("the stored question is not that of its task")
        entry = recipe.make_question(stored.index)
        self._recipe, self._index, self._entry = recipe, stored.index, entry
        self._task, self._is_answered = stored.task, stored.is_answered
        self._episode_id, self._last = stored.episode_id, None

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the splits ``train`` and ``test``, which have different seeds."""
        return list(SPLITS)

    def list_tasks(self, split: str) -> list[ReasoningGymTask]:
        """Return every task of a split."""
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split, which has as many of each dataset."""
        return _TASKS_PER_DATASET[_check_split(split)] * len(NAMES)

    def get_task(self, split: str, index: int) -> ReasoningGymTask:
        """Return one task; adjacent tasks belong to different datasets.

        Raises:
            IndexError: The index is negative, or the split has fewer tasks.
        """
        known = _check_split(split)
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"{split} has tasks 0 to {self.num_tasks(split) - 1}, not {index}")
        question, dataset = divmod(index, len(NAMES))
        name = NAMES[dataset]
        return ReasoningGymTask(id=f"{known}/{name}/{question}", split=known, dataset_name=name)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[ReasoningGymTask]:
        """Return the tasks of the slice ``[start:stop]``."""
        indices = range(self.num_tasks(split))[start:stop]
        return [self.get_task(split, index) for index in indices]

    # ------------------------------------------------------------------ an episode

    @property
    def _correct_answer(self) -> str | None:
        answer = self._entry.get("answer")
        return None if answer is None else str(answer)

    def _choose_question(
        self,
        seed: int | None,
        task: str | Mapping[str, Any] | ReasoningGymTask | None,
        dataset_name: str | None,
        dataset_config: Mapping[str, Any] | None,
        dataset_specs: Sequence[Mapping[str, Any]] | None,
        size: int | None,
    ) -> tuple[Recipe, int, str | None]:
        """Return the dataset, the index of the question in it, and the id of the task."""
        if seed is not None and type(seed) is not int:
            raise Refused(f"seed must be an integer or null, not {seed!r}")
        given = (seed, dataset_name, dataset_config, dataset_specs, size)
        if task is not None:
            if any(argument is not None for argument in given):
                raise Refused("a task fixes seed, size and dataset; give the task alone")
            name = _task_id(task)
            return *_find_task(name), name
        if self._recipe is not None and all(argument is None for argument in given):
            return self._recipe, (self._index + 1) % self._recipe.size, None
        recipe = _make_recipe(dataset_name, dataset_config, dataset_specs, seed, size)
        return recipe, 0, None

    def _can_score(self) -> bool:
        """Return whether the dataset can score its own answer to the question."""
        assert self._recipe is not None
        try:
            return self._recipe.score(str(self._entry["answer"]), self._entry) > 0
        except Exception:
            return False

    def _score_answer(self, recipe: Recipe, answer: str) -> Score:
        try:
            score = recipe.score(answer, self._entry)
        except Exception as error:
            if self._can_score():
                # Several datasets raise for answers that they cannot read. If these were unscored,
                # they would be worth more than wrong answers, which are worth 0.
                logger.info("%s cannot read an answer: %r", recipe.name, error)
                return Score(0.0, {"correctness": 0.0})
            why = f"{recipe.name} could not score this answer: {type(error).__name__}"
            return Score(unscored=why)
        return Score(score, {"correctness": score})


class _Snapshot(BaseModel):
    """A stored episode."""

    model_config = ConfigDict(extra="forbid")

    recipe: Recipe
    index: int = Field(ge=0)
    is_answered: bool
    task: str | None
    episode_id: str | None


def _make_recipe(
    name: str | None,
    config: Mapping[str, Any] | None,
    specs: Sequence[Mapping[str, Any]] | None,
    seed: int | None,
    size: int | None,
) -> Recipe:
    if specs is not None:
        if name not in (None, COMPOSITE) or config:
            raise Refused(
                f"dataset_specs need the dataset {COMPOSITE!r}, and each has a config of its own"
            )
        if not specs:
            raise Refused("dataset_specs is empty; expected one for each dataset")
        name = COMPOSITE
    elif name == COMPOSITE:
        raise Refused(f"the dataset {COMPOSITE!r} needs dataset_specs, which name its parts")
    drawn = Random().randrange(2**31) if seed is None else dataset_seed(seed)  # nosec B311
    return Recipe.from_arguments(
        name=DEFAULT_DATASET if name is None else name,
        config=config or {},
        parts=specs or (),
        seed=drawn,
        size=DEFAULT_SIZE if size is None else size,
    )


def _to_json(metadata: Any) -> dict[str, Any] | None:
    """Convert a dataset's metadata to JSON values."""
    if metadata is None:
        return None
    plain: dict[str, Any] = to_jsonable_python(metadata, serialize_unknown=True)
    return plain


def _check_split(split: str) -> Split:
    if split not in SPLITS:
        raise Refused(f"there is no split {split!r}; there are {' and '.join(SPLITS)}")
    return split


def _task_id(task: str | Mapping[str, Any] | ReasoningGymTask) -> str:
    if isinstance(task, ReasoningGymTask):
        return task.id
    name = task.get("id") if isinstance(task, Mapping) else task
    if not isinstance(name, str):
        raise Refused(f"there is no task {name!r}; expected a task or its id")
    return name


def _find_task(name: str) -> tuple[Recipe, int]:
    """Return the dataset and the question of a task."""
    split, _, rest = name.partition("/")
    dataset, _, question = rest.rpartition("/")
    is_number = question.isascii() and question.isdigit()
    for known in SPLITS:
        if split == known and dataset in NAMES and is_number:
            size = _TASKS_PER_DATASET[known]
            if int(question) < size:
                seed = _TASK_SEEDS[known]
                recipe = Recipe.from_arguments(
                    name=dataset, config={}, parts=(), seed=seed, size=size
                )
                return recipe, int(question)
    raise Refused(
        f"there is no task {name!r}; expected split/dataset/number, such as "
        f"train/{DEFAULT_DATASET}/0, with a number below {_TASKS_PER_DATASET}"
    )
