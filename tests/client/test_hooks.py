"""What clients and providers of other people do that ours would not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do, Progress, Seen

from openenv import AutoEnv, GenericEnvClient, create_app

Serve = Callable[[Any], str]


class BareEnv(CounterEnv):
    """Its hook gives the observation alone."""

    def _parse_result(self, payload: dict[str, Any]) -> Any:
        return Seen(**payload["observation"], done=payload["done"], reward=payload["reward"])


class Engine:
    """Starts servers in the manner of a `ContainerProvider`, and is none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: list[Any] = []

    def start_container(self, image: str, **options: Any) -> str:
        self.calls.append((image, options))
        return self.url

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        self.calls.append(base_url)

    def stop_container(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def url(serve: Serve) -> str:
    return serve(create_app(Counter, Do, Seen, state_cls=Progress))


@pytest.mark.filterwarnings("ignore::openenv.errors.IgnoredArgumentWarning")
def test_a_hook_may_return_the_observation_alone(url: str) -> None:
    with BareEnv(base_url=url) as env:
        first: Any = env.reset(colour="red")
        assert isinstance(first, Seen) and first.text == "ready"
        second: Any = env.step(Do(what="annotate"))
        assert isinstance(second, Seen) and second.text == "noted"


@pytest.mark.anyio
async def test_a_hook_may_return_the_observation_alone_to_a_coroutine(url: str) -> None:
    async with BareEnv(base_url=url) as env:
        first: Any = await env.reset()
        assert isinstance(first, Seen) and first.text == "ready"


def test_a_provider_need_only_look_like_one(url: str) -> None:
    engine: Any = Engine(url)
    with GenericEnvClient.from_docker_image("img:1", provider=engine, port=8000) as env:
        assert env.reset().observation["text"] == "ready"
    assert engine.calls == [("img:1", {"port": 8000}), url, "stop"]


def test_a_client_by_its_name_makes_further_ones() -> None:
    client: Any = AutoEnv.from_env("echo")
    other = client(base_url="http://localhost:1")
    assert type(other) is type(client) and other.base_url == "http://localhost:1"
