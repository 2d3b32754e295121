"""An agent acts in a session that somebody else drives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from openenv import (
    Action,
    Environment,
    NotSupported,
    Observation,
    Private,
    State,
    create_app,
)
from openenv.client.generic import GenericEnvClient
from openenv.environment import scored
from openenv.execution.principal import Key
from openenv.reward import Score

Serve = Callable[[Any], str]
KEY = "the-orchestrators-key"


class GuessAction(Action):
    """Guess the number."""

    number: int


class Hint(Observation):
    hint: str = ""
    secret: Annotated[int, Private] = 0


class Guessing(Environment[GuessAction, Hint, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self._secret = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Hint:
        self._state = State(episode_id=episode_id)
        self._secret = seed or 0
        return Hint(hint="begin", secret=self._secret)

    def step(self, action: GuessAction, timeout_s: float | None = None, **_: Any) -> Hint:
        self._state.step_count += 1
        is_right = action.number == self._secret
        hint = "right" if is_right else "more" if action.number < self._secret else "less"
        seen = Hint(hint=hint, secret=self._secret, done=is_right)
        return scored(seen, Score(float(is_right), {"secret found": float(is_right)}))

    @property
    def state(self) -> State:
        return self._state


async def guesses(url: str, headers: dict[str, str], *numbers: int) -> list[dict[str, Any]]:
    """What an agent is told of its guesses."""
    async with create_mcp_http_client(headers=headers) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport) as agent:
            (offered,) = (await agent.list_tools()).tools
            assert offered.name == "guess"
            answers = [await agent.call_tool("guess", {"number": one}) for one in numbers]
            shown = await agent.read_resource("openenv://observation")
    assert "secret" not in str(answers) + str(shown)
    return [answer.model_dump(by_alias=True) for answer in answers]


@pytest.mark.parametrize("keys", [None, [Key(KEY)]])
@pytest.mark.parametrize("protocol", ["0", "1"])
def test_an_agent_acts_and_its_driver_scores(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, keys: Any, protocol: str
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", protocol)
    url = serve(create_app(Guessing, keys=keys))
    with GenericEnvClient(base_url=url, api_key=KEY).sync() as env:
        env.reset(seed=7)
        access = env.agent_access()
        assert KEY not in str(access) + str(access.headers)
        low, right = asyncio.run(guesses(access.url, access.headers, 3, 7))
        assert low["structuredContent"] == {"hint": "more", "done": False}
        assert right["structuredContent"]["done"] is True
        meta = right["_meta"] or {}
        assert ("openenv/reward" in meta) is (keys is None)
        assert env.state()["step_count"] == 2
        env.reset(seed=5)
        (answer,) = asyncio.run(guesses(access.url, access.headers, 5))
        assert answer["structuredContent"]["hint"] == "right"


def test_an_agents_key_ends_with_its_session_and_is_for_no_other(serve: Serve) -> None:
    url = serve(create_app(Guessing, keys=[Key(KEY)]))
    with GenericEnvClient(base_url=url, api_key=KEY).sync() as other:
        other.reset(seed=9)
        with GenericEnvClient(base_url=url, api_key=KEY).sync() as env:
            env.reset(seed=1)
            access = env.agent_access()
            named = f"{access.url}?session_id={other.agent_access().session_id}"
            (answer,) = asyncio.run(guesses(named, access.headers, 1))
            assert answer["structuredContent"]["hint"] == "right"  # in its own session
        with pytest.raises(BaseException, match="unhandled errors"):
            asyncio.run(guesses(access.url, access.headers, 1))
        assert other.state()["step_count"] == 0


def test_an_environment_in_this_process_has_no_address() -> None:
    with GenericEnvClient.local(Guessing).sync() as env:
        env.reset()
        with pytest.raises(NotSupported, match="has no address"):
            env.agent_access()
