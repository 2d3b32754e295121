"""Any MCP server as an environment: stepped, scored, recorded, served again, and broken."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import pickle
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from support import bare_server, sdk_server
from support.processes import is_alive
from support.scores import is_done, scored
from support.servers import serving
from support.waiting import eventually, wait_until

from openenv import ExecutionFailed, GenericEnvClient, create_app
from openenv.errors import InvalidArgumentError, InvalidReturnError, NotSupported, Refused
from openenv.rollouts.replays import read
from openenv.server.run import bind
from openenv.settings import ServerMode
from openenv.tools import CallToolAction, CallToolObservation, ListToolsAction, tool, wrap
from openenv.tools.server_processes import WrappedServerGone
from openenv.tools.wrapped import WrappedEnvironment

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

BARE = [sys.executable, bare_server.__file__]
SDK = [sys.executable, sdk_server.__file__]


@contextlib.asynccontextmanager
async def living(made: type[WrappedEnvironment]) -> AsyncIterator[Playing]:
    env = made()
    try:
        yield Playing(env)
    finally:
        await env.close_async()


class Playing:
    """Plays an environment, as a session does."""

    def __init__(self, env: WrappedEnvironment) -> None:
        self.env = env

    async def reset(self, **arguments: Any) -> Any:
        return await self.env.reset_async(**arguments)

    async def call(
        self, name: str, timeout_s: float | None = None, **arguments: Any
    ) -> CallToolObservation:
        action = CallToolAction(tool_name=name, arguments=arguments)
        seen = await self.env.step_async(action, timeout_s=timeout_s)
        assert isinstance(seen, CallToolObservation)
        return seen

    async def text(self, name: str, **arguments: Any) -> str:
        seen = await self.call(name, **arguments)
        assert seen.error is None, seen.error
        return str(seen.result["content"][0]["text"])

    async def tools(self) -> list[str]:
        return [one.name for one in (await self.env.step_async(ListToolsAction())).tools]


def error_of(seen: CallToolObservation) -> str:
    assert seen.error is not None, seen
    return seen.error.error_type.value


# ------------------------------------------------------------------ over a server


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


@pytest.mark.parametrize(("kind", "workers"), [("sdk", None), ("sdk", 1), ("fastmcp", None)])
def test_it_is_stepped_rewarded_and_recorded(
    kind: str, workers: int | None, serve: Callable[[Any], str], tmp_path: Path
) -> None:
    made = wrap([*SDK, kind], reward=scored, done=is_done, name="tally")
    url = serve(create_app(made, workers=workers, record=tmp_path))
    with GenericEnvClient(base_url=url) as env:
        assert env.reset().done is False
        first = env.step(call("add", n=2))
        assert (first.reward, first.done) == (2.0, False)
        assert first.observation["result"]["data"] == {"sum": 2}
        pixel = env.step(call("picture"))
        assert pixel.observation["result"]["content"][0]["type"] == "image" and pixel.reward is None
        assert env.step(call("fail", why="so")).observation["error"]["error_type"] == (
            "execution_error"
        )
        last = env.step(call("add", n=3))
        assert (last.reward, last.done, last.truncated) == (5.0, True, False)
        with pytest.raises(ExecutionFailed, match="over"):
            env.step(call("add", n=1))
        state: Any = env.state()
        assert state["step_count"] == 4 and state["episode_id"]
        env.reset(episode_id="mine")
        assert env.step(call("add", n=1)).reward == 1.0  # the process is another one
        state = env.state()
        assert state == {"step_count": 1, "episode_id": "mine"}
    wait_until(lambda: b'{"event":"end"' in b"".join(f.read_bytes() for f in recorded(tmp_path)))
    (file,) = recorded(tmp_path)
    episode, second = read(file)
    rewards = [event.reward for event in episode.events if event.kind == "step"]
    assert rewards[:4] == [2.0, None, None, 5.0]
    assert len(second.events) == 2


def recorded(directory: Path) -> list[Path]:
    return sorted(directory.glob("*/*"))


@pytest.mark.slow("imports an SDK in each of two servers")
@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
def test_served_again_by_mcp_it_is_the_same(kind: str) -> None:
    command, *args = [*SDK, kind]
    parameters = StdioServerParameters(command=command, args=args)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("add", {"n": 2}),
        ("word", {"text": "hello"}),
        ("picture", {}),
        ("fail", {"why": "on purpose"}),
    ]

    async def seen_by(target: Any) -> tuple[list[Any], list[Any]]:
        async with Client(target) as client:
            tools = [one.model_dump() for one in (await client.list_tools()).tools]
            results = [(await client.call_tool(*one)).model_dump() for one in calls]
        return tools, results

    def plain(results: list[Any]) -> list[Any]:
        kept = ("content", "structured_content", "is_error")
        return [{key: result[key] for key in kept} for result in results]

    with serving(create_app(wrap([*SDK, kind]))) as url:
        tools, results = asyncio.run(seen_by(f"{url}/mcp"))
    direct, expected = asyncio.run(seen_by(parameters))
    assert tools == [one for one in direct if one["name"] != "close"]
    assert "close" in [one["name"] for one in direct]
    assert plain(results) == plain(expected)
    assert results[3]["is_error"] and results[2]["content"][0]["type"] == "image"


def test_production_starts_it_with_the_first_call_and_knows_no_end() -> None:
    async def calls(url: str) -> list[Any]:
        async with Client(url) as client:
            return [await client.call_tool("add", {"n": 1}) for _ in range(2)]

    made = wrap(BARE, max_steps=1, done=lambda *_: True)
    with serving(create_app(made, mode="production")) as url:
        assert [one.content[0].text for one in asyncio.run(calls(f"{url}/mcp"))] == ["1", "2"]


def test_the_processes_end_with_their_server() -> None:
    with serving(create_app(wrap(BARE))) as url, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(GenericEnvClient(base_url=url)) for _ in range(2)]
        pids = []
        for env in clients:
            env.reset()
            told = env.step(call("pid")).observation["result"]
            pids.append(int(told["content"][0]["text"]))
        assert len(set(pids)) == 2 and all(map(is_alive, pids))
        stack.pop_all()  # they stay connected
    wait_until(lambda: not any(map(is_alive, pids)))
    for env in clients:
        with contextlib.suppress(Exception):
            env.close()


# ------------------------------------------------------------------ episodes


async def test_an_episode_has_a_fresh_process() -> None:
    async with living(wrap(BARE)) as play:
        await play.reset()
        first = int(await play.text("pid"))
        assert await play.text("add", n=3) == "3"
        assert await play.text("pid") == str(first)
        await play.reset()
        assert not is_alive(first)
        assert await play.text("add", n=3) == "3"
        assert play.env.state.step_count == 1


async def test_a_process_that_nobody_has_called_is_fresh() -> None:
    async with living(wrap(BARE)) as play:
        await play.reset()
        process = play.env._servers._servers[0]._process
        assert process is not None and process.pid is not None
        pid = process.pid
        await play.reset()
        assert await play.text("pid") == str(pid)


async def test_before_the_first_reset_a_call_starts_it() -> None:
    async with living(wrap(BARE)) as play:
        assert await play.text("add", n=2) == "2"


async def test_a_tool_called_reset_begins_episodes_and_is_no_tool() -> None:
    async with living(wrap([*BARE, "--reset"])) as play:
        begun = await play.reset(seed=7, level="hard")
        assert begun.tool_name == "reset" and not begun.done
        assert begun.result["content"][0]["text"] == "begun hard"
        pid = await play.text("pid")
        assert await play.text("add", n=1) == "8"
        await play.reset(seed=1)
        assert (await play.text("add", n=1), await play.text("pid")) == ("2", pid)
        assert "reset" not in await play.tools()
        assert error_of(await play.call("reset")) != "transport_error"
        assert await play.text("add", n=0) == "2"
        with pytest.raises(InvalidArgumentError, match="levle"):
            await play.reset(levle="hard")


async def test_another_tool_may_be_named_to_begin_episodes() -> None:
    async with living(wrap(BARE, reset_tool="big")) as play:
        begun = await play.reset(n=3)
        assert begun.tool_name == "big" and begun.result["content"][0]["text"] == "xxx"
        assert "big" not in await play.tools()
    async with living(wrap(BARE, reset_tool="bgi")) as play:
        with pytest.raises(Refused, match="bgi"):
            await play.reset()


async def test_a_reset_tool_that_fails_is_no_episode() -> None:
    async with living(wrap(BARE, reset_tool="fail")) as play:
        with pytest.raises(Refused, match="no such level"):
            await play.reset(text="no such level")
    async with living(wrap([*BARE, "--reset"])) as play:
        with pytest.raises(WrappedServerGone):
            await play.reset(level="none")
        await play.reset(level="easy")


async def test_arguments_that_nobody_takes_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with living(wrap(BARE, name="nobody")) as play:
        with pytest.raises(InvalidArgumentError, match="options"):
            await play.reset(options={})
        await play.reset(seed=3, timeout_s=5.0)
    assert [r for r in caplog.records if "seed" in r.getMessage()]


# ------------------------------------------------------------------ scores and ends


async def test_a_step_that_is_not_scored_has_no_reward() -> None:
    async with living(wrap(BARE, reward=lambda call, seen: None)) as play:
        await play.reset()
        assert (await play.call("add", n=1)).reward is None
    async with living(wrap(BARE)) as play:
        assert (await play.call("add", n=1)).reward is None


async def test_a_reward_that_cannot_be_had_is_an_error() -> None:
    def broken(call: Any, seen: Any) -> float:
        raise ArithmeticError("no score")

    async with living(wrap(BARE, reward=broken)) as play:
        await play.reset()
        with pytest.raises(ArithmeticError):
            await play.call("add", n=1)
    async with living(wrap(BARE, done=lambda call, seen: None)) as play:  # type: ignore[arg-type, return-value]
        await play.reset()
        with pytest.raises(InvalidReturnError, match="None"):
            await play.call("add", n=1)


async def test_functions_may_be_coroutines() -> None:
    async def reward(call: CallToolAction, seen: CallToolObservation) -> float:
        await asyncio.sleep(0)
        return 0.25

    async def done(call: CallToolAction, seen: CallToolObservation) -> bool:
        await asyncio.sleep(0)
        return True

    async with living(wrap(BARE, reward=reward, done=done)) as play:
        await play.reset()
        seen = await play.call("add", n=1)
        assert (seen.reward, seen.done, seen.truncated) == (0.25, True, False)


class Judge:
    """What scores may be a method of something that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Judge:
        raise AssertionError("it was copied")

    def score(self, call: CallToolAction, seen: CallToolObservation) -> float:
        return 0.75


async def test_a_reward_is_the_function_itself() -> None:
    async with living(wrap(BARE, reward=Judge().score)) as play:
        assert (await play.call("add", n=1)).reward == 0.75


class Counting:
    """A rubric that scores 1, 2, 3 within an episode, and doubles the last one."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, action: CallToolAction, observation: CallToolObservation) -> float:
        self.calls += 1
        return float(self.calls * (2 if observation.done else 1))

    def reset(self) -> None:
        self.calls = 0


@pytest.mark.parametrize("rubric", [Counting, Counting()])
async def test_each_session_has_a_rubric_of_its_own(rubric: Any) -> None:
    made = wrap(BARE, rubric=rubric, max_steps=3)
    async with living(made) as one, living(made) as other:
        for play in (one, other):
            await play.reset()
            rewards = [(await play.call("add", n=1)).reward for _ in range(3)]
            assert rewards == [1.0, 2.0, 6.0]
        await one.reset()
        assert (await one.call("add", n=1)).reward == 1.0


async def test_an_episode_that_is_too_long_is_truncated() -> None:
    async with living(wrap(BARE, max_steps=2)) as play:
        await play.reset()
        assert not (await play.call("add", n=1)).done
        last = await play.call("add", n=1)
        assert last.done and last.truncated
        with pytest.raises(Refused):
            await play.call("add", n=1)
        assert play.env.state.step_count == 2
        await play.reset()
        assert not (await play.call("add", n=1)).done


async def test_plain_code_may_use_it_too() -> None:
    def play() -> str:
        env = wrap(BARE)()
        env.reset()
        seen = env.step(CallToolAction(tool_name="add", arguments={"n": 4}))
        env.close()
        return str(seen.result["content"][0]["text"])

    assert await asyncio.to_thread(play) == "4"


# ------------------------------------------------------------------ what goes wrong


async def test_a_server_that_dies_in_a_call_is_not_replaced_until_reset() -> None:
    async with living(wrap(BARE, reward=lambda *_: 0.0)) as play:
        await play.reset()
        assert (await play.call("add", n=1)).reward == 0.0
        seen = await play.call("die")
        assert error_of(seen) == "transport_error" and seen.reward is None
        assert seen.error is not None and "SIGKILL" in seen.error.message
        assert bare_server.__file__ in seen.error.message
        assert error_of(await play.call("add", n=1)) == "transport_error"
        with pytest.raises(WrappedServerGone):
            await play.tools()
        assert play.env.state.step_count == 3
        await play.reset()
        assert await play.text("add", n=1) == "1"


async def test_a_server_that_is_killed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    async with living(wrap(BARE)) as play:
        await play.reset()
        pid = int(await play.text("pid"))
        hanging = asyncio.ensure_future(play.call("hang", text=str(tmp_path / "begun")))
        await eventually((tmp_path / "begun").exists)
        os.kill(pid, signal.SIGKILL)
        assert error_of(await asyncio.wait_for(hanging, 5)) == "transport_error"


async def test_a_server_that_dies_between_calls_is_reset_all_the_same() -> None:
    async with living(wrap([*BARE, "--reset"])) as play:
        await play.reset(seed=1)
        os.kill(int(await play.text("pid")), signal.SIGKILL)
        await play.reset(seed=2)
        assert await play.text("add", n=0) == "2"


async def test_a_server_that_dies_before_its_first_call_is_reset_all_the_same() -> None:
    async with living(wrap(BARE)) as play:
        await play.reset()
        process = play.env._servers._servers[0]._process
        assert process is not None and process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        await play.reset()
        assert await play.text("add", n=1) == "1"


async def test_one_of_several_that_dies_takes_no_other_along() -> None:
    async with living(wrap({"one": BARE, "other": BARE})) as play:
        await play.reset()
        assert error_of(await play.call("one_die")) == "transport_error"
        assert error_of(await play.call("one_add", n=1)) == "transport_error"
        assert await play.text("other_add", n=1) == "1"


async def test_a_server_that_ends_at_once_is_told_of_with_its_last_words() -> None:
    async with living(wrap([*BARE, "--exit", "3"])) as play:
        with pytest.raises(WrappedServerGone) as caught:
            await play.reset()
        for told in (bare_server.__file__, "exit code 3", "no luck today"):
            assert told in str(caught.value)
        with pytest.raises(WrappedServerGone):
            await play.tools()
        assert error_of(await play.call("add", n=1)) == "transport_error"


def test_whoever_resets_is_told_why_it_does_not_start(serve: Callable[[Any], str]) -> None:
    url = serve(create_app(wrap([*BARE, "--exit", "3"])))
    with GenericEnvClient(base_url=url) as env, pytest.raises(ExecutionFailed, match="no luck"):
        env.reset()


async def test_a_command_that_is_none_is_named() -> None:
    async with living(wrap("no-such-program --port 3")) as play:
        told = r"no-such-program --port 3.*no-such-program: No such file or directory$"
        with pytest.raises(WrappedServerGone, match=told):
            await play.reset()
    async with living(wrap(BARE, cwd="/no/such/directory")) as play:
        with pytest.raises(WrappedServerGone, match="/no/such/directory"):
            await play.reset()


async def test_a_server_that_never_answers_is_given_up() -> None:
    async with living(wrap([*BARE, "--mute"], start_timeout_s=0.5)) as play:
        resetting = asyncio.ensure_future(play.reset())
        (guest,) = play.env._servers._servers
        await eventually(lambda: guest._process is not None and guest._process.pid)
        process = guest._process
        assert process is not None and process.pid is not None
        pid, began = process.pid, time.monotonic()
        with pytest.raises(WrappedServerGone, match=r"0.5 s"):
            await resetting
        assert time.monotonic() - began < 5
        assert not is_alive(pid)


async def test_a_call_that_takes_too_long_is_an_error_and_the_next_one_is_not() -> None:
    async with living(wrap(BARE, timeout_s=0.3)) as play:
        await play.reset()
        assert error_of(await play.call("quiet")) == "timeout"
        assert await play.text("add", n=1) == "1"
        assert error_of(await play.call("quiet", timeout_s=0.1)) == "timeout"


async def test_what_is_no_protocol_on_stdout_is_left_out() -> None:
    async with living(wrap([*BARE, "--garbage"])) as play:
        await play.reset()
        assert await play.text("stray", text="Loading...") == "written"
        assert await play.text("add", n=1) == "1"
    async with living(wrap([*BARE, "--garbage", "--mute"], start_timeout_s=0.5)) as play:
        with pytest.raises(WrappedServerGone, match="Welcome!"):
            await play.reset()


async def test_errors_of_its_tools_are_results() -> None:
    async with living(wrap(BARE)) as play:
        await play.reset()
        failed = await play.call("fail", text="so it is")
        assert error_of(failed) == "execution_error"
        assert failed.error is not None and failed.error.message == "so it is"
        assert error_of(await play.call("refuse")) == "invalid_args"
        assert error_of(await play.call("nothing")) == "tool_not_found"


async def test_a_result_of_megabytes_comes_through() -> None:
    async with living(wrap(BARE)) as play:
        assert len(await play.text("big", n=5_000_000)) == 5_000_000
        seen = await play.call("fail", text="y" * 3_000_000)
        assert seen.error is not None and len(seen.error.message) == 3_000_000


async def test_how_far_a_call_is_is_told() -> None:
    told = []

    async def on_progress(*report: Any) -> None:
        told.append(report)

    async with living(wrap(BARE)) as play:
        await play.env.mcp_call_tool("advance", {}, on_progress)
        await eventually(lambda: told)
    assert told == [(1, 2, "half")]


async def test_a_server_that_knows_no_handshake_is_spoken_to_as_of_2026() -> None:
    async with living(wrap([*BARE, "--modern"])) as play:
        await play.reset()
        assert await play.text("add", n=1) == "1"


# ------------------------------------------------------------------ nothing is left behind


async def test_what_a_server_has_started_ends_with_it() -> None:
    async with living(wrap(BARE)) as play:
        await play.reset()
        child = int(await play.text("child"))
        assert is_alive(child)
    wait_until(lambda: not is_alive(child))


@pytest.mark.extended("a server that does not end is waited for")
async def test_a_server_that_will_not_end_is_killed() -> None:
    async with living(wrap([*BARE, "--stubborn"])) as play:
        await play.reset()
        pid = int(await play.text("pid"))
        began = time.monotonic()
    assert not is_alive(pid)
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("options", [[], ["--reset"]])
async def test_one_that_hangs_in_a_call_is_ended_by_reset(options: list[str]) -> None:
    async with living(wrap([*BARE, *options])) as play:
        await play.reset()
        pid = int(await play.text("pid"))
        assert error_of(await play.call("hang", timeout_s=0.2)) == "timeout"
        await play.reset()
        assert not is_alive(pid)
        assert await play.text("add", n=1) == "1"


def test_a_program_that_ends_without_closing_leaves_none(tmp_path: Path) -> None:
    script = f"""
import asyncio
from openenv.tools import wrap, CallToolAction
env = wrap({[*BARE, "--stubborn"]!r})()
env.reset()
print(env.step(CallToolAction(tool_name="pid")).result["content"][0]["text"], flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30
    )
    pid = int(done.stdout)
    wait_until(lambda: not is_alive(pid))


# ------------------------------------------------------------------ secrets


async def test_secrets_reach_no_message(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    hidden = ("sesame-open-1", "sesame-open-2")
    command = [*BARE, "--exit", "1", "--api-key", hidden[0]]
    made = wrap(command, env={"BARE_TOKEN": hidden[1]})
    async with living(made) as play:
        with pytest.raises(WrappedServerGone) as caught:
            await play.reset()
    told = [str(caught.value), caplog.text, repr(made.DEFINITION), str(made.__doc__)]
    assert "no luck today: ***" in str(caught.value)
    for secret in hidden:
        assert not [text for text in told if secret in text]


async def test_a_server_gets_the_variables_that_it_is_given_and_no_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_API_KEY", "never-mind-this")
    async with living(wrap(BARE, env={"GIVEN": "this"}, cwd=tmp_path)) as play:
        assert await play.text("variable", text="GIVEN") == "this"
        assert await play.text("variable", text="PATH") == os.environ["PATH"]
        assert await play.text("variable", text="MY_API_KEY") == ""
        assert await play.text("directory") == str(tmp_path)


# ------------------------------------------------------------------ several servers, some tools


async def test_tools_of_one_name_are_told_apart_by_their_servers() -> None:
    other = [*SDK, "sdk"]
    async with living(wrap({"bare": BARE, "tally": other})) as play:
        tools = await play.tools()
        assert {"bare_add", "tally_add", "bare_pid", "die", "word"} <= set(tools)
        assert not {"add", "pid", "bare_die", "close", "step", "state"} & set(tools)
        await play.reset()
        assert await play.text("bare_add", n=1) == "1"
        assert json.loads(await play.text("tally_add", n=2)) == {"sum": 2}


async def test_every_tool_may_have_its_servers_name() -> None:
    async with living(wrap({"bare": BARE}, prefix=True, tools=["bare_add", "bare_pid"])) as play:
        assert await play.tools() == ["bare_add", "bare_pid"]
        assert await play.text("bare_add", n=1) == "1"
        assert error_of(await play.call("bare_big", n=1)) == "tool_not_found"


async def test_a_tool_that_is_not_there_cannot_be_chosen() -> None:
    async with living(wrap(BARE, tools=["add", "subtract"])) as play:
        with pytest.raises(Refused, match="subtract"):
            await play.reset()


# ------------------------------------------------------------------ other sources


@contextlib.contextmanager
def http_server(*, token: str) -> Iterator[str]:
    """A server of the official SDK over Streamable HTTP, which wants a token."""
    app = sdk_server.made("sdk").streamable_http_app(stateless_http=False)

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers") or ())
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": token.encode()})
            return
        await app(scope, receive, send)

    with serving(guarded) as url:
        yield f"{url}/mcp"


@pytest.mark.blocks_the_loop  # the server of the SDK is made on it
async def test_a_server_may_be_elsewhere() -> None:
    token = "open-sesame-3"
    with http_server(token=token) as url:
        made = wrap(url, headers={"Authorization": f"Bearer {token}"}, reward=scored)
        async with living(made) as play:
            await play.reset()
            assert (await play.call("add", n=2)).reward == 2.0
            assert "close" not in await play.tools()
        async with living(wrap(url, start_timeout_s=5)) as play:
            with pytest.raises(WrappedServerGone) as caught:
                await play.reset()
            assert token not in str(caught.value) and url in str(caught.value)


@contextlib.contextmanager
def http_process(port: int) -> Iterator[None]:
    """The same as a process, which is killed."""
    with subprocess.Popen([*SDK, "sdk", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: answers(port), 20)
            yield
        finally:
            process.kill()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.mark.blocks_the_loop
@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_server_elsewhere_that_goes_away(comes_back: bool) -> None:
    """One that has come back is another one, which knows nothing of the episode."""
    with bind("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
    made = wrap(f"http://127.0.0.1:{port}/mcp", timeout_s=10)
    async with living(made) as play:
        with http_process(port):
            await play.reset()
            assert json.loads(await play.text("add", n=2)) == {"sum": 2}
        with contextlib.ExitStack() as stack:
            if comes_back:
                stack.enter_context(http_process(port))
            for _ in range(2):
                assert error_of(await play.call("add", n=2)) == "transport_error"
            if comes_back:
                await play.reset()
                assert json.loads(await play.text("add", n=1)) == {"sum": 1}
            else:
                with pytest.raises(WrappedServerGone):
                    await play.reset()


@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
async def test_a_server_may_be_an_object_or_a_function_that_makes_one(kind: str) -> None:
    shared = wrap(await asyncio.to_thread(sdk_server.made, kind), reward=scored)
    assert not shared.SUPPORTS_CONCURRENT_SESSIONS
    fresh = wrap(lambda: sdk_server.made(kind), reward=scored)
    assert fresh.SUPPORTS_CONCURRENT_SESSIONS
    for made, second in ((shared, 2.0), (fresh, 1.0)):
        async with living(made) as play:
            await play.reset()
            assert (await play.call("add", n=1)).reward == 1.0
            assert "close" not in await play.tools()
            await play.reset()
            assert (await play.call("add", n=1)).reward == second


def test_an_mcp_json_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/data")
    servers = {
        "files": {
            "command": "npx",
            "args": ["-y", "files", "${WHERE}"],
            "env": {"A": "${NOT_THERE:-fallback}", "B": "${env:WHERE}"},
            "cwd": "/tmp",
        },
        "search": {"type": "http", "url": "https://x.test/mcp", "headers": {"X-Where": "${WHERE}"}},
        "off": {"command": "no", "disabled": True},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    for source in (file, str(file), {"mcpServers": servers}, servers):
        made = wrap(source, env={"A": "overridden", "C": "c"})
        files, search = (dataclasses.asdict(one) for one in made.DEFINITION.sources.values())
        assert files == {
            "command": ("npx", "-y", "files", "/data"),
            "env": {"A": "fallback", "B": "/data", "C": "c"},
            "cwd": "/tmp",
        }
        assert search == {"url": "https://x.test/mcp", "headers": {"X-Where": "/data"}}
        assert made.__name__ == "files_search"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y @modelcontextprotocol/server-filesystem@1.2 /tmp", "server-filesystem"),
        ("node /lib/npx-cli.js -y files", "files"),
        ("uvx mcp-server-git --repository .", "mcp-server-git"),
        ("python3.11 -m my.server", "my_server"),
        (shlex.join(BARE), "bare_server"),
        ("docker run -i --rm mcp/time", "time"),
        ("https://example.test/mcp", "example_test"),
    ],
)
def test_an_environment_is_called_as_its_server(command: str, name: str) -> None:
    assert wrap(command).__name__ == name
    assert wrap(command, name="mine").__name__ == "mine"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("", "empty"),
        ([], "empty"),
        ({}, "no MCP server"),
        ("echo 'unclosed", "command line"),
        ("nowhere.json", "nowhere.json"),
        (["uvx one", "uvx two"], "dict"),
        ({"mcpServers": {"a": {}}}, "command or a url"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, r"a\.args"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": 1}}}}, r"a\.env\.K"),
        ({"mcpServers": {"a": {"command": "${NOT_THERE_AT_ALL}"}}}, "NOT_THERE_AT_ALL"),
        ({"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}, "sse"),
    ],
)
def test_what_is_no_server_is_refused(source: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        wrap(source)


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(TypeError, match="int"):
        wrap(3)
    with pytest.raises(ValueError, match="exclude"):
        wrap("x", reward=scored, rubric=Counting)
    with pytest.raises(ValueError, match="max_steps"):
        wrap("x", max_steps=0)
    with pytest.raises(TypeError, match="done"):
        wrap("x", done=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="names"):
        wrap("x", tools="add")


# ------------------------------------------------------------------ the class


def test_another_process_makes_the_class_anew() -> None:
    made = wrap(BARE, reward=scored, rubric=None, max_steps=3, name="again")
    again = pickle.loads(pickle.dumps(made))
    assert again is not made and again.__name__ == "again"
    assert again.DEFINITION == made.DEFINITION
    assert pickle.loads(pickle.dumps(Named)) is Named
    assert pickle.loads(pickle.dumps(WrappedEnvironment)) is WrappedEnvironment


def test_worker_processes_want_functions_that_they_can_import() -> None:
    with pytest.raises(TypeError, match="worker processes cannot import"):
        create_app(wrap(BARE, reward=lambda *_: 1.0), workers=1)


class Named(wrap(BARE)):  # type: ignore[misc]
    """One with a tool of its own."""

    @tool
    def double(self, n: int) -> int:
        """Double a number."""
        return 2 * n


async def test_the_class_may_have_tools_of_its_own() -> None:
    async with living(Named) as play:
        await play.reset()
        assert {"double", "add"} <= set(await play.tools())
        assert await play.text("double", n=4) == "8"
        assert await play.text("add", n=4) == "4"
        assert Named.__module__ == __name__


async def test_other_actions_are_refused() -> None:
    from openenv import Action

    async with living(wrap(BARE)) as play:
        with pytest.raises(NotSupported):
            await play.env.step_async(Action())
        play.env.mcp_serve_in(ServerMode.PRODUCTION)
        assert await play.text("add", n=1) == "1"


# ------------------------------------------------------------------ servers that list too much


def listing(tools: str) -> list[str]:
    """A server that lists what an expression says."""
    program = f"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {{}}
    if asked["method"] == "initialize":
        answer = {{
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {{"tools": {{}}}},
            "serverInfo": {{"name": "lister", "version": "1"}},
        }}
    elif asked["method"] == "tools/list":
        answer = {{"tools": {tools}}}
    if "id" in asked:
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": answer}}), flush=True)
"""
    return [sys.executable, "-c", program]


async def test_a_server_may_have_a_thousand_tools_and_no_more() -> None:
    tool = '{"name": f"t{n}", "inputSchema": {"type": "object"}}'
    async with living(wrap(listing(f"[{tool} for n in range(1000)]"))) as play:
        await play.reset()
        assert len(await play.tools()) == 1000
    async with living(wrap(listing(f"[{tool} for n in range(12000)]"))) as play:
        with pytest.raises(Refused, match="lists 12000 tools; at most 1000 are taken"):
            await play.reset()


async def test_a_tool_that_is_described_at_length_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = (
        '{"name": "large\\x1b[2J", "description": "x" * 10**6, "inputSchema": {"type": "object"}}'
    )
    small = '{"name": "small", "inputSchema": {"type": "object"}}'
    async with living(wrap(listing(f"[{large}, {small}]"))) as play:
        await play.reset()
        assert await play.tools() == ["small"]
    assert "tools of more than 65536 bytes: large\\x1b[2J" in caplog.text
