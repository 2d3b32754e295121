"""Python that keeps its names through an episode, and tasks with hidden tests.

An agent's actions are pieces of code, as in CodeAct (Wang et al. 2024, "Executable Code Actions
Elicit Better LLM Agents", arXiv:2402.01030).
"""

from __future__ import annotations

import logging
import os
import textwrap
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from openenv.environment import Environment, Transform, termination
from openenv.errors import Refused, SandboxEnded, SandboxUnavailable
from openenv.reward import RewardSpec
from openenv.sandbox import SandboxPolicy

from ..models import CodeAction, CodeObservation, CodeState
from .engines import choose_engine, choose_guarantee
from .grading import Grade, grade_answer
from .tasks import Task, TaskSet
from .transforms import create_safe_coding_transform

__all__ = ["PythonCodeActEnv"]

logger = logging.getLogger(__name__)

TASK_REWARD = RewardSpec("terminal", (0.0, 1.0), ("tests_passed",))
"""The rewards of an episode with a task."""

STYLE_REWARD = RewardSpec("per_step", (-1.2, 0.1), ("safety", "brevity", "syntax"))
"""The rewards of an episode without a task."""


class PythonCodeActEnv(Environment[CodeAction, CodeObservation, CodeState]):
    """An environment that runs pieces of Python, which share the names and files of an episode.

    Without a task an episode never ends, and a step's reward depends on the look of its code (see
    `transforms`). With a task (`reset(task=...)`) steps have no reward until one submits the
    answer. The answer runs in another sandbox, and its reward is the share of the task's hidden
    tests that pass.

    Args:
        engine: ``"sandbox"`` for CPython in a sandbox, or ``"smolagents"`` for smolagents'
            interpreter in this process, which is no sandbox. None takes CODING_ENGINE, or else the
            sandbox.
        require: The guarantee that the sandbox must give. None takes CODING_REQUIRE, or else
            ``"namespaces"`` if the machine has such a sandbox, or else ``"process"``, with a
            warning in the log.
        sandbox: A kind of sandbox. None takes CODING_SANDBOX, or else the strongest.
        policy: The limits of the code.
        transform: Computes the reward of a step without a task. The default rewards safety,
            brevity and correct syntax.

    Raises:
        SandboxUnavailable: This machine has no sandbox with the guarantee.
        ValueError: The engine, guarantee or kind is unknown.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    SUPPORTS_ANY_THREAD: ClassVar[bool] = True
    # The rewards of episodes with and without a task; `reset` declares those of its episode.
    REWARD = RewardSpec(
        "per_step",
        range=(-1.2, 1.0),
        components=("safety", "brevity", "syntax", "tests_passed"),
    )

    def __init__(
        self,
        engine: str | None = None,
        *,
        require: str | None = None,
        sandbox: str | None = None,
        policy: SandboxPolicy | None = None,
        transform: Transform[Any] | None = None,
    ) -> None:
        rewards: Transform[Any] = transform or create_safe_coding_transform()
        super().__init__(rewards)
        # The components of a caller's own transform are not known.
        self._free_reward = STYLE_REWARD if transform is None else RewardSpec("per_step")
        if transform is not None:
            self.REWARD = self._free_reward  # type: ignore[misc]
        self._policy = policy or SandboxPolicy()
        self._kind = sandbox or os.environ.get("CODING_SANDBOX") or None
        asked = require or os.environ.get("CODING_REQUIRE")
        self._require = asked or choose_guarantee(self._kind, self._policy)
        self._engine = choose_engine(
            engine or os.environ.get("CODING_ENGINE") or None,
            self._require,
            self._kind,
            self._policy,
        )
        self._tasks = TaskSet.from_environ()
        self._task: Task | None = None
        self._is_over = False
        self._lost: str | None = None
        self._latest: CodeObservation | None = None
        self._state = CodeState()

    def reset(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | Mapping[str, Any] | None = None,
    ) -> CodeObservation:
        """Start an episode with no names and no files.

        Args:
            seed: Seeds the code's `random`. Sets always have the same order. The system's own
                randomness, times and addresses are not determined. The engine ``smolagents`` takes
                no seed, and reports that in ``metadata["ignored_arguments"]``.
            episode_id: Becomes `state.episode_id`; None generates one.
            task: A task or its id; None for an episode without a task.

        Raises:
            Refused: The task is unknown. The running episode continues.
        """
        chosen = None if task is None else self._tasks.find(task)
        self._engine.begin(seed)
        self._task, self._is_over, self._lost, self._latest = chosen, False, None, None
        self.REWARD = self._free_reward if chosen is None else TASK_REWARD  # type: ignore[misc]
        self._state = CodeState(
            episode_id=episode_id or str(uuid.uuid4()),
            task_id=None if chosen is None else chosen.id,
        )
        observation = CodeObservation(prompt=None if chosen is None else chosen.prompt)
        observation.reward = 0.0 if chosen is None else None
        if seed is not None and not self._engine.can_seed:
            observation.metadata["ignored_arguments"] = ["seed"]
        return observation

    def step(  # type: ignore[override]  # no **kwargs: a misspelt argument is an error
        self, action: CodeAction, timeout_s: float | None = None
    ) -> CodeObservation:
        """Run a piece of code, or submit the answer to a task.

        Args:
            action: The code.
            timeout_s: Seconds that the code may take, if fewer than the policy's.

        Raises:
            Refused: The episode is over, its sandbox has ended, or an answer is submitted without a
                task. Nothing changes.
        """
        if not isinstance(action, CodeAction):
            raise TypeError(f"expected a CodeAction, got {type(action).__name__}")
        if self._is_over:
            raise Refused("the answer was submitted, so the episode is over; call reset()")
        if self._lost is not None:
            raise Refused(f"{self._lost}; its names and files are gone: call reset()")
        if action.submit:
            return self._submit(action.code)
        return self._run(action.code, timeout_s)

    def _run(self, code: str, timeout_s: float | None) -> CodeObservation:
        try:
            done = self._engine.run(code, timeout_s)
        except SandboxEnded as error:
            self._lost = str(error)
            raise Refused(f"{error}; its names and files are gone: call reset()") from error
        self._state.step_count += 1
        self._state.last_exit_code = done.exit_code
        observation = CodeObservation(
            stdout=done.stdout,
            stderr=done.stderr,
            exit_code=done.exit_code,
            metadata={"last_code": code, **done.notes},
        )
        self._latest = observation
        return observation if self._task is not None else self._apply_transform(observation)

    def _submit(self, code: str) -> CodeObservation:
        """Score an answer in a sandbox that the episode has not used."""
        if self._task is None:
            raise Refused("submit=True, but the episode has no task; reset(task=...) gives it one")
        try:
            grade = grade_answer(self._task, code, self._require, self._kind)
        except (SandboxUnavailable, SandboxEnded) as error:
            grade = Grade.impossible(str(error))
        except Exception as error:  # a fault of the grader still ends the episode
            logger.exception("an answer to the task %r could not be graded", self._task.id)
            grade = Grade.impossible(f"the grader failed: {type(error).__name__}")
        self._is_over = True
        self._engine.end()
        self._state.step_count += 1
        self._state.last_exit_code = 0 if grade.is_full else 1
        answered = CodeObservation(
            stdout=grade.message,
            exit_code=self._state.last_exit_code,
            metadata={"last_code": code, **grade.metadata},
        )
        self._latest = termination(answered, grade.score)
        return self._latest

    @property
    def state(self) -> CodeState:
        """The state of the episode, with its engine and sandbox."""
        self._state.engine = self._engine.name
        self._state.sandbox = self._engine.sandbox
        self._state.guarantee = self._engine.guarantee
        return self._state

    def render(self) -> str:
        """Return the latest step, as at an interactive prompt.

        Raises:
            Refused: There was no step yet.
        """
        if self._latest is None:
            raise Refused("there is nothing to show before the first step")
        code = self._latest.metadata["last_code"]
        shown = textwrap.indent(code, "... ", lambda line: True).replace("... ", ">>> ", 1)
        return f"{shown.rstrip()}\n{self._latest.stdout}{self._latest.stderr}"

    # ------------------------------------------------------------------ tasks

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return self._tasks.splits()

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the tasks of a split, without their tests."""
        return [task.to_public() for task in self._tasks.split(split)]

    def num_tasks(self, split: str) -> int:
        """Count the tasks of a split."""
        return len(self._tasks.split(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return one task of a split, without its tests."""
        return self._tasks.split(split)[index].to_public()

    def close(self) -> None:
        self._engine.end()
