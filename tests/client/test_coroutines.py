"""A pending answer goes wherever a coroutine goes."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from support.environments import Counter, CounterEnv, Do, Log, Seen

from openenv import ConnectError, SyncEnvClient, create_app

Serve = Callable[[Any], str]


@pytest.mark.anyio
@pytest.mark.parametrize("entered", [True, False])
async def test_a_pending_answer_is_run_as_a_task(
    entered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counter, "log", Log())
    client = CounterEnv.local(create_app(Counter))
    if entered:
        await client.__aenter__()
    reset: Any = client.reset()
    assert asyncio.iscoroutine(reset)
    task = asyncio.create_task(reset)
    assert "PendingStep" in repr(task)
    assert (await task).observation.text == "ready"
    answers: list[Any] = [client.step(Do()), client.step(Do()), client.state()]
    gathered = await asyncio.gather(asyncio.create_task(answers[0]), *answers[1:])
    assert [gathered[0].reward, gathered[1].reward, gathered[2].step_count] == [1.0, 2.0, 2]
    assert (await asyncio.wait_for(client.step(Do()), 5)).reward == 3.0
    state: Any = client.state()
    task = asyncio.create_task(state)
    assert "PendingState" in repr(task)
    assert (await task).step_count == 3
    if not entered:
        assert (await asyncio.create_task(state)).step_count == 3, "as often as one likes"
    assert Counter.log.count("step") == 3
    sibling: Any = await asyncio.create_task(client.new_session())
    await sibling.close()
    await client.close()


@pytest.mark.anyio
async def test_a_call_that_was_never_run_says_so() -> None:
    async with CounterEnv.local(create_app(Counter)) as client:
        with pytest.warns(RuntimeWarning, match="never awaited"):
            client.reset()
            gc.collect()
        client.reset().close()


@pytest.mark.blocks_the_loop
def test_a_session_on_its_way_is_closed_by_its_own_close() -> None:
    async def main() -> None:
        client = CounterEnv.local(create_app(Counter))
        sibling: Any = client.new_session()
        assert sibling.reset().observation.text == "ready"
        sibling.close().result()
        assert not sibling.result()._session.is_connected
        await client.close()

    asyncio.run(main())


def test_an_error_that_nobody_retrieved_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(retrieve: bool) -> None:
        client = CounterEnv(base_url="http://127.0.0.1:9")
        pending = client.reset()
        if retrieve:
            with pytest.raises(ConnectError):
                await pending
        del pending
        await client.close()
        with pytest.raises(ConnectError):
            await client.connect()

    asyncio.run(main(retrieve=True))
    assert not caplog.records
    with caplog.at_level(logging.ERROR):
        asyncio.run(main(retrieve=False))
    (record,) = caplog.records
    assert "never retrieved" in record.message and record.exc_info


def test_a_client_is_run_more_than_once() -> None:
    client: Any = CounterEnv.local(create_app(Counter))
    for _ in range(2):
        assert asyncio.run(client) is client
        client.reset()
        client.close()


class Helpful(CounterEnv):
    async def helper(self) -> float:
        await self.reset()
        return (await self.step(Do())).reward or 0.0


def test_the_blocking_face_is_no_more_than_a_face() -> None:
    Helpful.observation_type = Seen
    with Helpful.local(create_app(Counter)) as client:
        face: Any = client.sync()
        assert face.helper() == 1.0, "it awaits, though the client blocks everybody else"
        assert face.observation_type is Seen
        assert copy.copy(face).async_client is client
        with pytest.raises(AttributeError):
            SyncEnvClient.__new__(SyncEnvClient).reset()
        with pytest.raises(AttributeError, match="__array__"):
            _ = face.__array__
        assert pickle.loads(pickle.dumps(face.reset())).observation.text == "ready"
