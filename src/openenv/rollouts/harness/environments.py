"""Sessions of any environment for harnesses; the environment's tools are the model's tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from openenv.client import background
from openenv.rollouts.episode_sessions import (
    EpisodeSession,
    EpisodeSessions,
    EpisodeStart,
    Unfinished,
)
from openenv.rollouts.harness.results import Message, ToolResult, VerifyResult
from openenv.rollouts.harness.sessions import (
    ResourceSession,
    ResourceSessionFactory,
    UnknownSessionTool,
)
from openenv.rollouts.policies.conversations import opening_messages, prompt_messages
from openenv.rollouts.replies import describe_unknown_tool
from openenv.tasks.task import Task
from openenv.tools.types import Tool


class EnvironmentSession(ResourceSession):
    """An episode in an environment, created by `EnvironmentSessions`."""

    def __init__(
        self,
        session: EpisodeSession,
        messages: list[Message],
        unfinished: Unfinished,
    ):
        self._session = session
        self._messages = messages
        self._unfinished: Unfinished = unfinished

    def initial_messages(self) -> list[Message]:
        return [dict(message) for message in self._messages]

    def list_tools(self) -> list[Tool]:
        return [
            Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.as_tool()["inputSchema"],
            )
            for tool in self._session.interface.tools
        ]

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Act by a tool; if the environment refuses the action, the result has the error.

        If the environment fails, the episode is over, and `verify` gives no reward.

        Raises:
            UnknownSessionTool: There is no tool with this name.
        """
        interface = self._session.interface
        if interface.tool(name) is None:
            raise UnknownSessionTool(describe_unknown_tool(name, interface))
        try:
            answer = background.run(self._session.call(name, arguments))
        except Exception:
            if self._session.failure is None:
                raise
            return ToolResult(error=self._session.failure, done=True)
        if answer.result is None:
            return ToolResult(error=answer.text.removeprefix("Error: "), done=answer.is_over)
        metadata = {"step_reward": answer.result.reward}
        return ToolResult(data=answer.text, done=answer.is_over, metadata=metadata)

    def verify(self, transcript: list[Message], final_state: Any | None = None) -> VerifyResult:
        score = self._session.score(self._unfinished)
        return VerifyResult(
            env_reward=score.value,
            done=self._session.is_over,
            metrics={"steps": self._session.steps, **score.components},
            artifacts={} if score.unscored is None else {"unscored": score.unscored},
        )

    def close(self) -> None:
        background.run(self._session.close())


class EnvironmentSessions(ResourceSessionFactory[EnvironmentSession]):
    """Begins sessions in an environment, one for each rollout, from any thread.

    Args:
        environment: The environment, as for `openenv.rollout`: an address, the name of an installed
            environment, an environment class, a client, or an `EnvPool`.
        system_prompt: A system message before the task.
        unfinished: Reward of an episode that was not brought to its end; see
            `openenv.rollouts.episode_sessions.Unfinished`.
        retries: Further attempts at a reset after a passing failure.

    Attributes:
        meter: The costs of the environments.

    Raises:
        OpenEnvError: The environment cannot be reached, or does not describe its actions.
        TypeError: `environment` is not an environment.
    """

    def __init__(
        self,
        environment: Any,
        *,
        system_prompt: str | None = None,
        unfinished: Unfinished = "earned",
        retries: int = 2,
    ) -> None:
        self._sessions = background.run(EpisodeSessions.of(environment, retries=retries))
        self._system_prompt = system_prompt
        self._unfinished: Unfinished = unfinished
        self.meter = self._sessions.meter

    def create(
        self, task: Any, seed: int | None = None, episode_id: str | None = None
    ) -> EnvironmentSession:
        """Begin an episode.

        Args:
            task: A `Task` or a mapping of its fields; or a prompt, as a string or as messages.
            seed: The environment's seed; a seed of the task takes precedence.
            episode_id: The environment's id of the episode.

        Raises:
            CapacityError: The server has no room for the episode.
            OpenEnvError: The episode could not begin.
            TaskNotTaken: The environment ignores arguments that make up the task.
        """
        return background.run(self._begun(task, seed, episode_id))

    def close(self) -> None:
        """Close every session."""
        background.run(self._sessions.aclose())

    async def _begun(
        self, task: Any, seed: int | None, episode_id: str | None
    ) -> EnvironmentSession:
        found = Task.model_validate(dict(task)) if isinstance(task, Mapping) else task
        messages = prompt_messages(None if isinstance(found, Task) else found)
        if self._system_prompt:
            messages.insert(0, {"role": "system", "content": self._system_prompt})
        start = EpisodeStart.of_task(
            found if isinstance(found, Task) else None,
            messages=messages,
            seed=seed,
            episode_id=episode_id,
        )
        session = await self._sessions.take()
        try:
            first = await session.begin(
                replace(start, may_ignore=start.may_ignore | {"episode_id"})
            )
        except BaseException:
            await session.close()
            raise
        told = opening_messages(start.messages, first)
        return EnvironmentSession(session, told, self._unfinished)
