"""One client, used in every way that existing trainers use clients."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do, Progress, Seen

from openenv import EnvClient, GenericAction, GenericEnvClient, State, StepResult, create_app
from openenv.client.background import background_loop
from openenv.errors import ConnectError, ProtocolError, SessionLost

Serve = Callable[[Any], str]


@pytest.fixture
def url(serve: Serve) -> str:
    return serve(create_app(Counter))


# ------------------------------------------------------------------ synchronously


def test_a_bare_client_is_used_synchronously(url: str) -> None:
    client = CounterEnv(base_url=url)
    assert client.reset().observation.text == "ready"
    result = client.step(Do())
    assert type(result) is StepResult
    assert (result.reward, result.done) == (1.0, False)
    assert client.state().step_count == 1
    client.close()
    client.close()


def test_with_connects_and_closes(url: str) -> None:
    with CounterEnv(base_url=url) as client:
        assert client.reset().observation.text == "ready"
    with pytest.raises(Exception, match="closed"):
        client.step(Do())


def test_sync_gives_plain_values(url: str) -> None:
    with CounterEnv(base_url=url).sync() as client:
        assert type(client.reset()) is StepResult
        assert type(client.state()) is Progress
        other = client.new_session()
        other.reset()
        client.step(Do())
        assert (client.state().step_count, other.state().step_count) == (1, 0)


def test_a_client_works_from_many_threads(url: str) -> None:
    with CounterEnv(base_url=url) as client, ThreadPoolExecutor(8) as pool:
        client.reset()
        echoes = list(pool.map(lambda i: client.step(Do(what="echo", value=i)), range(40)))
        assert [echo.observation.value for echo in echoes] == list(range(40))
        assert client.state().step_count == 40


def test_all_synchronous_clients_share_one_thread(url: str) -> None:
    clients = [CounterEnv(base_url=url).sync() for _ in range(5)]
    for client in clients:
        client.reset()
    names = [t.name for t in threading.enumerate() if t.name == "openenv-background-loop"]
    assert len(names) == 1
    for client in clients:
        client.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own(url: str) -> None:
    with CounterEnv(base_url=url) as client:
        client.reset()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            fresh = CounterEnv(base_url=url)
            code = 0 if fresh.reset().observation.text == "ready" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# ------------------------------------------------------------------ asynchronously


def test_async_with_lives_on_the_callers_loop(url: str) -> None:
    async def main() -> None:
        async with CounterEnv(base_url=url) as client:
            result = await client.reset(seed=1)
            assert type(result) is StepResult
            pending = client.step(Do())
            with pytest.raises(RuntimeError, match="await it"):
                _ = pending.reward
            assert (await pending).reward == 1.0

    asyncio.run(main())


def test_a_bare_client_is_awaited_across_event_loops(url: str) -> None:
    client = CounterEnv(base_url=url)
    assert asyncio.run(_awaited(client.reset)).observation.text == "ready"
    assert asyncio.run(_awaited(lambda: client.step(Do()))).reward == 1.0
    assert asyncio.run(_awaited(client.state)).step_count == 1
    asyncio.run(_awaited(client.close))


async def _awaited(call: Callable[[], Any]) -> Any:
    return await call()


@pytest.mark.blocks_the_loop
def test_a_bare_client_is_read_synchronously_where_a_loop_runs(url: str) -> None:
    async def main() -> None:
        client = CounterEnv(base_url=url)
        assert client.reset().observation.text == "ready"
        assert client.step(Do()).reward == 1.0
        assert client.state().step_count == 1
        assert client.state().board == []  # type: ignore[attr-defined]
        result = client.step(Do())
        assert isinstance(result, StepResult)
        assert result == StepResult(Seen(text="step 2", reward=2.0), 2.0)
        assert await result == result
        client.close()

    asyncio.run(main())


@pytest.mark.blocks_the_loop
def test_a_reset_that_nobody_reads_is_carried_out_all_the_same(url: str) -> None:
    async def main() -> None:
        client = CounterEnv(base_url=url)
        client.reset(size=4)
        client.step(Do())
        assert client.state().step_count == 1
        assert client.state().board == [0, 0, 0, 0]  # type: ignore[attr-defined]
        client.close()

    asyncio.run(main())


@pytest.mark.blocks_the_loop
def test_a_pending_result_is_copied_and_pickled_as_a_result(url: str) -> None:
    async def main() -> None:
        client = CounterEnv(base_url=url)
        result = client.reset()
        assert dataclasses.asdict(result)["reward"] is None
        for clone in (copy.copy(result), pickle.loads(pickle.dumps(result))):
            assert type(clone) is StepResult and clone.observation.text == "ready"
        assert "ready" in repr(result)
        client.close()

    asyncio.run(main())


def test_a_step_is_handed_to_a_worker_thread(url: str) -> None:
    async def main() -> None:
        client = CounterEnv(base_url=url)
        result = await asyncio.to_thread(client.reset)
        assert result.observation.text == "ready"
        assert (await asyncio.to_thread(client.step, Do())).reward == 1.0
        await client.close()

    asyncio.run(main())


def test_sessions_are_gathered(url: str) -> None:
    """What a trainer does inside a synchronous reward function."""

    async def episode(i: int) -> float:
        async with CounterEnv(base_url=url) as env:
            await env.reset(seed=i)
            total = 0.0
            for _ in range(3):
                total += (await env.step(Do())).reward or 0.0
            return total

    async def main() -> list[float]:
        return await asyncio.gather(*(episode(i) for i in range(32)))

    assert asyncio.run(main()) == [6.0] * 32


def test_awaiting_a_client_connects_it(url: str) -> None:
    async def main() -> None:
        client = await CounterEnv(base_url=url)
        assert (await client.reset()).observation.text == "ready"
        await client.close()

    asyncio.run(main())
    client: CounterEnv = asyncio.run(CounterEnv(base_url=url))  # type: ignore[arg-type]
    assert client.reset().observation.text == "ready"
    client.close()


def test_one_client_serves_one_event_loop_after_another(url: str) -> None:
    client = CounterEnv(base_url=url)

    async def main() -> None:
        async with client:
            await client.reset()
            echoes = [client.step(Do(what="echo", value=i)) for i in range(5)]
            assert [r.observation.value for r in await asyncio.gather(*echoes)] == list(range(5))
        with pytest.raises(SessionLost, match="closed"):
            await client.step(Do())

    asyncio.run(main())
    asyncio.run(main())


def test_a_connected_client_is_entered_where_it_is(url: str) -> None:
    async def main() -> None:
        client = await CounterEnv(base_url=url)
        await client.reset()
        async with client as env:
            assert (await env.step(Do())).observation.text == "step 1"

    asyncio.run(main())


def test_the_background_loop_never_waits_for_itself(url: str) -> None:
    client = CounterEnv(base_url=url).sync()

    async def inside() -> None:
        client.async_client._blocks = True
        with pytest.raises(RuntimeError, match="await it"):
            client.reset()

    asyncio.run_coroutine_threadsafe(inside(), background_loop()).result(5)


# ------------------------------------------------------------------ subclasses


class Hooked(EnvClient[Do, str, State]):
    """A client as existing packages write them: three hooks, results without metadata."""

    def _step_payload(self, action: Do) -> dict[str, Any]:
        return {"what": action.what, "value": action.value}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[str]:
        assert set(payload) <= {"observation", "reward", "done", "metadata"}
        return StepResult(payload["observation"]["text"], payload["reward"], payload["done"])

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(step_count=payload["step_count"] + 100)


def test_the_three_hooks_are_asked(url: str) -> None:
    with Hooked(base_url=url) as client:
        assert client.reset().observation == "ready"
        result = client.step(Do(what="truncate"))
        assert (result.observation, result.done, result.truncated) == ("cut", True, True)
        assert client.state().step_count == 101


class Overriding(CounterEnv):
    """Overrides a public method with a coroutine, as some packages do."""

    async def reset(self, **kwargs: Any) -> StepResult[Seen]:  # type: ignore[override]
        result = await super().reset(**kwargs)
        result.observation.text = "overridden"
        return result

    async def twice(self) -> float:
        await self.step(Do())
        return (await self.step(Do())).reward or 0.0


def test_what_a_subclass_overrides_is_in_force_on_every_face(url: str) -> None:
    with Overriding(base_url=url).sync() as client:
        assert client.reset().observation.text == "overridden"
        assert client.twice() == 2.0

    async def main() -> None:
        async with Overriding(base_url=url) as client:
            assert (await client.reset()).observation.text == "overridden"
            assert await client.twice() == 2.0

    asyncio.run(main())


class ByAttributes(EnvClient):  # type: ignore[type-arg]
    observation_type = Seen
    action_types = (Do,)


def test_models_are_named_by_attributes_too(url: str) -> None:
    with ByAttributes(base_url=url) as client:
        assert isinstance(client.reset().observation, Seen)
        assert client.step({"what": "count"}).reward == 1.0
        with pytest.raises(TypeError, match="takes Do, not str"):
            client.step("count")


def test_a_generic_client_speaks_dictionaries(url: str) -> None:
    with GenericEnvClient(base_url=url) as client:
        assert client.reset().observation["text"] == "ready"
        action = GenericAction(what="echo", value=[1])
        assert repr(action) == "GenericAction(what='echo', value=[1])"
        result = client.step(action)
        assert result.observation["value"] == [1]
        assert client.sync().state()["step_count"] == 1


def test_an_observation_that_does_not_fit_the_model_is_an_error(url: str) -> None:
    class Strict(Seen):
        needed: int

    class StrictEnv(EnvClient[Do, Strict, State]): ...

    with StrictEnv(base_url=url) as client, pytest.raises(ProtocolError, match="needed"):
        client.reset()


# ------------------------------------------------------------------ addresses and options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://h:1", "ws://h:1/ws"),
        ("https://h/", "wss://h/ws"),
        ("ws://h", "ws://h/ws"),
        ("wss://h", "wss://h/ws"),
        ("h:8000", "ws://h:8000/ws"),
        ("http://h/base/", "ws://h/base/ws"),
    ],
)
def test_every_form_of_address_is_understood(given: str, expected: str) -> None:
    assert CounterEnv(base_url=given)._ws_url == expected


def test_a_client_needs_an_address() -> None:
    with pytest.raises(ValueError, match="base_url or a provider"):
        CounterEnv()


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 'simulation' or 'production'"):
        CounterEnv(base_url="http://h", mode="dream")


def test_no_server_is_a_connection_error() -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:9") as caught:
        CounterEnv(base_url="http://127.0.0.1:9").reset()
    assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("base_url", ["http://h:99999", "http://h:x", "http://" + 70 * "a" + "."])
def test_an_address_that_cannot_be_is_a_connection_error(base_url: str) -> None:
    with pytest.raises(ConnectError, match="Failed to connect"):
        CounterEnv(base_url=base_url).reset()


@pytest.mark.parametrize("proxy", ["nonsense://h:1", "socks5://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_is_a_connection_error(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("socks_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(ConnectError, match=r"nonsense|python-socks|refused|proxy"):
        CounterEnv(base_url="http://192.0.2.1:1").reset()


def test_another_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="one of http, https, ws, wss"):
        CounterEnv(base_url="ftp://h").reset()


def test_headers_reach_the_server(serve: Serve) -> None:
    seen: list[bytes] = []
    app = create_app(Counter)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(v for k, v in scope.get("headers", ()) if k == b"authorization")
        await app(scope, receive, send)

    with CounterEnv(base_url=serve(outer), headers={"Authorization": "Bearer x"}) as client:
        client.reset()
    assert seen == [b"Bearer x"]
