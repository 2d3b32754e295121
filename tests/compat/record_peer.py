"""Record what the public `openenv` package puts on the wire, byte for byte, as test data.

Run it with a Python that has the published package installed::

    python tests/compat/record_peer.py tests/data/peer_0_10_0.json

It serves the toy environments below with uvicorn on a free loopback port, plays the scripts of
`WEBSOCKET_SCENARIOS` and `HTTP_SCENARIOS` against them, and writes down every exchange. Every
scenario has a server of its own, so that none sees the sessions of another. Only names of
`openenv.core.env_server` are used: the same script records any package that offers them.

The file holds ``versions``, ``websocket``, ``json_rpc`` and ``http``.

``websocket`` is a list of ``{"name", "env", "path", "already_open", "events"}``; ``already_open``
is how many other sessions were open before this one. The events stand in the order in which the
client saw them:

* ``{"client": text}`` or ``{"client_binary_hex": hex}``: a frame sent;
* ``{"server": text}``: a frame received;
* ``{"closed": code}``: the server's close frame, always the last event. A connection that the
  server left open is ended by a last ``{"type":"close"}`` frame of the recorder.

``json_rpc`` is the same of WebSocket `/mcp`, where the recorder leaves at the end: then no close
frame is recorded.

``http`` is a list of ``{"name", "env", "exchanges"}``; an exchange is ``{"method", "path",
"content_type", "body", "status", "answer_content_type", "answer"}``, the first four as sent.

A session id, the only random text, is written ``<uuid>`` on both sides.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import uvicorn
from fastapi import FastAPI
from pydantic import Field
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from openenv.core.env_server import (
    Action,
    CallToolAction,
    CallToolObservation,
    Environment,
    ListToolsAction,
    ListToolsObservation,
    MCPEnvironment,
    Observation,
    State,
    Tool,
    create_app,
)

HOST = "127.0.0.1"
FIRST_REPLY_S = 10.0
"""How long a frame may wait for its first answer before the recording is given up."""
QUIET_S = 0.15
"""How long the server must be silent for an answer to count as complete."""

RECORDED_VERSIONS = (
    *("openenv", "pydantic", "fastapi", "starlette", "uvicorn", "websockets"),
    *("fastmcp", "mcp"),
)
SERVER_SETTINGS = ("ENABLE_WEB_INTERFACE", "OPENENV_MODE", "ENV_README_PATH")
"""Environment variables that would change what the server answers."""

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
UUID_MARK = "<uuid>"

Json: TypeAlias = dict[str, Any]
AnyEnvironment: TypeAlias = Environment[Any, Any, Any]


# --- the toy environments ---------------------------------------------------------------------


class ToyAction(Action):
    """What to do: `msg` selects the behaviour, `n` is its number."""

    msg: str
    n: int = 0


class ToyObservation(Observation):
    """What happened: `text` echoes what the server passed."""

    text: str
    data: Any = None


class ToyState(State):
    """A state with a field of its own."""

    extra_field: str = "x"


def nested(depth: int) -> list[Any]:
    """Return `depth` lists, one inside the other."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


REWARDS: dict[str, float] = {
    "bool": True,
    "int": 1,
    "float": 0.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "neginf": float("-inf"),
}

FAILURES: dict[str, Callable[[], Exception]] = {
    "boom": lambda: RuntimeError("kaboom"),
    "wordless": RuntimeError,
    "keyerror": lambda: KeyError("k"),
    "late": lambda: TimeoutError("too late"),
}

DATA: dict[str, Callable[[int], Any]] = {
    "none": lambda n: None,
    "nested": lambda n: {"a": [1, 2.5, {"b": [True, None, []]}], "c": {}},
    "big": lambda n: list(range(1000)),
    "deep": nested,
    "badbytes": lambda n: b"\xff",
    "goodbytes": lambda n: "é".encode(),
    "surrogate": lambda n: "\ud800",
    "nandata": lambda n: [float("nan"), float("inf"), float("-inf")],
    "numbers": lambda n: [1.0, 1e300, 1e-7, -0.0, 2**64, 10**25],
    "set": lambda n: {n},
    "object": lambda n: object(),
}

UNICODE_TEXT = 'é ñ \U0001f600 \u2028 \u2029 \x00 \x07 \x1f \x7f \t \n " \\ / <&>'


def observe(action: ToyAction, text: str) -> ToyObservation:
    """Do what `action.msg` names and describe it; an unknown name is only echoed."""
    msg = action.msg
    if msg in FAILURES:
        raise FAILURES[msg]()
    return ToyObservation(
        text=UNICODE_TEXT if msg == "unicode" else text,
        data=DATA[msg](action.n) if msg in DATA else None,
        reward=REWARDS.get(msg),
        done=msg == "done",
        metadata={"k": [1, {"a": None}]} if msg == "meta" else {},
    )


class ToyEnvironment(Environment[ToyAction, ToyObservation, ToyState]):
    """Echoes what it is given; see `observe` for the behaviours."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = ToyState()
        self._state_fails = False

    def reset(  # type: ignore[override]  # no **kwargs: what is not named here is dropped
        self, seed: Any = None, episode_id: Any = None, foo: Any = None
    ) -> ToyObservation:
        if foo == "boom":
            raise RuntimeError("no reset")
        self._state = ToyState(episode_id=episode_id)
        text = f"reset seed={seed!r} episode_id={episode_id!r} foo={foo!r}"
        return ToyObservation(text=text, metadata={"m": 1})

    def step(
        self, action: ToyAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ToyObservation:
        self._state.step_count += 1
        self._state_fails = action.msg == "badstate"
        if action.msg == "wrongtype":
            return None  # type: ignore[return-value]  # an environment's mistake, on purpose
        return observe(action, f"step {action.msg} n={action.n} to={timeout_s} kw={kwargs}")

    @property
    def state(self) -> ToyState:
        if self._state_fails:
            raise RuntimeError("no state")
        return self._state


class BareEnvironment(Environment[ToyAction, ToyObservation, State]):
    """An environment that never calls its base class and takes no keywords."""

    def __init__(self) -> None:
        self._steps = 0

    def reset(self) -> ToyObservation:  # type: ignore[override]
        return ToyObservation(text="bare reset")

    def step(self, action: ToyAction) -> ToyObservation:  # type: ignore[override]
        self._steps += 1
        return observe(action, f"bare step {action.msg} n={action.n}")

    @property
    def state(self) -> State:
        return State(step_count=self._steps)


class AsyncEnvironment(Environment[ToyAction, ToyObservation, ToyState]):
    """An environment whose work is done by the asynchronous hooks."""

    def __init__(self) -> None:
        super().__init__()
        self._state = ToyState()

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> ToyObservation:
        raise AssertionError("the synchronous reset was called")

    def step(
        self, action: ToyAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ToyObservation:
        raise AssertionError("the synchronous step was called")

    async def reset_async(
        self, seed: Any = None, episode_id: Any = None, **kwargs: Any
    ) -> ToyObservation:
        self._state = ToyState(episode_id=episode_id)
        return ToyObservation(text=f"async reset seed={seed!r} kw={kwargs}")

    async def step_async(
        self, action: ToyAction, timeout_s: float | None = None, **kwargs: Any
    ) -> ToyObservation:
        self._state.step_count += 1
        return observe(action, f"async step {action.msg} to={timeout_s} kw={kwargs}")

    @property
    def state(self) -> ToyState:
        return self._state


def count_letters(word: Annotated[str, Field(description="What to count.")], times: int = 1) -> int:
    """Count the letters of a word."""
    return len(word) * times


def describe(word: str) -> dict[str, Any]:
    """Say what there is to say of a word."""
    return {"word": word, "length": len(word)}


def spell(word: str) -> list[str]:
    """Spell a word."""
    return list(word)


def repeat(word: str) -> str:
    """Say a word again."""
    return word


def forget(word: str) -> None:
    """Say nothing."""


def fail(word: str) -> str:
    """Say that a word will not do."""
    raise ValueError(f"{word} will not do")


class ToolsEnvironment(MCPEnvironment):
    """An environment whose tools are those of a FastMCP server."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        from fastmcp import FastMCP

        server = FastMCP("words")
        for function in (count_letters, describe, spell, repeat, forget, fail):
            server.tool(function)
        super().__init__(server)
        self._state = State()

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> Observation:
        self._state = State(episode_id=episode_id)
        return Observation(reward=0.0, metadata={"status": "ready"})

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Observation(reward=0.0, metadata={"error": f"what is {type(action).__name__}?"})

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self._state.step_count += 1
        return super().step(action, timeout_s=timeout_s, **kwargs)

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        self._state.step_count += 1
        return await super().step_async(action, timeout_s=timeout_s, **kwargs)

    @property
    def state(self) -> State:
        return self._state


class CallsEnvironment(Environment[Any, Any, State]):
    """An environment that answers calls of tools itself."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> Observation:
        self._state = State(episode_id=episode_id)
        return Observation(metadata={"status": "ready"})

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        if isinstance(action, ListToolsAction):
            schema = {"type": "object", "properties": {"word": {"type": "string"}}}
            tool = Tool(name="repeat", description="Say it again.", input_schema=schema)
            return ListToolsObservation(tools=[tool])
        if action.tool_name != "repeat":
            raise RuntimeError(f"no tool {action.tool_name}")
        return CallToolObservation(
            tool_name=action.tool_name, result=action.arguments.get("word"), reward=0.5
        )

    @property
    def state(self) -> State:
        return self._state


def failing_factory() -> AnyEnvironment:
    """Stand in for a factory that cannot build its environment."""
    raise RuntimeError("no environment today")


def tools_app(name: str, factory: Callable[[], AnyEnvironment]) -> FastAPI:
    """Build the application that serves an environment of tools."""
    return create_app(
        factory, CallToolAction, CallToolObservation, env_name=name, max_concurrent_envs=2
    )


def toy_app(name: str, factory: Callable[[], AnyEnvironment], capacity: int = 1) -> FastAPI:
    """Build the application that serves one toy environment."""
    return create_app(
        factory,
        ToyAction,
        ToyObservation,
        env_name=name,
        max_concurrent_envs=capacity,
        state_cls=State if factory is BareEnvironment else ToyState,
    )


APPS: dict[str, Callable[[], FastAPI]] = {
    "toy": lambda: toy_app("toy", ToyEnvironment, capacity=2),
    "factoryfail": lambda: toy_app("factoryfail", failing_factory),
    "bare": lambda: toy_app("bare", BareEnvironment),
    "async": lambda: toy_app("async", AsyncEnvironment),
    "tools": lambda: tools_app("tools", ToolsEnvironment),
    "calls": lambda: tools_app("calls", CallsEnvironment),
}


# --- what is sent -----------------------------------------------------------------------------

Frame: TypeAlias = str | bytes
Burst: TypeAlias = Sequence[Frame]
"""Frames that are all sent before the first answer is read."""


@dataclass(frozen=True)
class WebSocketScenario:
    """One connection and the frames sent on it."""

    name: str
    frames: Sequence[Frame | Burst]
    env: str = "toy"
    path: str = "/ws"
    already_open: int = 0


@dataclass(frozen=True)
class Request:
    """One HTTP request; without a body no content type is sent."""

    method: str
    path: str
    body: str | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class HttpScenario:
    """Requests sent one after the other to one server."""

    name: str
    requests: Sequence[Request]
    env: str = "toy"


RESET = '{"type":"reset"}'
STATE = '{"type":"state"}'
CLOSE = '{"type":"close"}'

BAD_NUMBERS = ("NaN", "Infinity", "1e400", "1.5", "1.0", "true", '"1"', "null", "9" * 40)
NESTED_200 = "[" * 200 + "]" * 200
NESTED_5000 = "[" * 5000 + "]" * 5000
DIGITS_5000 = "9" * 5000


def step(data: str) -> str:
    """Return the step frame of an action written as JSON text."""
    return f'{{"type":"step","data":{data}}}'


def act(msg: str, n: int = 0) -> str:
    """Return the step frame of one behaviour."""
    return step(json.dumps({"msg": msg, "n": n}))


def reset(data: str) -> str:
    """Return the reset frame of keywords written as JSON text."""
    return f'{{"type":"reset","data":{data}}}'


def mcp(data: str) -> str:
    """Return the frame that wraps a JSON-RPC request written as JSON text."""
    return f'{{"type":"mcp","data":{data}}}'


def rpc(method: str, params: str | None = None, request_id: str = "1") -> str:
    """Return a JSON-RPC request as JSON text."""
    rest = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"{method}"{rest}}}'


CALL_TOOL = rpc("tools/call", '{"name":"t","arguments":{}}')
CREATE_SESSION = rpc("openenv/session/create")
CLOSE_SESSION = rpc("openenv/session/close", f'{{"session_id":"{UUID_MARK}"}}')

BAD_ACTIONS = (
    "{}",
    '{"msg":"x","bad":1}',
    '{"msg":5}',
    '{"msg":null}',
    '{"msg":"x","n":"many"}',
    '{"bad":1}',
    '{"msg":"x","metadata":{"a":1}}',
    '{"msg":"x","metadata":[]}',
    *(f'{{"msg":"x","n":{number}}}' for number in BAD_NUMBERS),
)

BAD_RPC = (
    "{}",
    "[]",
    '{"method":"tools/list"}',
    '{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
    '{"jsonrpc":"2.0","id":1,"method":5}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/list","extra":1}',
    '{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}',
    '{"jsonrpc":"2.0","method":"tools/list"}',
)

MCP_CALLS = (
    rpc("tools/list"),
    rpc("tools/list", "{}", '"text id"'),
    CALL_TOOL,
    rpc("tools/call", "{}"),
    rpc("tools/nope"),
    rpc("initialize"),
)


def call(tool: str, arguments: str = "{}", session: str = "") -> str:
    """Return the JSON-RPC request of a call, its arguments written as JSON text."""
    rest = f',"session_id":"{session}"' if session else ""
    return rpc("tools/call", f'{{"name":"{tool}","arguments":{arguments}{rest}}}')


def act_tool(tool: str, arguments: str = "{}") -> str:
    """Return the step frame of a call, its arguments written as JSON text."""
    return step(f'{{"type":"call_tool","tool_name":"{tool}","arguments":{arguments}}}')


TOOL_CALLS: tuple[tuple[str, str], ...] = (
    ("count_letters", '{"word":"hello"}'),
    ("count_letters", '{"word":"hello","times":3}'),
    ("describe", '{"word":"hello"}'),
    ("spell", '{"word":"hey"}'),
    ("repeat", '{"word":"é😀"}'),
    ("repeat", '{"word":""}'),
    ("forget", '{"word":"hello"}'),
)
WRONG_CALLS: tuple[tuple[str, str], ...] = (
    ("fail", '{"word":"hello"}'),
    ("nope", "{}"),
    ("count_letters", "{}"),
    ("count_letters", '{"word":3}'),
    ("count_letters", '{"word":"hello","times":"many"}'),
    ("count_letters", '{"word":"hello","more":1}'),
)
ODD_CALLS = (
    rpc("tools/call"),
    rpc("tools/call", '{"name":""}'),
    rpc("tools/call", '{"name":5}'),
    rpc("tools/call", '{"name":"spell"}'),
    rpc("tools/call", '{"name":"spell","arguments":null}'),
    rpc("tools/call", '{"name":"spell","arguments":[]}'),
    rpc("tools/call", '{"name":"repeat","arguments":{"word":"a"},"more":1}'),
    rpc("tools/call", '{"name":"repeat","arguments":{"word":"a"}}', '"text id"'),
    '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"repeat","arguments":{"word":"a"}}}',
)
ALL_CALLS = (
    rpc("tools/list"),
    *(call(*one) for one in (*TOOL_CALLS, *WRONG_CALLS)),
    *ODD_CALLS,
)
ODD_TOOL_STEPS = (
    "{}",
    '{"type":"list_tools","more":1}',
    '{"type":"call_tool"}',
    '{"type":"call_tool","tool_name":5}',
    '{"type":"call_tool","tool_name":"spell"}',
    '{"type":"call_tool","tool_name":"spell","arguments":null}',
    '{"type":"call_tool","tool_name":"spell","arguments":[]}',
    '{"type":"other"}',
    '{"tool_name":"repeat","arguments":{"word":"a"}}',
)

NOT_JSON = (
    "",
    " ",
    "not json",
    '{"type":"state"',
    '{"type":"state"} x',
    '{"type":"state"}{"type":"state"}',
    '{"type":"state",}',
    "{'type':'state'}",
    '{"type":"sta\nte"}',
    '{"type":"\\x"}',
    '\ufeff{"type":"state"}',
)

UNKNOWN_TYPES = (
    "{}",
    '{"type":"wat"}',
    '{"type":""}',
    '{"type":"RESET"}',
    '{"type":5}',
    '{"type":null}',
    '{"type":true}',
    '{"type":["reset"]}',
    '{"type":{"a":1}}',
    '{"data":{}}',
    '{"type":"é\U0001f600"}',
)

LEGAL_BUT_ODD_JSON = (
    ' \n{ "type" : "state" }\t',
    '{"type":"wat","type":"state"}',
    '{"type":"reset","data":{"seed":1,"seed":2}}',
    '{"type":"st\\u0061te"}',
    reset('{"seed":NaN,"foo":[Infinity,-Infinity]}'),
    reset('{"seed":' + "9" * 40 + "}"),
    reset('{"foo":"\\ud800"}'),
    reset(f'{{"foo":{NESTED_200}}}'),
    step(f'{{"msg":"x","n":{NESTED_200}}}'),
    step('{"msg":"\\ud83d\\ude00"}'),
)

RESETS = (
    RESET,
    reset("{}"),
    reset('{"seed":3,"episode_id":"ep","foo":"q"}'),
    reset('{"seed":3,"zzz":1,"self":2}'),
    reset('{"seed":-5}'),
    reset('{"seed":"7"}'),
    reset('{"episode_id":"' + "e" * 300 + '"}'),
    reset('{"episode_id":9}'),
    reset('{"foo":"boom"}'),
    STATE,
)

STEP_BEHAVIOURS = (
    act("hi", 3),
    *(act(msg) for msg in REWARDS),
    *(act(msg) for msg in ("done", "hi", "meta", "unicode")),
    *(act(msg) for msg in DATA if msg != "deep"),
    *(act(msg) for msg in FAILURES),
    act("wrongtype"),
    STATE,
)

CLOSING_FRAMES: dict[str, Frame] = {
    "array": "[1]",
    "empty array": "[]",
    "integer": "5",
    "string": '"state"',
    "null": "null",
    "true": "true",
    "NaN": "NaN",
    "binary": STATE.encode(),
    "empty binary": b"",
    "5,000 levels of nesting": reset(f'{{"foo":{NESTED_5000}}}'),
    "5,000 digits": reset(f'{{"seed":{DIGITS_5000}}}'),
    "lone surrogate as type": '{"type":"\\ud800"}',
    "lone surrogate in an action": step('{"msg":"\\ud800"}'),
    "lone surrogate as key": '{"type":"state","\\ud800":1}',
}
"""Frames that may end the connection, each on its own; a state frame follows where they don't."""

WEBSOCKET_SCENARIOS: tuple[WebSocketScenario, ...] = (
    WebSocketScenario("state before reset", [STATE, RESET, STATE]),
    WebSocketScenario("step before reset", [act("hi"), STATE]),
    WebSocketScenario("resets", RESETS),
    WebSocketScenario(
        "reset data that is no object",
        [reset(value) for value in ("null", "[]", '[["seed",1]]', "5", '"x"')] + [STATE],
    ),
    WebSocketScenario("steps", STEP_BEHAVIOURS),
    WebSocketScenario("steps after done", [RESET, act("done"), act("hi"), STATE, RESET, STATE]),
    WebSocketScenario("deep observations", [act("deep", n) for n in (200, 254, 255, 2000)]),
    WebSocketScenario("state that raises", [act("badstate"), STATE, act("hi"), STATE]),
    WebSocketScenario("actions that may not fit", [step(data) for data in BAD_ACTIONS] + [STATE]),
    WebSocketScenario(
        "step data that is no object",
        [step(value) for value in ("null", "[]", "5", '"x"')] + ['{"type":"step"}', STATE],
    ),
    WebSocketScenario(
        "extra top-level keys",
        [
            '{"type":"reset","data":{},"id":7}',
            '{"type":"step","data":{"msg":"x"},"id":7}',
            '{"type":"step","id":7}',
            '{"type":"state","id":7}',
            '{"type":"state","data":{}}',
            '{"type":"state","a":1,"b":2}',
        ],
    ),
    WebSocketScenario("unknown types", [*UNKNOWN_TYPES, STATE]),
    WebSocketScenario("not JSON", [*NOT_JSON, STATE]),
    WebSocketScenario("legal but odd JSON", [*LEGAL_BUT_ODD_JSON, STATE]),
    *(
        WebSocketScenario(f"frame: {name}", [frame, STATE])
        for name, frame in CLOSING_FRAMES.items()
    ),
    WebSocketScenario(
        "pipelining",
        [[reset('{"seed":1}'), act("int"), act("boom"), "not json", STATE], STATE],
    ),
    WebSocketScenario("pipelining past a close", [[STATE, CLOSE, STATE]]),
    WebSocketScenario("pipelining past a fatal frame", [[STATE, "[1]", STATE]]),
    WebSocketScenario("mcp without support", [mcp(call) for call in MCP_CALLS]),
    WebSocketScenario("mcp bad envelopes", [mcp(call) for call in BAD_RPC]),
    WebSocketScenario(
        "mcp bad frames",
        [
            '{"type":"mcp"}',
            '{"type":"mcp","data":null}',
            '{"type":"mcp","data":5}',
            '{"type":"mcp","data":' + rpc("tools/list") + ',"id":7}',
            mcp(rpc("tools/list", '{"session_id":"nope"}')),
        ],
    ),
    WebSocketScenario(
        "mcp session",
        [mcp(CREATE_SESSION), mcp(CREATE_SESSION), mcp(CLOSE_SESSION), STATE],
    ),
    WebSocketScenario(
        "mcp session close",
        [
            mcp(rpc("openenv/session/close")),
            mcp(rpc("openenv/session/close", '{"session_id":5}')),
            mcp(rpc("openenv/session/close", '{"session_id":"nope"}')),
        ],
    ),
    WebSocketScenario(
        "tools by mcp frames", [RESET, *(mcp(one) for one in ALL_CALLS), STATE], env="tools"
    ),
    WebSocketScenario(
        "tools by steps",
        [
            RESET,
            step('{"type":"list_tools"}'),
            *(act_tool(*one) for one in (*TOOL_CALLS, *WRONG_CALLS)),
            *(step(data) for data in ODD_TOOL_STEPS),
            STATE,
        ],
        env="tools",
    ),
    WebSocketScenario(
        "calls that are answered by steps",
        [
            RESET,
            step('{"type":"list_tools"}'),
            act_tool("repeat", '{"word":"a"}'),
            act_tool("nope"),
            mcp(rpc("tools/list")),
            mcp(call("repeat", '{"word":"a"}')),
            mcp(call("nope")),
            STATE,
        ],
        env="calls",
    ),
    WebSocketScenario("close", [CLOSE]),
    WebSocketScenario("close with extra keys", ['{"type":"close","data":{}}', STATE]),
    WebSocketScenario("at capacity", [STATE], already_open=2),
    WebSocketScenario("below capacity", [STATE], already_open=1),
    WebSocketScenario("unknown session", [STATE], path="/ws?session_id=nope"),
    WebSocketScenario("empty session", [STATE], path="/ws?session_id="),
    WebSocketScenario("other query", [STATE], path="/ws?other=1"),
    WebSocketScenario("factory failure", [STATE], env="factoryfail"),
    WebSocketScenario(
        "bare environment",
        [STATE, RESET, reset('{"seed":1,"foo":2}'), act("int"), act("boom"), STATE],
        env="bare",
    ),
    WebSocketScenario("bare environment at capacity", [STATE], env="bare", already_open=1),
    WebSocketScenario(
        "async environment",
        [STATE, reset('{"seed":-1,"episode_id":"ep","foo":2}'), act("float"), act("boom"), STATE],
        env="async",
    ),
)


JSON_RPC_SCENARIOS: tuple[WebSocketScenario, ...] = (
    WebSocketScenario("tools", ALL_CALLS, env="tools", path="/mcp"),
    WebSocketScenario("without tools", MCP_CALLS, path="/mcp"),
    WebSocketScenario("bad envelopes", [one for one in BAD_RPC if one != "[]"], path="/mcp"),
    *(
        WebSocketScenario(f"frame: {name}", [frame, rpc("tools/list")], env="tools", path="/mcp")
        for name, frame in (
            *(("array", "[]"), ("integer", "5"), ("null", "null"), ("text", '"x"')),
            *(("not JSON", "nope"), ("nothing", ""), ("binary", rpc("x").encode())),
        )
    ),
    WebSocketScenario(
        "sessions",
        [
            CREATE_SESSION,
            CLOSE_SESSION,
            rpc("openenv/session/close"),
            rpc("openenv/session/close", '{"session_id":"nope"}'),
            rpc("tools/list", '{"session_id":"nope"}'),
        ],
        env="calls",
        path="/mcp",
    ),
    WebSocketScenario("at capacity", [rpc("tools/list")], path="/mcp", already_open=2),
    WebSocketScenario("factory failure", [rpc("tools/list")], env="factoryfail", path="/mcp"),
)


def get(*paths: str) -> list[Request]:
    """Return a GET of each path."""
    return [Request("GET", path) for path in paths]


def posts(path: str, *bodies: str | None) -> list[Request]:
    """Return a POST of each body; None sends no body at all."""
    return [Request("POST", path, body) for body in bodies]


def post_action(action: str, rest: str = "") -> Request:
    """Return the step request of an action, both written as JSON text."""
    return Request("POST", "/step", f'{{"action":{action}{rest}}}')


def behave(*behaviours: str) -> list[Request]:
    """Return a step request of each behaviour."""
    return [post_action(json.dumps({"msg": msg})) for msg in behaviours]


INFO_PATHS = ("/health", "/metadata", "/schema", "/state")
OTHER_CONTENT_TYPES = ("text/plain", "application/x-www-form-urlencoded", "application/x+json")

HTTP_SCENARIOS: tuple[HttpScenario, ...] = (
    HttpScenario("information", get(*INFO_PATHS)),
    HttpScenario(
        "reset",
        posts(
            "/reset",
            None,
            "",
            "{}",
            "null",
            '{"seed":3}',
            '{"seed":null,"episode_id":null}',
            '{"seed":0,"episode_id":"ep","foo":"q","zzz":1}',
            '{"foo":"boom"}',
        ),
    ),
    HttpScenario(
        "reset refused",
        posts(
            "/reset",
            '{"seed":-1}',
            '{"seed":"3"}',
            '{"seed":"three"}',
            '{"seed":1.5}',
            '{"seed":true}',
            '{"seed":NaN}',
            "not json",
            '{"seed":',
            "[]",
            "5",
            '{"episode_id":"' + "e" * 255 + '"}',
            '{"episode_id":"' + "e" * 300 + '"}',
            '{"episode_id":9}',
            '{"seed":-1,"episode_id":9}',
            f'{{"foo":{NESTED_5000}}}',
            f'{{"seed":{DIGITS_5000}}}',
        ),
    ),
    HttpScenario(
        "step",
        [
            post_action('{"msg":"hi","n":3}'),
            post_action('{"msg":"hi"}', ',"timeout_s":2.5,"request_id":"r1"'),
            post_action('{"msg":"hi"}', ',"timeout_s":null,"request_id":null'),
            post_action('{"msg":"hi"}', ',"extra":[1],"episode_id":"ep"'),
            post_action('{"msg":"hi"}', ',"self":1'),
        ],
    ),
    HttpScenario("step behaviours", behave(*REWARDS, "done", "meta", "unicode", *FAILURES)),
    HttpScenario("step data", behave(*(msg for msg in DATA if msg != "deep"), "wrongtype")),
    HttpScenario(
        "step refused",
        [
            *posts("/step", None, "", "{}", "null", "[]", "not json", '{"action":[]}'),
            *(post_action(action) for action in BAD_ACTIONS),
            post_action('{"msg":"\\ud800"}'),
            post_action('{"msg":"hi"}', ',"timeout_s":0'),
            post_action('{"msg":"hi"}', ',"timeout_s":-1'),
            post_action('{"msg":"hi"}', ',"timeout_s":"2"'),
            post_action('{"msg":"hi"}', ',"timeout_s":"soon"'),
            post_action('{"msg":"hi"}', ',"request_id":5'),
            post_action('{"msg":"hi"}', ',"request_id":"' + "r" * 300 + '"'),
        ],
    ),
    HttpScenario(
        "content types",
        [Request("POST", "/reset", '{"seed":3}', name) for name in OTHER_CONTENT_TYPES],
    ),
    HttpScenario(
        "stateless",
        [Request("POST", "/reset", '{"episode_id":"ep"}'), *behave("hi"), *get("/state")],
    ),
    HttpScenario(
        "wrong method",
        [
            *get("/reset", "/step", "/mcp"),
            *(Request("POST", path) for path in INFO_PATHS),
            Request("HEAD", "/health"),
            Request("OPTIONS", "/reset"),
            Request("DELETE", "/state"),
        ],
    ),
    HttpScenario(
        "unknown path", get("/", "/nope", "/ws", "/health/", "/reset/", "/web", "/Health")
    ),
    HttpScenario("mcp", posts("/mcp", *MCP_CALLS)),
    HttpScenario("tools", posts("/mcp", *ALL_CALLS), env="tools"),
    HttpScenario(
        "tools in a session",
        posts(
            "/mcp",
            CREATE_SESSION,
            rpc("tools/list", f'{{"session_id":"{UUID_MARK}"}}'),
            *(call(*one, UUID_MARK) for one in (*TOOL_CALLS[:3], *WRONG_CALLS[:3])),
            rpc("tools/call", f'{{"session_id":"{UUID_MARK}"}}'),
            CLOSE_SESSION,
            call("repeat", '{"word":"a"}', UUID_MARK),
        ),
        env="tools",
    ),
    HttpScenario(
        "calls that are answered by steps",
        posts(
            "/mcp",
            rpc("tools/list"),
            call("repeat", '{"word":"a"}'),
            call("nope"),
        ),
        env="calls",
    ),
    HttpScenario(
        "information about tools",
        get("/health", "/metadata", "/state"),
        env="tools",
    ),
    HttpScenario(
        "mcp refused",
        posts("/mcp", None, "", *BAD_RPC, "nope", '"nope"', "5", "null", '{"jsonrpc":')
        + posts("/mcp", "[" + rpc("tools/list") + "]", rpc("x", request_id="NaN")),
    ),
    HttpScenario(
        "mcp session",
        posts(
            "/mcp",
            CREATE_SESSION,
            rpc("tools/list", f'{{"session_id":"{UUID_MARK}"}}'),
            CREATE_SESSION,
            CREATE_SESSION,
            CLOSE_SESSION,
            CLOSE_SESSION,
            rpc("openenv/session/close"),
            rpc("openenv/session/close", '{"session_id":5}'),
            rpc("tools/list", '{"session_id":"nope"}'),
            rpc("tools/list", '{"session_id":5}'),
        ),
    ),
    HttpScenario(
        "factory failure",
        [
            *get(*INFO_PATHS),
            *posts("/reset", None),
            *behave("hi"),
            *posts("/mcp", rpc("tools/list"), CREATE_SESSION),
        ],
        env="factoryfail",
    ),
    HttpScenario(
        "bare environment",
        [
            *get(*INFO_PATHS),
            *posts("/reset", None, '{"seed":3,"foo":1}'),
            post_action('{"msg":"hi"}', ',"timeout_s":2.5,"request_id":"r1"'),
        ],
        env="bare",
    ),
    HttpScenario(
        "async environment",
        [
            *get("/metadata", "/state"),
            *posts("/reset", None, '{"seed":3,"foo":1}'),
            post_action('{"msg":"hi"}', ',"timeout_s":2.5,"request_id":"r1"'),
            *behave("boom"),
        ],
        env="async",
    ),
)


# --- recording --------------------------------------------------------------------------------


@contextmanager
def serve(app: FastAPI) -> Iterator[int]:
    """Serve `app` in a thread for as long as the block lasts; yields its port."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds; raises TimeoutError when it doesn't in time."""
    deadline = time.monotonic() + FIRST_REPLY_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not start")
        time.sleep(0.01)


class SessionIds:
    """Swaps the session ids of one server for `UUID_MARK` and back."""

    def __init__(self) -> None:
        self._latest = UUID_MARK

    def hide(self, text: str) -> str:
        """Return what the server sent with its ids marked; the last one is remembered."""
        self._latest = next(reversed(UUID4.findall(text)), self._latest)
        return UUID4.sub(UUID_MARK, text)

    def reveal(self, text: str) -> str:
        """Return what is to be sent with the id seen last in place of the mark."""
        return text.replace(UUID_MARK, self._latest)


class Recorder:
    """Speaks on one websocket and writes down both sides."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._ids = SessionIds()
        self.events: list[Json] = []

    @property
    def closed(self) -> bool:
        """Whether the server has closed the connection."""
        return bool(self.events) and "closed" in self.events[-1]

    def play(self, frames: Sequence[Frame | Burst]) -> None:
        """Send the frames until the server closes."""
        self._listen(0)
        for frame in frames:
            if self.closed:
                return
            self._exchange([frame] if isinstance(frame, str | bytes) else frame)

    def leave(self) -> None:
        """Have the server close."""
        if not self.closed:
            self._exchange([CLOSE])
        if not self.closed:
            raise RuntimeError("the server did not close")

    def _exchange(self, burst: Burst) -> None:
        for frame in burst:
            self._send(frame)
        self._listen(len(burst))

    def _send(self, frame: Frame) -> None:
        if isinstance(frame, bytes):
            self.events.append({"client_binary_hex": frame.hex()})
            self._connection.send(frame)
        else:
            self.events.append({"client": frame})
            self._connection.send(self._ids.reveal(frame))

    def _listen(self, expected: int) -> None:
        """Take down what comes: at least `expected` frames or a close, then until it is quiet."""
        received = 0
        while not self.closed:
            try:
                text = self._connection.recv(QUIET_S if received >= expected else FIRST_REPLY_S)
            except TimeoutError:
                if received < expected:
                    raise
                return
            except ConnectionClosed as closed:
                self.events.append({"closed": closed.rcvd.code if closed.rcvd else 1006})
                return
            if not isinstance(text, str):
                raise TypeError("the server sent a binary frame")
            self.events.append({"server": self._ids.hide(text)})
            received += 1


def open_connection(port: int, path: str, stack: ExitStack) -> ClientConnection:
    """Connect to a path of the server on `port`; `stack` closes the connection."""
    opening = connect(f"ws://{HOST}:{port}{path}", proxy=None, max_size=None)
    return stack.enter_context(opening)


def hold_session(port: int, stack: ExitStack) -> None:
    """Open a session and leave it open; it exists once the server has answered."""
    connection = open_connection(port, "/ws", stack)
    connection.send(STATE)
    connection.recv(FIRST_REPLY_S)


def record_websocket(scenario: WebSocketScenario) -> Json:
    """Play one connection and return its record."""
    with serve(APPS[scenario.env]()) as port, ExitStack() as stack:
        for _ in range(scenario.already_open):
            hold_session(port, stack)
        recorder = Recorder(open_connection(port, scenario.path, stack))
        recorder.play(scenario.frames)
        if scenario.path != "/mcp":
            recorder.leave()
    return {
        "name": scenario.name,
        "env": scenario.env,
        "path": scenario.path,
        "already_open": scenario.already_open,
        "events": recorder.events,
    }


def record_http(scenario: HttpScenario) -> Json:
    """Send the requests of one server and return their record."""
    ids = SessionIds()
    with serve(APPS[scenario.env]()) as port:
        exchanges = [record_request(port, request, ids) for request in scenario.requests]
    return {"name": scenario.name, "env": scenario.env, "exchanges": exchanges}


def record_request(port: int, request: Request, ids: SessionIds) -> Json:
    """Send one request on a connection of its own and return the exchange."""
    content_type = None if request.body is None else request.content_type
    body = None if request.body is None else ids.reveal(request.body).encode()
    connection = http.client.HTTPConnection(HOST, port, timeout=FIRST_REPLY_S)
    try:
        headers = {} if content_type is None else {"Content-Type": content_type}
        connection.request(request.method, request.path, body, headers)
        response = connection.getresponse()
        answer = response.read().decode()
    finally:
        connection.close()
    return {
        "method": request.method,
        "path": request.path,
        "content_type": content_type,
        "body": request.body,
        "status": response.status,
        "answer_content_type": response.getheader("content-type"),
        "answer": ids.hide(answer),
    }


def record() -> Json:
    """Play every scenario and return the whole record."""
    versions = {name: version(name) for name in RECORDED_VERSIONS}
    return {
        "versions": {**versions, "python": platform.python_version()},
        "websocket": [record_websocket(scenario) for scenario in WEBSOCKET_SCENARIOS],
        "json_rpc": [record_websocket(scenario) for scenario in JSON_RPC_SCENARIOS],
        "http": [record_http(scenario) for scenario in HTTP_SCENARIOS],
    }


def main(arguments: Sequence[str]) -> int:
    """Write the record to the file named by the only argument."""
    if len(arguments) != 1:
        sys.stderr.write("usage: record_peer.py OUT.json\n")
        return 2
    for name in SERVER_SETTINGS:
        os.environ.pop(name, None)
    text = json.dumps(record(), indent=1, ensure_ascii=True)
    Path(arguments[0]).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
