"""Environments as tasks of Inspect AI (https://inspect.aisi.org.uk).

    from inspect_ai import eval
    from openenv.evals.inspect import task

    eval(task("http://localhost:8000", "tasks.jsonl"), model="openai/gpt-4o", epochs=4)

Each sample runs in its own session, in which the model acts with the environment's tools. If the
environment's actions are text, a reply without a tool call is an action too. The score is the
environment's reward of the episode; the score's metadata holds the components. If the model gave
up, or ran out of turns or messages, the score is the reward earned so far, or if nothing was
earned, the lowest reward that the environment declares (see `openenv.rollouts.endings`). If the
environment failed, gave no reward or declares no range of rewards, the sample is unscored, and
Inspect AI's metrics leave it out.

The criteria of a task reach the environment, but neither the model nor the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openenv._internal.packages import needs
from openenv.evals.harness import seeds_as_tasks
from openenv.reward import Score
from openenv.rollouts.episode_sessions import EpisodeSession, EpisodeSessions, EpisodeStart
from openenv.rollouts.interfaces import AgentTool
from openenv.rollouts.jobs import derived_seed
from openenv.tasks.load import load_tasks
from openenv.tasks.task import Task

with needs("openenv.evals.inspect", "pip install 'openenv[inspect]'"):
    import inspect_ai  # pyright: ignore[reportMissingImports]
    from inspect_ai.dataset import MemoryDataset, Sample  # pyright: ignore[reportMissingImports]
    from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        execute_tools,
        get_model,
    )
    from inspect_ai.scorer import Score as InspectScore  # pyright: ignore[reportMissingImports]
    from inspect_ai.scorer import Scorer, Target, mean, scorer, stderr  # pyright: ignore[reportMissingImports]
    from inspect_ai.solver import Generate, Solver, TaskState, solver  # pyright: ignore[reportMissingImports]
    from inspect_ai.tool import ToolDef, ToolError, ToolParams  # pyright: ignore[reportMissingImports]

__all__ = ["reward", "task"]

INSTRUCTIONS = (
    "You act in an environment by its tools until the episode is over. "
    "Each call of a tool is one action; what it gives back is what you see then."
)
NO_PROMPT = "Begin."
ACT = "The episode is not over. Act by calling a tool."

# After this many consecutive turns without an action the episode is given up, as in a rollout
# (`RolloutLimits.invalid_actions`).
IDLE_TURNS = 10

# Key under which the state of a sample stores the values for the scorer.
STORED = "openenv"

ROLES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


def task(
    env: Any,
    tasks: Any = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    instructions: str = INSTRUCTIONS,
    name: str | None = None,
    **options: Any,
) -> inspect_ai.Task:
    """Make a task of Inspect AI from an environment.

    Args:
        env: The environment, as for `openenv.rollouts.rollout`: an address, a target of `openenv
            serve`, an environment class, or a client.
        tasks: Any source that `openenv.tasks.load_tasks` accepts; each task is a sample. Without
            tasks there are `limit` samples, by default one, each with its own seed.
        split: The split of `tasks`.
        limit: Maximum number of tasks, from the first on.
        seed: Seed from which the episodes' seeds are derived. The seeds are the same in each epoch.
        instructions: A system message before the task; "" for none.
        name: The task's name; by default the environment's name.
        **options: Other arguments of `inspect_ai.Task`: `epochs`, `message_limit`, `time_limit`.

    Raises:
        MissingPackage: The extra ``inspect`` is not installed.
        TasksetError: The tasks or the split do not exist.
        ValueError: `limit` is not positive, or there is a `split` without `tasks`.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}; expected at least one task")
    if tasks is None and split is not None:
        raise ValueError(f"split={split!r}: of which tasks? give some")
    seeds = range(seed, seed + (1 if limit is None else limit))
    listed = list(
        seeds_as_tasks(seeds) if tasks is None else load_tasks(tasks, split=split, limit=limit)
    )
    called = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    return inspect_ai.Task(
        dataset=MemoryDataset([_sample(one) for one in listed], name=name),
        solver=_solver(env, {one.id: one for one in listed}, seed, instructions),
        scorer=reward(),
        name=name or called,
        **options,
    )


def _sample(one: Task) -> Sample:
    shown = one.public()
    given: Any = shown.pop("prompt", None)
    prompt: str | list[ChatMessage] = NO_PROMPT if given is None else given
    if not isinstance(prompt, str):
        prompt = [ROLES[message["role"]](content=message["content"]) for message in given or ()]
    return Sample(input=prompt, id=one.id, metadata=shown)


def _solver(env: Any, tasks: Mapping[str, Task], seed: int, instructions: str) -> Solver:
    def acts() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            # No retries here, because Inspect AI retries whole samples itself.
            sessions = await EpisodeSessions.of(env, retries=0)
            try:
                task, session = tasks[str(state.sample_id)], await sessions.take()
                await _InspectEpisode(sessions, session, state, task).run(seed, instructions)
            finally:
                await sessions.aclose()
            return state

        return solve

    # Inspect AI logs the arguments of the decorated function, so it has none.
    made: Solver = solver(name="openenv")(acts)()
    return made


class _InspectEpisode:
    def __init__(
        self, sessions: EpisodeSessions, session: EpisodeSession, state: TaskState, one: Task
    ) -> None:
        self._interface = sessions.interface
        self._session = session
        self._state = state
        self._task = one

    async def run(self, seed: int, instructions: str) -> None:
        """Play the episode and store the score, even if a limit of Inspect AI ends the episode."""
        state = self._state
        start = EpisodeStart.of_task(self._task, seed=derived_seed(seed, self._task.id))
        first = await self._session.begin(start)
        has_begun = not self._session.is_over
        if instructions:
            state.messages.insert(0, ChatMessageSystem(content=instructions))
        state.messages.append(ChatMessageUser(content=first))
        try:
            await self._play()
        finally:
            state.store.set(STORED, self._told(has_begun=has_begun))
        state.completed = True

    async def _play(self) -> None:
        state, idle = self._state, 0
        tools = [self._as_tool(one) for one in self._interface.tools]
        while not self._session.is_over and idle < IDLE_TURNS:
            before = self._session.steps
            state.output = await get_model().generate(state.messages, tools)
            message = state.output.message
            state.messages.append(message)
            if message.tool_calls:
                state.messages.extend((await execute_tools(state.messages, tools)).messages)
            elif self._interface.text_field is not None:
                answer = await self._session.reply(message.text)
                state.messages.append(ChatMessageUser(content=answer.text))
            else:
                state.messages.append(ChatMessageUser(content=ACT))
            idle = 0 if self._session.steps > before else idle + 1

    def _as_tool(self, tool: AgentTool) -> ToolDef:
        async def execute(**kwargs: Any) -> str:
            answer = await self._session.act(tool.action(kwargs))
            if answer.is_refused:
                raise ToolError(answer.text.removeprefix("Error: "))
            return answer.text

        described = tool.description or f"Act in the environment: {tool.name}."
        parameters = ToolParams.model_validate(_inlined(tool.as_tool()["inputSchema"]))
        return ToolDef(execute, tool.name, described, parameters, parallel=False)

    def _told(self, *, has_begun: bool) -> dict[str, Any]:
        not_begun = Score(unscored="the episode was over before it began")
        score = self._session.score("earned") if has_begun else not_begun
        last = self._session.last
        return {
            "reward": score.value,
            "components": dict(score.components),
            "unscored": score.unscored,
            "steps": self._session.steps,
            "is_over": self._session.is_over,
            "is_truncated": last is not None and last.truncated,
        }


def _inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema with references resolved, which Inspect AI does not support."""
    definitions = schema.get("$defs", {})
    found = _without_references(schema, definitions, ())
    assert isinstance(found, dict)
    found.pop("$defs", None)
    return found


def _without_references(value: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        if isinstance(reference := value.get("$ref"), str):
            name = reference.rpartition("/")[2]
            if name in within or name not in definitions:
                return {"type": "object"}  # a recursive schema cannot be written without references
            others = {key: one for key, one in value.items() if key != "$ref"}
            return _without_references(
                {**definitions[name], **others}, definitions, (*within, name)
            )
        return {
            key: _without_references(one, definitions, within)
            for key, one in value.items()
            if key != "$defs"
        }
    if isinstance(value, list):
        return [_without_references(one, definitions, within) for one in value]
    return value


def reward() -> Scorer:
    """Return a scorer that gives each sample the environment's score of the episode."""
    made: Scorer = scorer(metrics=[mean(), stderr()], name="openenv")(_reward)()
    return made


def _reward() -> Scorer:
    async def score(state: TaskState, target: Target) -> InspectScore:
        told = state.store.get(STORED)
        if told is None:
            why = "there was no episode"
            return InspectScore.unscored(reason="scoring_failed", explanation=why)
        about = {name: value for name, value in told.items() if name not in ("reward", "unscored")}
        if told["reward"] is None:
            why = told["unscored"]
            return InspectScore.unscored(reason="scoring_failed", explanation=why, metadata=about)
        answer = state.output.completion or None
        return InspectScore(value=told["reward"], answer=answer, metadata=about)

    return score
