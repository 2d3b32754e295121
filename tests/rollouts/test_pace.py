"""Places become fewer where something pushes back, and more as it goes well."""

from __future__ import annotations

import asyncio

import pytest
from rollouts.worlds import Talk

from openenv.rollouts import rollout
from openenv.rollouts.pace import Pace
from openenv.tasks.task import Task

pytestmark = pytest.mark.anyio


async def test_no_more_than_there_are_places_come_in() -> None:
    pace, inside, most = Pace(3), 0, 0

    async def visit() -> None:
        nonlocal inside, most
        await pace.enter()
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        pace.leave()

    await asyncio.gather(*(visit() for _ in range(20)))
    assert most == 3


async def test_a_push_halves_the_places_once_for_all_that_had_begun() -> None:
    pace = Pace(16)
    tickets = [await pace.enter() for _ in range(16)]
    for ticket in tickets:
        pace.press(ticket, "429")
    assert pace.limit == 8
    for _ in tickets:
        pace.leave()
    pace.press(await pace.enter(), "429")
    assert pace.limit == 4
    assert [(places, why) for _, places, why in pace.trace] == [
        (16, "begun"),
        (8, "429"),
        (4, "429"),
    ]


async def test_there_is_always_one_place() -> None:
    pace = Pace(2)
    for _ in range(5):
        pace.press(await pace.enter(), "full")
        pace.leave()
    assert pace.limit == 1


async def test_as_much_that_goes_well_as_there_are_places_adds_one() -> None:
    pace = Pace(8)
    pace.press(await pace.enter(), "full")
    assert pace.limit == 4
    for _ in range(4):
        pace.ease()
    assert pace.limit in (4, 5)
    pace.ease()
    assert pace.limit == 5
    for _ in range(100):
        pace.ease()
    assert pace.limit == 8
    assert pace.trace[-1][1:] == (8, "recovered")


async def test_who_waits_comes_in_when_somebody_leaves_or_a_place_is_added() -> None:
    pace = Pace(4)
    pace.press(await pace.enter(), "full")
    await pace.enter()
    waiting = [asyncio.ensure_future(pace.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    pace.leave()
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True, False, False]
    for _ in range(3):
        pace.ease()
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True, True, False]
    waiting[2].cancel()


async def test_one_who_is_called_and_leaves_all_the_same_lets_the_next_one_in() -> None:
    pace = Pace(1)
    await pace.enter()
    first, second = (asyncio.ensure_future(pace.enter()) for _ in range(2))
    await asyncio.sleep(0)
    pace.leave()
    first.cancel()
    await asyncio.wait_for(second, 5)


class TooMuch(Exception):
    status_code = 429


@pytest.mark.extended("plays for seconds")
@pytest.mark.slow
async def test_a_model_that_can_take_four_at_once_is_asked_by_about_four() -> None:
    running = refused = 0

    async def policy(observation: object) -> dict[str, str]:
        nonlocal running, refused
        running += 1
        try:
            if running > 4:
                refused += 1
                raise TooMuch("slow down")
            await asyncio.sleep(0.02)  # many times what the rest of an episode takes
            return {"word": "over"}
        finally:
            running -= 1

    tasks = [Task(id=str(number)) for number in range(300)]
    run = await asyncio.to_thread(rollout, Talk, policy, tasks, concurrency=32, retries=100, seed=0)
    summary = run.summary()
    assert summary.outcomes == {"done": 300}
    assert summary.failures == {"TooMuch": refused}
    assert refused < 150  # half of all that were played, where it is asked by 32 throughout: more
    assert min(places for _, places, _ in summary.pace) <= 4
