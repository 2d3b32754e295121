"""What is awaited with a limit can be cancelled at any moment."""

from __future__ import annotations

import asyncio

import pytest

from openenv._internal.timing import Expired, within

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("ticks", range(6))
async def test_a_cancellation_is_not_lost_however_close_the_end_is(ticks: int) -> None:
    failing = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await failing

    limited = asyncio.ensure_future(within(5, work()))
    await asyncio.sleep(0)
    failing.set_exception(ConnectionError())
    for _ in range(ticks):
        await asyncio.sleep(0)
    was_in_time = limited.cancel()
    with pytest.raises(asyncio.CancelledError if was_in_time else ConnectionError):
        await limited


async def test_what_takes_too_long_is_cancelled() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(Expired) as caught:
        await within(0.01, work())
    assert isinstance(caught.value, asyncio.TimeoutError) and isinstance(caught.value, TimeoutError)
    assert ended.is_set()
    assert await within(None, asyncio.sleep(0, "done")) == "done"
    assert await within(5, asyncio.sleep(0, "done")) == "done"


async def test_a_cancellation_is_not_taken_for_the_limit() -> None:
    limited = asyncio.ensure_future(within(60, asyncio.sleep(60)))
    await asyncio.sleep(0)
    limited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await limited


@pytest.mark.parametrize("seconds", [None, 60])
async def test_a_timeout_of_the_work_s_own_is_not_the_limit(seconds: float | None) -> None:
    async def work() -> None:
        raise asyncio.TimeoutError("its own")

    with pytest.raises(asyncio.TimeoutError, match="its own") as caught:
        await within(seconds, work())
    assert not isinstance(caught.value, Expired)
