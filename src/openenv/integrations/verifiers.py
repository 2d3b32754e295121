"""Tasksets and players of environments for verifiers (0.4) and prime-rl.

verifiers finds a taskset by the name of a module that exports its classes. A complete module::

    # my_blackjack.py
    from openenv.integrations.verifiers import OpenEnvEnv, OpenEnvTaskset

    class Blackjack(OpenEnvTaskset):
        environment = "blackjack"

    __all__ = ["Blackjack", "OpenEnvEnv"]

The environment gives an episode's reward. The model acts by calling tools, which this module serves
to its harness over MCP; or by words, where each reply is an action. An episode that could not be
played or scored has an error and no reward, and trainers leave it out.

For the opposite direction, a verifiers taskset as an environment, see
`openenv.wrappers.from_verifiers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import secrets
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from openenv._internal.packages import needs
from openenv.rollouts.episode_sessions import EpisodeSession, EpisodeSessions, EpisodeStart
from openenv.rollouts.interfaces import Interface
from openenv.rollouts.replies import read_reply
from openenv.rollouts.sessions import own_tasks
from openenv.server.run import bind
from openenv.tasks.load import load_tasks
from openenv.tasks.task import Task

with needs("openenv.integrations.verifiers"):
    import mcp_types as mcp
    import uvicorn
    import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
    from mcp.server.lowlevel import Server
    from mcp.server.transport_security import TransportSecuritySettings
    from verifiers.v1.harnesses.null import NullHarnessConfig  # pyright: ignore[reportMissingImports]
    from verifiers.v1.mcp import SharedToolServer  # pyright: ignore[reportMissingImports]

__all__ = ["OpenEnvConfig", "OpenEnvEnv", "OpenEnvEnvConfig", "OpenEnvTaskset"]

SESSION = "session"  # the URL parameter that identifies the session


class OpenEnvConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Configuration of the environment and the tasks; ``--env.taskset.*``.

    Attributes:
        environment: An address, the name of an installed environment, or another target of
            ``openenv serve``. Default: the `environment` of the taskset's class.
        tasks: A source of tasks, as `openenv.load_tasks` takes it. Default: the `tasks` of the
            taskset's class; without them, the environment's own tasks if there is a `split`.
        split: The split of the tasks.
        num_tasks: Maximum number of tasks. Without tasks: the number of episodes, which differ by
            the seed of their reset, counted from 0. Default: all tasks, or 1 episode without tasks.
    """

    environment: str | None = None
    tasks: str | None = None
    split: str | None = None
    num_tasks: int | None = None


class OpenEnvData(vf.TaskData):  # type: ignore[misc]
    """A task in the format of verifiers.

    Attributes:
        task: The `openenv.Task` as JSON; None if only the seed distinguishes episodes.
        seed: The seed of the reset.
    """

    task: dict[str, Any] | None = None
    seed: int | None = None


class OpenEnvTask(vf.Task[OpenEnvData]):  # type: ignore[misc]
    """A task of verifiers; each episode has a copy with its `session`."""

    session: EpisodeSession | None = None

    @vf.stop  # type: ignore[untyped-decorator]
    async def episode_over(self, trace: vf.Trace) -> bool:
        """Stop calling the model once the episode is over or has failed."""
        return self.session is not None and (
            self.session.is_over or self.session.failure is not None
        )


class OpenEnvTaskset(vf.Taskset[OpenEnvTask, OpenEnvConfig]):  # type: ignore[misc]
    """The tasks of an environment.

    Attributes:
        environment: The environment, as `openenv.rollout` takes it: a text, an environment class, a
            client or a function that creates one, or an `EnvPool`.
        tasks: A source of tasks, as `openenv.load_tasks` takes it.
    """

    environment: ClassVar[Any] = None
    tasks: ClassVar[Any] = None

    def source(self) -> Any:
        """Return the environment.

        Raises:
            ValueError: Neither the configuration nor the class names an environment.
        """
        given = self.config.environment
        found = given if given is not None else type(self).environment
        if found is None:
            raise ValueError(
                "there is no environment: set environment of the taskset's class, or "
                "--env.taskset.environment, to an address or the name of one that is installed"
            )
        return found

    def load(self) -> Iterable[OpenEnvTask]:
        """Yield the tasks.

        Raises:
            TasksetError: The tasks cannot be found or read.
            NotSupported: The environment has no tasks of its own.
        """
        config = self.config
        given = config.tasks if config.tasks is not None else type(self).tasks
        if given is not None:
            found = load_tasks(given, split=config.split, limit=config.num_tasks)
            yield from map(self._of_task, found)
        elif config.split is not None:
            with own_tasks(self.source(), config.split) as found:
                for number, task in enumerate(found):
                    if number == config.num_tasks:
                        break
                    yield self._of_task(task)
        else:
            for seed in range(1 if config.num_tasks is None else config.num_tasks):
                yield OpenEnvTask(OpenEnvData(name=f"seed {seed}", seed=seed), config.task)

    def _of_task(self, task: Task) -> OpenEnvTask:
        data = OpenEnvData(id=task.id, name=task.id, task=task.as_data())
        return OpenEnvTask(data, self.config.task)


class OpenEnvEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Configuration of how episodes are played; ``--env.*``.

    Attributes:
        agent: The agent that plays. Default: the harness ``null`` for at most 50 turns. It has no
            tools of its own, so it can run as a process of this machine.
        acts: How the model acts: by calling ``tools``; or by ``words``, where each reply is an
            action, as JSON or, if the action is a single text, as that text.
        unfinished: Reward of an episode that the model gives up, or has no turns left for; see
            `openenv.rollouts.episode_sessions.Unfinished`.
        reset_retries: Further attempts at a reset after a passing failure, such as a full server.
        equal_beginnings: Fail an episode that begins differently from an earlier one with the same
            seed and arguments: their rewards cannot be compared.
    """

    agent: vf.AgentConfig = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig(), max_turns=50
    )
    acts: Literal["tools", "words"] = "tools"
    unfinished: float | Literal["earned"] | None = "earned"
    reset_retries: int = 2
    equal_beginnings: bool = True


class OpenEnvEnv(vf.Env[OpenEnvEnvConfig]):  # type: ignore[misc]
    """Plays the episodes of an environment.

    Each episode has a session of its own, so the environment's server needs a slot for each of the
    concurrent episodes (``--max-concurrent``).
    """

    async def start(self) -> None:
        """Open the environment, and serve the tools."""
        self._sessions = await EpisodeSessions.of(
            self.taskset.source(),
            retries=self.config.reset_retries,
            equal_beginnings=self.config.equal_beginnings,
        )
        self._tools = ToolServer(self._sessions.interface)
        await self._tools.start()

    async def stop(self) -> None:
        """Stop serving tools, and close every session and any server started for them."""
        if hasattr(self, "_tools"):
            await self._tools.stop()
        if hasattr(self, "_sessions"):
            await self._sessions.aclose()

    async def run(self, task: OpenEnvTask, agents: vf.Agents) -> None:
        """Play an episode.

        Raises:
            verifiers.v1.EnvError: The environment has failed, or gave no reward.
            OpenEnvError: The episode could not begin.
        """
        session = await self._sessions.take()
        try:
            opening = await self._begun(session, task.data)
            played = copy.copy(task)
            played.session = session
            tools = self._tools.of(session) if self.config.acts == "tools" else {}
            async with agents.agent.interaction(played, tools=tools) as talk:
                await self._played(session, talk, opening)
                if talk.trace.errors:
                    return
                score = session.score(self.config.unfinished)
                if score.value is None:
                    raise vf.EnvError(score.unscored or "the environment gave no reward")
            talk.trace.record_reward("environment", score.value)
            talk.trace.record_metrics({**score.components, "steps": float(session.steps)})
        finally:
            self._tools.forget(session)
            await session.close()

    async def _begun(
        self, session: EpisodeSession, data: OpenEnvData
    ) -> str | list[dict[str, Any]]:
        task = None if data.task is None else Task.model_validate(data.task)
        seen = await session.begin(EpisodeStart.of_task(task, seed=data.seed))
        prompt = None if task is None else task.prompt
        if isinstance(prompt, list):
            return [*prompt, {"role": "user", "content": seen}]
        return f"{prompt}\n\n{seen}" if prompt else seen

    async def _played(self, session: EpisodeSession, talk: vf.Interaction, said: Any) -> None:
        while not session.is_over:
            segment = await talk.turn(said)
            if segment.terminated or self.config.acts == "tools":
                return  # with tools, the model has acted as often as it wanted in this turn
            # `is_truncated` of the trace is about its last reply, which is this one.
            reply = read_reply(
                segment.last_reply, self._sessions.interface, is_cut=talk.trace.is_truncated
            )
            said = (await session.act_by(reply)).text


# ------------------------------------------------------------------ tools of each episode


class Uvicorn(uvicorn.Server):
    """A uvicorn server that leaves signal handling to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: signals belong to the program."""
        yield


class ToolServer:
    """Serves tools over MCP on this machine, at a secret address for each episode.

    Args:
        interface: The environment's interface.
    """

    def __init__(self, interface: Interface) -> None:
        self._sessions: dict[str, EpisodeSession] = {}
        self._listed = mcp.ListToolsResult(
            tools=[mcp.Tool.model_validate(tool.as_tool()) for tool in interface.tools]
        )
        self._server: Server[Any] = Server(
            "openenv", on_list_tools=self._list, on_call_tool=self._call
        )
        self._uvicorn: Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None
        self._url = ""

    async def start(self) -> None:
        """Start to listen."""
        # A container reaches this machine under other host names; the secret is in the address.
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        app = self._server.streamable_http_app(
            json_response=True, stateless_http=True, transport_security=security
        )
        bound = bind("127.0.0.1", 0)
        self._url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
        self._uvicorn = Uvicorn(config)
        self._serving = asyncio.create_task(self._uvicorn.serve(sockets=[bound]))

    async def stop(self) -> None:
        """Stop listening. Safe to repeat."""
        server, serving = self._uvicorn, self._serving
        self._uvicorn = self._serving = None
        if server is not None and serving is not None:
            server.should_exit = True
            await serving

    def of(self, session: EpisodeSession) -> dict[str, SharedToolServer]:
        """Return the tools of a session by the prefix of names, which is empty."""
        key = secrets.token_urlsafe(24)
        self._sessions[key] = session
        url = f"{self._url}?{SESSION}={key}"
        return {"": SharedToolServer(url=url, local=True, external=True)}

    def forget(self, session: EpisodeSession) -> None:
        """Stop serving the tools of a session."""
        self._sessions = {key: one for key, one in self._sessions.items() if one is not session}

    async def _list(self, context: Any, params: Any) -> mcp.ListToolsResult:
        return self._listed

    async def _call(self, context: Any, params: mcp.CallToolRequestParams) -> mcp.CallToolResult:
        try:
            answer = await self._sessions[context.request.query_params[SESSION]].call(
                params.name, params.arguments or {}
            )
        except KeyError:
            return _told("Error: there is no such episode", is_error=True)
        except Exception as error:  # the session keeps the error, and the episode fails
            return _told(f"Error: {error}", is_error=True)
        return _told(answer.text, is_error=answer.is_refused)


def _told(text: str, *, is_error: bool) -> mcp.CallToolResult:
    return mcp.CallToolResult(content=[mcp.TextContent(text=text)], is_error=is_error)
