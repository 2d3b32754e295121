"""A client that is dropped without `close` gives its slot back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from support.environments import KINDS, Counter, CounterEnv, Do, Log, Progress, Seen
from support.waiting import eventually, wait_until

from openenv import create_app

Serve = Callable[[Any], str]


@pytest.fixture(params=KINDS)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Counter]:
    cls: Any = KINDS[request.param]
    monkeypatch.setattr(cls, "log", Log())
    return cls  # type: ignore[no-any-return]


def app(environment: type[Counter]) -> Any:
    return create_app(environment, Do, Seen, state_cls=Progress)


def play(client: CounterEnv) -> None:
    client.reset()
    assert client.step(Do()).reward == 1.0


def sync(client: CounterEnv) -> None:
    face = client.sync()
    face.reset()
    assert face.step(Do()).reward == 1.0


MAKERS: dict[str, Callable[[type[Counter], Serve], CounterEnv]] = {
    "websocket": lambda environment, serve: CounterEnv(base_url=serve(app(environment))),
    "asgi": lambda environment, serve: CounterEnv.local(app(environment)),
    "memory": lambda environment, serve: CounterEnv.local(environment),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("use", [play, sync])
def test_from_a_thread(
    make: Callable[[type[Counter], Serve], CounterEnv],
    use: Callable[[CounterEnv], None],
    environment: type[Counter],
    serve: Serve,
) -> None:
    client = make(environment, serve)
    use(client)
    with pytest.warns(ResourceWarning, match="never closed; use `with`"):
        del client
        gc.collect()
    wait_until(lambda: environment.log.count("close"))
    assert environment.log.count("close") == 1
    assert environment.log.count("init") == 1


@pytest.mark.anyio
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
async def test_on_the_loop_that_it_lives_on(
    make: Callable[[type[Counter], Serve], CounterEnv], environment: type[Counter], serve: Serve
) -> None:
    client = make(environment, serve)
    await client.__aenter__()
    await client.reset()
    with pytest.warns(ResourceWarning, match="never closed"):
        del client
        gc.collect()
    await eventually(lambda: environment.log.count("close"))
    assert environment.log.count("close") == 1


def test_it_is_gone_at_once_without_a_cycle(serve: Serve) -> None:
    client = CounterEnv(base_url=serve(app(Counter)))
    play(client)
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="/ws was never closed"):
            del client
    finally:
        gc.enable()


def test_a_further_session_is_dropped_alone(environment: type[Counter], serve: Serve) -> None:
    with CounterEnv(base_url=serve(app(environment))) as client:
        client.reset()
        sibling: Any = client.new_session()
        play(sibling)
        del sibling
        gc.collect()
        wait_until(lambda: environment.log.count("close"))
        assert environment.log.count("close") == 1
        assert client.step(Do()).reward == 1.0


def test_one_that_was_closed_says_nothing(serve: Serve) -> None:
    client = CounterEnv(base_url=serve(app(Counter)))
    play(client)
    client.close()
    del client
    gc.collect()
