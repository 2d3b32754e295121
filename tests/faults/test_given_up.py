"""Whatever its caller does, a call is carried out once, and its answer is had by asking again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.amounts import amount
from support.dice import Dice, DiceEnv, Roll, StoredDice
from support.environments import Counter, CounterEnv, Do, Hold
from support.giving_up import Interrupted, give_up_answered, interrupted, settled
from support.servers import serving
from support.waiting import eventually, wait_until

from openenv import (
    ExecutionFailed,
    GenericEnvClient,
    NotSupported,
    ResponseTimeout,
    SessionLost,
    create_app,
)
from openenv.client import MCPToolClient
from openenv.client import client as client_module
from openenv.client.vector import VectorEnv
from openenv.tools import MCPEnvironment, tool

Client = CounterEnv

# Of a call that an interrupt kept from being begun: Python says so of its coroutine.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture
def url() -> Iterator[str]:
    with serving(create_app(Counter)) as url:
        yield url


@contextlib.asynccontextmanager
async def connected(url: str, home: str, **options: Any) -> AsyncIterator[Client]:
    """A client on the shared loop, or on that of the caller."""
    client = CounterEnv(base_url=url, **options)
    if home == "own":
        async with client:
            yield client
        return
    try:
        yield client
    finally:
        await client.close()


def taken() -> int:
    """How many steps the environment has taken."""
    return Counter.log.count("step")


def blocked(seconds: float) -> None:
    """Hold up the loop, as an optimizer's step does."""
    time.sleep(seconds)


HOMES = pytest.mark.parametrize("home", ["shared", "own"])


# ------------------------------------------------------------------ cancellation


@pytest.mark.anyio
async def test_an_answer_that_came_to_a_cancelled_call_is_had_by_asking_again(url: str) -> None:
    async with connected(url, "shared") as env:
        await env.reset()
        await give_up_answered(env.step(Do()), env)
        assert (await env.step(Do())).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"
    assert taken() == 2


@HOMES
@pytest.mark.parametrize(
    "how",
    [
        "wait_for",
        pytest.param(
            "timeout",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 has it"),
        ),
    ],
)
@pytest.mark.anyio
async def test_a_limit_that_is_over_while_the_loop_is_blocked_loses_no_answer(
    url: str, home: str, how: str
) -> None:
    async with connected(url, home) as env:
        await env.reset()

        def hold_up() -> None:
            wait_until(lambda: taken() == 1)
            blocked(0.05)  # the limit is over, and the answer has come

        async def step() -> Any:
            asyncio.get_running_loop().call_soon(hold_up)  # once the request is sent
            return await env.step(Do())

        async def limited() -> Any:
            if how == "wait_for":
                return await asyncio.wait_for(step(), 0.01)
            limit: Any = getattr(asyncio, "timeout")  # noqa: B009 - not of Python 3.10
            async with limit(0.01):
                return await step()

        try:  # which of the two it is, asyncio decides
            found = await limited()
        except asyncio.TimeoutError:
            found = await env.step(Do())
        assert found.observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"
    assert taken() == 2


@HOMES
@pytest.mark.parametrize("method", ["step", "reset"])
@pytest.mark.anyio
async def test_a_call_may_be_cancelled_at_any_moment(url: str, home: str, method: str) -> None:
    """After so many turns of the loop as a call takes, and after each fifth of a millisecond."""
    async with connected(url, home) as env:
        await env.reset()
        call: Any = {"step": lambda: env.step(Do()), "reset": lambda: env.reset(seed=1)}[method]
        before = Counter.log.count(method)
        moments = amount(120, 40)
        for moment in range(moments):
            waiting = asyncio.ensure_future(call())
            for _ in range(moment // 2 if moment % 2 else 1):
                await asyncio.sleep(0)
            if not moment % 2:
                blocked(moment * 1e-4)
            waiting.cancel()
            try:
                await waiting
            except asyncio.CancelledError:
                await call()
        assert Counter.log.count(method) - before == moments


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_before_it_begins_has_sent_its_request(url: str) -> None:
    async with connected(url, "shared") as env:
        await env.reset()
        pending: Any = env.step(Do())
        waiting = asyncio.ensure_future(pending)
        wait_until(vars(pending)["_source"].done)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await env.step(Do())).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"


@pytest.mark.anyio
async def test_a_waiter_that_is_destroyed_leaves_the_answer(url: str) -> None:
    """As those are that a loop leaves behind which is stopped and closed."""
    async with connected(url, "shared") as env:
        await env.reset()
        pending: Any = env.step(Do())
        waiter = pending.__await__()
        waiter.send(None)
        wait_until(vars(pending)["_source"].done)
        waiter.close()
        assert (await env.step(Do())).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2"


@pytest.mark.anyio
async def test_an_answer_may_be_awaited_again_after_its_waiter_was_cancelled(url: str) -> None:
    async with connected(url, "shared") as env:
        await env.reset()
        pending = env.step(Do())
        await give_up_answered(pending, env)
        assert (await pending).observation.text == "step 1"
        assert (await env.step(Do())).observation.text == "step 2", "it was taken after all"


@pytest.mark.anyio
async def test_a_call_that_was_cancelled_while_it_ran_is_asked_again_and_not_awaited_again(
    url: str, tmp_path: Path
) -> None:
    hold = Hold(tmp_path)
    async with connected(url, "shared") as env:
        await env.reset()
        pending = env.step(hold.action)
        waiting = asyncio.ensure_future(pending)
        await hold.begun()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await pending  # as of a task that was cancelled
        hold.release()
        assert (await env.step(hold.action)).observation.text == "step 1"
    assert taken() == 1


@HOMES
@pytest.mark.anyio
async def test_a_call_that_was_cancelled_before_its_turn_is_not_begun(
    url: str, home: str, tmp_path: Path
) -> None:
    hold = Hold(tmp_path)
    async with connected(url, home) as env:
        await env.reset()
        first = asyncio.ensure_future(env.step(hold.action))
        await hold.begun()
        second = asyncio.ensure_future(env.step(Do()))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        hold.release()
        assert (await first).observation.text == "step 1"
        assert (await env.step(Do(what="echo", value=3))).observation.value == 3
    assert taken() == 2


@pytest.mark.anyio
async def test_what_gather_has_had_when_it_is_cancelled_has_returned(
    url: str, tmp_path: Path
) -> None:
    """Its tasks have the results: to step again is a further step."""
    hold = Hold(tmp_path)
    async with connected(url, "own") as one, connected(url, "own") as other:
        await asyncio.gather(one.reset(), other.reset())
        tasks: list[asyncio.Task[Any]] = [
            asyncio.ensure_future(one.step(Do())),
            asyncio.ensure_future(other.step(hold.action)),
        ]
        both = asyncio.gather(*tasks)
        await hold.begun()
        await eventually(tasks[0].done)
        both.cancel()
        with pytest.raises(asyncio.CancelledError):
            await both
        hold.release()
        assert tasks[0].result().observation.text == "step 1"
        assert (await one.step(Do())).observation.text == "step 2"
        assert (await other.step(hold.action)).observation.text == "step 1", "this one had not"


# ------------------------------------------------------------------ interrupts


@pytest.mark.parametrize("face", ["with", "sync", "generic"])
@pytest.mark.parametrize("when", ["as the answer comes", "while it runs"])
def test_an_interrupted_call_is_had_by_making_it_again(
    url: str, face: str, when: str, tmp_path: Path
) -> None:
    hold = Hold(tmp_path)
    made: Any = GenericEnvClient if face == "generic" else CounterEnv
    client = made(base_url=url)
    action: Any = hold.action.model_dump() if face == "generic" else hold.action
    with client if face == "with" else client.sync() as env:
        env.reset()

        def meanwhile() -> None:
            if when == "as the answer comes":
                hold.release()
                wait_until(lambda: settled(client))

        found = interrupted(lambda: env.step(action), lambda: taken() == 1, meanwhile)
        assert found is None
        hold.release()
        again = env.step(action)
        assert again.reward == 1.0
        assert env.step(action).reward == 2.0
    assert taken() == 2


@pytest.mark.parametrize("how", ["with", "sync", "journal", "scored", "read in a loop"])
def test_a_call_may_be_interrupted_at_any_moment(url: str, how: str) -> None:
    """The shared loop needs no lock that an interrupted caller may have left taken."""
    scorer: Any = len if how == "scored" else None
    options: dict[str, Any] = {"journal": how == "journal", "trajectory_scorer": scorer}
    client = CounterEnv(base_url=url, **options)
    env: Any = client if how in ("with", "read in a loop") else client.sync()

    def play() -> None:
        for moment in range(amount(1000, 100)):
            found = interrupted(step, moment % 100 * 1e-5) or step()
            assert found.observation.text == f"step {moment + 1}"
            assert taken() == moment + 1

    def step() -> Any:
        if how == "read in a loop":
            pending = env.step(Do())
            return pending.result()
        return env.step(Do())

    async def on_a_loop() -> None:
        play()

    with client if how == "read in a loop" else env:
        env.reset()
        if how == "read in a loop":
            client._blocks = False
            asyncio.run(on_a_loop())
        else:
            play()


def test_an_interrupt_may_come_after_the_clients_own_method_has_returned(url: str) -> None:
    """Which is between it and the method of the synchronous face."""

    class Late(CounterEnv):
        def step(self, action: Do, **kwargs: Any) -> Any:
            result = super().step(action, **kwargs)
            if action.value == "late" and not interrupts:
                interrupts.append(result)
                raise Interrupted
            return result

    interrupts: list[Any] = []
    with Late(base_url=url).sync() as env:
        env.reset()
        with pytest.raises(Interrupted):
            env.step(Do(value="late"))
        assert env.step(Do(value="late")).observation.text == "step 1", "it is had by asking again"
        assert env.step(Do(value="late")).observation.text == "step 2"
    assert taken() == 2


def test_a_second_interrupt_may_come_while_asking_again(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with CounterEnv(base_url=url) as env:
        env.reset()
        for _ in range(3):
            found = interrupted(lambda: env.step(hold.action), lambda: taken() == 1)
            assert found is None
        hold.release()
        assert env.step(hold.action).observation.text == "step 1"
    assert taken() == 1


def test_what_a_clients_own_method_raises_is_no_interrupt(url: str) -> None:
    """It has had the answers of the calls that it has made."""

    class Player(CounterEnv):
        def play(self) -> None:
            self.step(Do())
            raise ValueError("of its own")

        def step(self, action: Do, **kwargs: Any) -> Any:
            result = super().step(action, **kwargs)
            if action.value == "refuse":
                raise ValueError("of its own")
            return result

    with Player(base_url=url).sync() as env:
        env.reset()
        with pytest.raises(ValueError, match="its own"):
            env.play()
        assert env.step(Do()).observation.text == "step 2", "the next step, though an equal one"
        with pytest.raises(ValueError, match="its own"):
            env.step(Do(value="refuse"))
        assert env.step(Do()).observation.text == "step 4"


# ------------------------------------------------------------------ tools


class Bell(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    rung: ClassVar[list[int]] = []

    @tool
    def ring(self, times: int) -> int:
        """Ring so many times."""
        self.rung.append(times)
        return len(self.rung)


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Bell, "rung", [])
    with serving(create_app(Bell)) as url:
        yield url


@pytest.mark.parametrize("direct", [True, False])
def test_a_tool_whose_answer_was_not_taken_is_not_called_again(bell: str, direct: bool) -> None:
    client: Any = MCPToolClient(base_url=bell)
    client.use_production_mode = direct

    async def give_up() -> None:
        await client.reset()
        await give_up_answered(client.call_tool("ring", times=2), client)
        assert await client.call_tool("ring", times=2) == 1
        assert await client.call_tool("ring", times=3) == 2

    asyncio.run(give_up())
    with client.sync() as env:
        for moment in range(40):
            count = len(Bell.rung)

            def ring(times: int = moment) -> Any:
                return env.call_tool("ring", times=times)

            found = interrupted(ring, moment * 5e-5) or ring()
            assert found == count + 1 == len(Bell.rung)


# ------------------------------------------------------------------ what is kept


@pytest.mark.anyio
async def test_an_error_that_was_not_taken_comes_again(url: str) -> None:
    async with connected(url, "shared") as env:
        await env.reset()
        await give_up_answered(env.step(Do(what="raise")), env)
        with pytest.raises(ExecutionFailed):
            await env.step(Do(what="raise"))
        assert (await env.step(Do())).observation.text == "step 2"
    assert taken() == 2


@pytest.mark.anyio
async def test_a_reset_whose_answer_was_not_taken_is_not_made_again(url: str) -> None:
    async with connected(url, "shared") as env:
        await give_up_answered(env.reset(seed=3), env)
        assert (await env.reset(seed=3)).observation.arguments["seed"] == 3
        assert Counter.log.count("reset") == 1
        await give_up_answered(env.reset(seed=3), env)
        assert (await env.reset(seed=4)).observation.arguments["seed"] == 4, "which is another"
        assert (await env.step(Do())).observation.text == "step 1"


@pytest.mark.anyio
async def test_another_step_instead_is_refused_and_the_error_names_the_cure(url: str) -> None:
    async with connected(url, "shared") as env:
        await env.reset()
        await give_up_answered(env.step(Do()), env)
        for _ in range(2):
            with pytest.raises(SessionLost, match="ask again with the same action"):
                await env.step(Do(what="echo"))
        assert (await env.step(Do())).observation.text == "step 1"
        assert (await env.step(Do(what="echo"))).observation.text == "echo"
        await give_up_answered(env.step(Do()), env)
        await env.reset()
        assert (await env.step(Do())).observation.text == "step 1", "of the new episode"


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["openenv.v1.msgpack", "openenv.v1.json"])
async def test_an_action_that_is_written_over_is_another_step(
    url: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent counts, not what the caller's objects hold by now."""
    monkeypatch.setattr(client_module, "offered", lambda _: (protocol,))
    action: dict[str, Any] = {"what": "echo", "value": np.zeros(3)}
    env = GenericEnvClient(base_url=url)
    await env.reset()
    await give_up_answered(env.step(action), env)
    action["value"][:] = 1.0
    with pytest.raises(SessionLost, match="ask again with the same action"):
        await env.step(action)
    action["value"][:] = 0.0
    assert (await env.step(action)).observation["text"] == "echo"
    await env.close()
    assert taken() == 1


@pytest.mark.parametrize("reading", ["state", "render", "snapshot"])
def test_a_reading_in_between_keeps_the_late_answer(url: str, reading: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    with CounterEnv(base_url=url, message_timeout_s=0.2).sync() as env:
        env.reset()
        with pytest.raises(ResponseTimeout):
            env.step(hold.action)
        hold.release()
        with contextlib.suppress(NotSupported):  # it has no snapshots, which is an answer too
            getattr(env, reading)()
        assert env.step(hold.action).observation.text == "step 1"
        assert env.step(Do()).observation.text == "step 2"
    assert taken() == 2


@HOMES
@pytest.mark.anyio
async def test_a_reading_that_is_given_up_is_in_nobodys_way(url: str, home: str) -> None:
    async with connected(url, home) as env:
        await env.reset()
        for moment in range(40):
            reading = asyncio.ensure_future(env.state())
            for _ in range(moment):
                await asyncio.sleep(0)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            assert (await env.step(Do(value=moment))).reward == moment + 1


# ------------------------------------------------------------------ snapshots and journals


@pytest.mark.anyio
async def test_a_restore_whose_answer_was_not_taken_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored: list[bytes] = []

    def restore(dice: StoredDice, data: bytes) -> None:
        restored.append(data)
        again(dice, data)

    again = StoredDice.restore
    monkeypatch.setattr(StoredDice, "restore", restore)
    with serving(create_app(StoredDice)) as url:
        env = DiceEnv(base_url=url)
        await env.reset(seed=1)
        await env.step(Roll())
        data = await env.snapshot()
        await env.step(Roll())
        await give_up_answered(env.restore(data), env)
        with pytest.raises(SessionLost, match="a restore was not answered"):
            await env.step(Roll())
        assert (await env.restore(data)).step_count == 1
        assert len(restored) == 1
        assert (await env.step(Roll())).reward is not None
        await env.close()


@pytest.mark.anyio
async def test_a_replay_that_is_broken_off_leaves_no_episode() -> None:
    with serving(create_app(Dice)) as url:
        env = DiceEnv(base_url=url, journal=True)
        await env.reset(seed=1)
        for sides in range(2, 40):
            await env.step(Roll(sides=sides))
        data = await env.snapshot(replay=True)
        for ticks in range(0, 60, 3):
            restoring = asyncio.ensure_future(env.restore(data))
            for _ in range(ticks):
                await asyncio.sleep(0)
            restoring.cancel()
            try:
                await restoring
            except asyncio.CancelledError:
                with contextlib.suppress(SessionLost):
                    assert (await env.state()).step_count == 38, "it was not begun, or it has ended"
            assert (await env.restore(data)).step_count == 38
        await env.close()


@HOMES
@pytest.mark.parametrize("when", ["as the answer comes", "while it runs"])
@pytest.mark.anyio
async def test_a_journal_has_a_step_once_that_was_asked_twice(
    url: str, home: str, when: str, tmp_path: Path
) -> None:
    hold = Hold(tmp_path)
    async with connected(url, home, journal=True) as env, connected(url, home) as other:
        await env.reset(seed=1)
        if when == "as the answer comes" and home == "shared":
            hold.release()
            await give_up_answered(env.step(hold.action), env)
        else:
            waiting = asyncio.ensure_future(env.step(hold.action))
            await hold.begun()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(NotSupported, match="ask again with the same action"):
                await env.snapshot(replay=True)
            hold.release()
        with pytest.raises(SessionLost):
            await env.step(Do(what="another"))
        await env.step(hold.action)
        await env.step(Do())
        data = await env.snapshot(replay=True)
        assert (await other.restore(data)).step_count == 2
    assert taken() == 4, "two here, and the same two where they were done again"


# ------------------------------------------------------------------ scores of whole episodes


class Judge:
    """Scores by the number of steps; it takes its time until it is free."""

    is_judging = is_free = False

    async def __call__(self, trajectory: Any) -> float:
        self.is_judging = True
        await eventually(lambda: self.is_free)
        return float(len(trajectory))


@HOMES
@pytest.mark.anyio
async def test_an_episode_that_was_cancelled_while_it_was_judged_is_judged_when_asked_again(
    url: str, home: str
) -> None:
    judge = Judge()
    async with connected(url, home, trajectory_scorer=judge) as env:
        await env.reset()
        await env.step(Do())
        last = asyncio.ensure_future(env.step(Do(what="done")))
        await eventually(lambda: judge.is_judging)
        last.cancel()
        with pytest.raises(asyncio.CancelledError):
            await last
        judge.is_free = True
        assert (await env.step(Do(what="done"))).reward == 2.0, "each step is noted once"
    assert taken() == 2


@pytest.mark.anyio
async def test_a_step_that_was_scored_and_not_taken_is_had_by_asking_again(url: str) -> None:
    async with connected(url, "shared", trajectory_scorer=len) as env:
        await env.reset()
        for number in range(3):
            await give_up_answered(env.step(Do(value=number)), env)
            await env.step(Do(value=number))
        await give_up_answered(env.step(Do(what="done")), env)
        assert (await env.step(Do(what="done"))).reward == 4.0
    assert taken() == 4


# ------------------------------------------------------------------ other ends


@pytest.mark.anyio
async def test_a_close_ends_what_may_be_asked_again(url: str) -> None:
    async with connected(url, "shared") as env:
        await env.reset()
        await give_up_answered(env.step(Do()), env)
        await env.close()
        with pytest.raises(SessionLost):
            await env.step(Do())
        await env.reset()
        assert (await env.step(Do())).observation.text == "step 1"
    assert taken() == 2


@pytest.mark.anyio
async def test_an_answer_that_came_on_one_loop_is_had_on_the_next(url: str) -> None:
    """A bare client lives on the shared loop, whichever loops it is awaited on."""
    env = CounterEnv(base_url=url)
    await env.reset()

    def elsewhere(call: Callable[[], Awaitable[Any]]) -> Any:
        async def awaited() -> Any:
            return await call()

        return asyncio.run(awaited())

    await asyncio.to_thread(elsewhere, lambda: give_up_answered(env.step(Do()), env))
    found = await asyncio.to_thread(elsewhere, lambda: env.step(Do()))
    assert found.observation.text == "step 1"
    await env.close()
    assert taken() == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_neither_the_answer_nor_the_episode(url: str, tmp_path: Path) -> None:
    hold = Hold(tmp_path)
    env = CounterEnv(base_url=url)

    async def begun() -> None:
        await env.reset()
        under_way.append(env.step(hold.action))
        await hold.begun()

    under_way: list[Any] = []
    asyncio.run(begun())
    (pending,) = under_way
    child = os.fork()
    if child == 0:
        code = 1
        try:
            lost = 0
            for read in (lambda: pending.observation, lambda: env.step(hold.action)):
                try:
                    read()
                except SessionLost:
                    lost += 1
            code = 0 if lost == 2 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    hold.release()
    assert pending.observation.text == "step 1"
    env.close()
    assert taken() == 1


@pytest.mark.parametrize("made", [CounterEnv, VectorEnv])
def test_a_client_is_not_pickled_and_goes_on(url: str, made: Any) -> None:
    """Another process makes a client of its own."""
    with made(url) as env:
        env.reset()
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            pickle.dumps(env)
        env.step(Do() if made is CounterEnv else [Do().model_dump()])
    assert taken() == Counter.log.count("init") == 1


# ------------------------------------------------------------------ version 0


@pytest.mark.anyio
async def test_version_0_keeps_what_has_come_and_loses_what_has_not(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    hold = Hold(tmp_path)
    async with connected(url, "shared") as env:
        await env.reset()
        await give_up_answered(env.step(Do()), env)
        assert (await env.step(Do())).observation.text == "step 1"
        waiting = asyncio.ensure_future(env.step(hold.action))
        await hold.begun()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        hold.release()
        for action in (hold.action, Do()):
            with pytest.raises(SessionLost, match="unknown; call reset"):
                await env.step(action)
        await env.reset()
        assert (await env.step(Do())).observation.text == "step 1"
    assert taken() == 3
