"""Environments as resources servers of NeMo Gym (0.4).

NeMo Gym has an adapter of its own, ``resources_servers/openenv``, which takes the classes of an
environment, runs it in its own process, and sums the rewards of its steps. This adapter takes any
environment, including one that is served elsewhere. It scores an episode as the environment
declares, shows the model the first observation in the rows of `dataset`, and by default reports no
reward for a failed episode::

    # resources_servers/blackjack/app.py
    from openenv.integrations.nemo_gym import OpenEnvResourcesServer

    if __name__ == "__main__":
        OpenEnvResourcesServer.run_webserver()

with ``environment: blackjack`` in its configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from openenv._internal.packages import needs
from openenv.errors import CapacityError, OpenEnvError, words
from openenv.rollouts.episode_sessions import EpisodeSession, EpisodeSessions, EpisodeStart
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.jobs import as_task
from openenv.tasks.task import Task

with needs("openenv.integrations.nemo_gym", "pip install nemo-gym"):
    from nemo_gym.base_resources_server import (  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
        BaseResourcesServerConfig,
        BaseSeedSessionRequest,
        BaseSeedSessionResponse,
        BaseVerifyRequest,
        BaseVerifyResponse,
        SimpleResourcesServer,
    )
    from nemo_gym.server_utils import (  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
        SESSION_ID_KEY,
    )

__all__ = ["OpenEnvResourcesServer", "OpenEnvResourcesServerConfig", "dataset"]

FAILURE_CLASS = "_ng_failure_class"  # marks a result for `gym eval run`'s file of failures


class OpenEnvResourcesServerConfig(BaseResourcesServerConfig):  # type: ignore[misc]
    """Configuration of an environment and of the episodes played there.

    Attributes:
        environment: An address, the name of an installed environment, or another target of
            ``openenv serve``.
        reset: Arguments of every reset; those of a row take precedence.
        unfinished: Reward of an unfinished episode; see
            `openenv.rollouts.episode_sessions.Unfinished`.
        reset_retries: Further attempts at a reset after a passing failure.
        on_failure: What to do with a rollout that failed or has no reward. ``raise``: ``/verify``
            answers with status 502, which ends a run of NeMo Gym. ``set_aside``: the result is
            marked as a failure, so that ``gym eval run`` writes it to its file of failures. Its
            reward is 0.0, since NeMo Gym requires one: do not train on such results.
        idle_timeout_s: Close an episode that has not been used for this many seconds.
    """

    environment: str
    reset: dict[str, Any] = Field(default_factory=dict)
    unfinished: float | Literal["earned"] | None = "earned"
    reset_retries: int = 2
    on_failure: Literal["raise", "set_aside"] = "raise"
    idle_timeout_s: float = 3600.0


class Beginning(BaseModel):
    """The beginning of a row's episode.

    Attributes:
        reset: Arguments of the environment's reset.
        may_ignore: Those of the arguments that the environment may ignore.
        seen: The first observation that the row shows; None if the row shows none.
    """

    reset: dict[str, Any] = Field(default_factory=dict)
    may_ignore: list[str] = Field(default_factory=list)
    seen: str | None = None

    def as_start(self, others: Mapping[str, Any]) -> EpisodeStart:
        """Return the start of the episode.

        Args:
            others: Arguments of every reset; those of the row take precedence.
        """
        return EpisodeStart((), {**others, **self.reset}, frozenset(self.may_ignore))


class OpenEnvSeedSessionRequest(BaseSeedSessionRequest):  # type: ignore[misc]
    """A row whose `openenv` field says how the episode begins."""

    openenv: Beginning = Field(default_factory=Beginning)


class OpenEnvVerifyRequest(BaseVerifyRequest):  # type: ignore[misc]
    """A row with the model's answer."""

    model_config = ConfigDict(extra="allow")


class OpenEnvVerifyResponse(BaseVerifyResponse):  # type: ignore[misc]
    """A row with the reward; components and the number of steps are fields too."""

    model_config = ConfigDict(extra="allow")


class OpenEnvResourcesServer(SimpleResourcesServer):  # type: ignore[misc]
    """A resources server for an environment's tools; each session is an episode.

    The server keeps the episodes in its own process, so it needs ``num_workers: 1``.
    """

    config: OpenEnvResourcesServerConfig
    _sessions: EpisodeSessions | None = PrivateAttr(default=None)
    _opening: asyncio.Lock = PrivateAttr(default_factory=asyncio.Lock)
    _playing: dict[str, EpisodeSession] = PrivateAttr(default_factory=dict)
    _used: dict[str, float] = PrivateAttr(default_factory=dict)
    _not_begun: dict[str, str] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        """Build the application: ``/seed_session``, ``/verify``, and a route for each tool."""
        app = super().setup_webserver()
        app.post("/{tool}")(self.call)
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def lifespan(served: FastAPI) -> AsyncIterator[Any]:
            async with inner(served) as state:
                try:
                    yield state
                finally:
                    await self.close()

        app.router.lifespan_context = lifespan
        return app  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close every episode and any server started for them."""
        sessions, self._sessions = self._sessions, None
        self._playing.clear()
        if sessions is not None:
            await sessions.aclose()

    async def seed_session(
        self, request: Request, body: OpenEnvSeedSessionRequest
    ) -> BaseSeedSessionResponse:
        """Begin an episode.

        Raises:
            HTTPException: The episode could not begin (status 502; 503 if the server is full), or
                does not begin as the row says (409).
        """
        key = request.session[SESSION_ID_KEY]
        unused_since = time.monotonic() - self.config.idle_timeout_s
        for unused in [one for one, used in self._used.items() if used < unused_since]:
            await self._end(unused)
        begins = body.openenv
        try:
            session = self._playing.get(key) or await (await self._found()).take()
            self._use(key, session)
            seen = await session.begin(begins.as_start(self.config.reset))
            if begins.seen is not None and seen != begins.seen:
                raise HTTPException(
                    409,
                    f"the episode begins with {seen!r:.500}, and the row says {begins.seen!r:.500}"
                    ": make the rows anew, by resets that always turn out the same",
                )
        except BaseException as error:
            if key in self._playing:
                await self._end(key)
            if isinstance(error, CapacityError):
                raise HTTPException(503, words(error)) from error
            if isinstance(error, OpenEnvError) and self.config.on_failure == "set_aside":
                self._not_begun[key] = f"the episode could not begin: {words(error)}"
                return BaseSeedSessionResponse()
            if isinstance(error, OpenEnvError | ValueError):
                raise HTTPException(502, f"the episode could not begin: {words(error)}") from error
            raise
        return BaseSeedSessionResponse()

    async def call(self, tool: str, request: Request) -> PlainTextResponse:
        """Call a tool; return the text that the model reads, including that of a refused call."""
        session = self._playing.get(request.session[SESSION_ID_KEY])
        if session is None and (why := self._not_begun.get(request.session[SESSION_ID_KEY])):
            return PlainTextResponse(f"Error: {why}", 502)
        if session is None:
            return PlainTextResponse("Error: no episode was begun; call /seed_session", 409)
        self._use(request.session[SESSION_ID_KEY], session)
        try:
            arguments = await request.json()
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return PlainTextResponse("Error: the arguments are no JSON object", 422)
        try:
            return PlainTextResponse((await session.call(tool, arguments)).text)
        except (OpenEnvError, OSError) as error:  # the session keeps it; `verify` reports it
            return PlainTextResponse(f"Error: {words(error)}", 502)

    async def verify(self, request: Request, body: OpenEnvVerifyRequest) -> OpenEnvVerifyResponse:
        """Return the episode's reward, and end the episode.

        Raises:
            HTTPException: The episode has no reward (status 502), unless `on_failure` is
                ``set_aside``.
        """
        key = request.session[SESSION_ID_KEY]
        if key in self._not_begun:
            return self._failed(body, self._not_begun.pop(key))
        if key not in self._playing:
            return self._failed(body, "no episode was begun, or it was given up")
        session = self._playing[key]
        score = session.score(self.config.unfinished)
        await self._end(key)
        if score.value is None:
            return self._failed(body, score.unscored or "the environment gave no reward")
        told = {**body.model_dump(), **score.components, "steps": session.steps}
        return OpenEnvVerifyResponse(**{**told, "reward": score.value})

    def _failed(self, body: OpenEnvVerifyRequest, why: str) -> OpenEnvVerifyResponse:
        if self.config.on_failure == "raise":
            raise HTTPException(502, f"there is no reward: {why}")
        told = {**body.model_dump(), FAILURE_CLASS: "environment", "failure": why}
        return OpenEnvVerifyResponse(**{**told, "reward": 0.0})

    async def _found(self) -> EpisodeSessions:
        async with self._opening:
            if self._sessions is None:
                config = self.config
                self._sessions = await EpisodeSessions.of(
                    config.environment, retries=config.reset_retries
                )
            return self._sessions

    def _use(self, key: str, session: EpisodeSession) -> None:
        self._playing[key], self._used[key] = session, time.monotonic()

    async def _end(self, key: str) -> None:
        self._used.pop(key, None)
        await self._playing.pop(key).close()


# ------------------------------------------------------------------ rows


async def dataset(
    environment: Any,
    tasks: Iterable[Any] | None = None,
    *,
    num_rows: int | None = None,
    instruction: str | None = None,
) -> list[dict[str, Any]]:
    """Make the rows of a NeMo Gym dataset: each row is an episode's first request to a model.

    NeMo Gym's agents show the model the row, and nothing that the reset returns. So this function
    begins each episode once and puts the first observation in the row. A rollout whose first
    observation differs from it fails. Write the rows as JSON lines.

    Args:
        environment: The environment, as `openenv.rollout` takes it.
        tasks: Tasks, such as those of `openenv.load_tasks`. Default: episodes that differ by the
            seed of their reset, counted from 0.
        num_rows: Maximum number of rows. Without tasks: the number of rows. Default: all tasks, or
            1 row without tasks.
        instruction: System message of every row.

    Raises:
        OpenEnvError: An episode could not begin.
    """
    sessions = await EpisodeSessions.of(environment)
    try:
        session = await sessions.take()
        begun: Iterable[tuple[Task | None, Beginning]]
        if tasks is None:
            begun = ((None, Beginning(reset={"seed": seed})) for seed in range(num_rows or 1))
        else:
            begun = map(_begun, itertools.islice(tasks, num_rows), itertools.count(1))
        return [await _row(session, sessions.interface, instruction, *one) for one in begun]
    finally:
        await sessions.aclose()


def _begun(given: Any, number: int) -> tuple[Task, Beginning]:
    task = as_task(given, number)
    start = EpisodeStart.of_task(task)
    return task, Beginning(reset=dict(start.arguments), may_ignore=sorted(start.may_ignore))


async def _row(
    session: EpisodeSession,
    interface: Interface,
    instruction: str | None,
    task: Task | None,
    begins: Beginning,
) -> dict[str, Any]:
    seen = begins.seen = await session.begin(begins.as_start({}))
    messages = [{"role": "system", "content": instruction}] if instruction else []
    prompt = None if task is None else task.prompt
    if isinstance(prompt, list):
        messages += [*prompt, {"role": "user", "content": seen}]
    else:
        messages.append({"role": "user", "content": f"{prompt}\n\n{seen}" if prompt else seen})
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.as_tool()["inputSchema"],
            "strict": False,
        }
        for tool in interface.tools
    ]
    return {
        "responses_create_params": {"input": messages, "tools": tools},
        "openenv": begins.model_dump(),
        **({} if task is None else {"id": task.id}),
    }
