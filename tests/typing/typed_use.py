"""What type checkers must see; checked by mypy and pyright in ``make check``, never run."""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_type

from openenv import Action, EnvClient, GenericEnvClient, Observation, State, StepResult
from openenv.arrays import Rendering
from openenv.client import MCPToolClient
from openenv.client.sync import SyncEnvClient
from openenv.tools import CallToolAction, CallToolObservation, ListToolsAction, Tool


class Move(Action):
    square: int


class Board(Observation):
    squares: tuple[int, ...] = ()


class Game(State):
    winner: str | None = None


class GameEnv(EnvClient[Move, Board, Game]): ...


async def asynchronous() -> None:
    async with GameEnv(base_url="http://localhost:8000") as env:
        assert_type(env, GameEnv)
        first = await env.reset(seed=0)
        assert_type(first, StepResult[Board])
        result = await env.step(Move(square=1))
        assert_type(result.observation, Board)
        assert_type(result.reward, float | None)
        assert_type(result.done, bool)
        state = await env.state()
        assert_type(state, Game)
        assert_type(await env.render(), Rendering)
        assert_type(await env.new_session(), GameEnv)
        assert_type(await env, GameEnv)


def bare() -> None:
    env = GameEnv(base_url="http://localhost:8000")
    assert_type(env.reset().observation, Board)
    assert_type(env.step(Move(square=1)).reward, float | None)
    assert_type(env.state().step_count, int)
    env.close()


def synchronous() -> None:
    with GameEnv(base_url="http://localhost:8000").sync() as env:
        assert_type(env, SyncEnvClient[Move, Board, Game])
        assert_type(env.reset(), StepResult[Board])
        assert_type(env.step(Move(square=1)).observation.squares, tuple[int, ...])
        assert_type(env.state().winner, str | None)
        assert_type(env.render(), Rendering)


def launched() -> None:
    assert_type(GameEnv.from_docker_image("game-env:latest"), GameEnv)
    assert_type(GameEnv.from_env("owner/game"), GameEnv)
    generic = GenericEnvClient(base_url="http://localhost:8000")
    assert_type(generic.reset().observation, dict[str, Any])


class DeskEnv(MCPToolClient[Move, Board]): ...


async def tools() -> None:
    async with DeskEnv(base_url="http://localhost:8000") as env:
        assert_type(env, DeskEnv)
        assert_type((await env.step(Move(square=1))).observation, Board)
        called = await env.step(CallToolAction(tool_name="stamp"))
        assert_type(called.observation, CallToolObservation)
        assert_type((await env.step(ListToolsAction())).observation.tools, list[Tool])
        assert_type(await env.state(), State)
        assert_type(await env.list_tools(), list[Tool])
        assert_type(await env.get_tool("stamp"), Tool | None)
        assert_type(await env.has_tool("stamp"), bool)
        assert_type(await env.connect(), DeskEnv)


def untyped_tools() -> None:
    with MCPToolClient(base_url="http://localhost:8000") as env:
        assert env.step({"square": 1}).observation.squares == env.call_tool("stamp", name="a")
        assert [tool.name for tool in env.list_tools()] == [env.list_tools()[0].name]
        if env.has_tool("stamp"):
            assert_type(env.step(CallToolAction(tool_name="a")).observation, CallToolObservation)


def synchronous_tools() -> None:
    with DeskEnv(base_url="http://localhost:8000").sync() as env:
        assert_type(env.step(Move(square=1)).observation, Board)
        assert_type(env.step(CallToolAction(tool_name="a")).observation, CallToolObservation)
        assert_type(env.list_tools(), list[Tool])
        assert_type(env.get_tool("stamp"), Tool | None)
        assert_type(env.new_session().has_tool("stamp"), bool)
