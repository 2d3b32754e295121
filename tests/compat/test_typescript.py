"""The client in TypeScript drives servers of the public package, by version 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.typescript import Driver, TypeScriptEnv
from support.typescript import driver as driver

from openenv.errors import ExecutionFailed, ValidationFailed

pytestmark = [pytest.mark.compat, pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def url(serve: Callable[..., list[str]]) -> str:
    return serve("peer", "peer_environment:toy")[0]


@pytest.mark.parametrize("codec", ["msgpack", "json", "none"])
async def test_an_episode_is_played_with_a_public_server(
    driver: Driver, url: str, codec: str
) -> None:
    async with TypeScriptEnv(driver, url, codec) as env:
        assert env.version == 0, "it knows no other"
        first = await env.call("reset", {"seed": 4, "difficulty": "hard"})
        assert first["observation"]["text"] == "reset hard"
        assert first["metadata"] == {"seed": 4}
        asked = [env.call("step", {"what": "count", "n": n}, {}) for n in range(3)]
        assert [(await one)["reward"] for one in asked] == [0, 0.5, 1]
        with pytest.raises(ExecutionFailed, match="kaboom"):
            await env.call("step", {"what": "raise"}, {})
        with pytest.raises(ValidationFailed) as caught:
            await env.call("step", {"n": "many"}, {})
        assert caught.value.errors[0]["loc"] == ["n"]
        assert (await env.call("state"))["step_count"] == 4
        assert (await env.call("step", {"what": "nan"}, {}))["reward"] is None
        assert (await env.call("step", {"what": "finish"}, {}))["done"]
        other = await env.new_session()
        assert (await other.call("state"))["step_count"] == 0
        await other.close()
