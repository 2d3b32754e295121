"""Whatever a server does, a check says so by name; nothing hangs, and no check breaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from support.amounts import rest
from validation.subjects.threads import GOOD, ThreadProvider, ThreadSubject, copied

from openenv.validation.context import RunOptions
from openenv.validation.providers import LaunchSpec
from openenv.validation.report import CheckResult
from openenv.validation.runner import validate
from openenv.validation.types import CheckStatus, Level, Verdict

pytestmark = pytest.mark.slow

Serve = Callable[[WebSocket], Awaitable[None]]

SCHEMA = {
    "action": {"type": "object", "properties": {"say": {"type": "string"}}, "required": ["say"]},
    "observation": {"type": "object"},
    "state": {"type": "object"},
}
SHOWN = {"observation": {}, "reward": 0.0, "done": False}


class RawProvider(ThreadProvider):
    """Serves an application that speaks the protocol in its own way."""

    def __init__(self, serve: Serve, schema: Any = SCHEMA) -> None:
        super().__init__()
        self._serve, self._schema = serve, schema

    def start(self, spec: LaunchSpec) -> ThreadSubject:
        async def schema(request: Any) -> Any:
            page = self._schema
            return PlainTextResponse(page) if isinstance(page, str) else JSONResponse(page)

        async def health(request: Any) -> Any:
            return JSONResponse({"status": "healthy"})

        async def session(socket: WebSocket) -> None:
            await socket.accept()
            with contextlib.suppress(WebSocketDisconnect):
                await self._serve(socket)

        routes = [Route("/health", health), Route("/schema", schema)]
        return ThreadSubject(Starlette(routes=[*routes, WebSocketRoute("/ws", session)]))


def frame(kind: str, data: Any) -> str:
    return json.dumps({"type": kind, "data": data})


def always(text: str) -> Serve:
    async def serve(socket: WebSocket) -> None:
        while True:
            await socket.receive_text()
            await socket.send_text(text)

    return serve


def answering(kind: str, instead: Serve) -> Serve:
    """Answers as it should, but for one kind of request."""

    async def serve(socket: WebSocket) -> None:
        while True:
            asked = json.loads(await socket.receive_text())["type"]
            if asked == kind:
                await instead(socket)
            elif asked == "state":
                await socket.send_text(frame("state", {"episode_id": "e", "step_count": 0}))
            else:
                await socket.send_text(frame("observation", SHOWN))

    return serve


async def says_nothing(socket: WebSocket) -> None:
    await socket.receive()  # until it is gone


async def goes_away(socket: WebSocket) -> None:
    await socket.close()
    await asyncio.sleep(0)
    raise WebSocketDisconnect


async def sends_too_much(socket: WebSocket) -> None:
    huge = {**SHOWN, "observation": {"data": "x" * (33 * 2**20)}}
    await socket.send_text(frame("observation", huge))


def failures(
    provider: ThreadProvider, root: Any = GOOD, timeout_s: float = 2.0
) -> dict[str, CheckResult]:
    report = validate(
        root,
        max_level=Level.SEMANTIC,
        skip_build=True,
        provider=provider,
        options=RunOptions(timeout_s=timeout_s),
    ).report
    errors = [one for one in report.results if one.status is CheckStatus.ERROR]
    assert errors == [] and report.verdict is Verdict.FAIL
    return {one.check_id: one for one in report.results if one.status is CheckStatus.FAIL}


SCHEMA_CHECK, REWARD = "runtime.observation_schema", "runtime.reward_well_formed"
DETERMINISM, STATE = "runtime.episode_determinism", "runtime.state_contract"


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
@pytest.mark.parametrize(
    ("serve", "check_id", "says"),
    [
        (always("hello"), SCHEMA_CHECK, "not valid JSON"),
        (always("[1, 2]"), SCHEMA_CHECK, "no object with a type"),
        (always('{"type": "observation"}'), REWARD, "null"),
        (always('{"type": "observation", "data": [1]}'), REWARD, "null"),
        rest(
            always(frame("observation", {**SHOWN, "observation": [1]})), SCHEMA_CHECK, "observation"
        ),
        (always(frame("observation", {**SHOWN, "reward": "much"})), REWARD, "'much'"),
        (always(frame("observation", {**SHOWN, "metadata": 3})), STATE, "state"),
        rest(answering("reset", says_nothing), DETERMINISM, "no answer came within"),
        (answering("step", says_nothing), DETERMINISM, "no answer came within"),
        (answering("state", says_nothing), STATE, "no answer came within"),
        rest(answering("reset", goes_away), DETERMINISM, "connection was lost"),
        (answering("step", goes_away), DETERMINISM, "connection was lost"),
        (answering("step", sends_too_much), DETERMINISM, "the limit of 33554432 bytes"),
    ],
    ids=[
        "no JSON",
        "a list",
        "no data",
        "data of a list",
        "an observation of a list",
        "a reward of text",
        "metadata of a number",
        "a reset that hangs",
        "a step that hangs",
        "a state that hangs",
        "gone at the reset",
        "gone at a step",
        "too much",
    ],
)
def test_a_server_that_does_not_speak_as_it_should_fails_by_name(
    serve: Serve, check_id: str, says: str
) -> None:
    found = failures(RawProvider(serve))
    assert check_id in found, found
    assert says in " ".join(found[check_id].evidence)


@pytest.mark.parametrize(
    ("left", "check_id"),
    [
        (60, "runtime.seed_control"),
        rest(95, "runtime.session_isolation"),
        rest(150, "runtime.latency"),
    ],
)
def test_a_server_that_goes_away_later_is_not_said_to_be_well(left: int, check_id: str) -> None:

    async def serve(socket: WebSocket) -> None:
        nonlocal left
        while True:
            asked = json.loads(await socket.receive_text())["type"]
            left -= 1
            if left < 0:
                await socket.close()
                return
            kind, data = (
                ("state", {"step_count": 0}) if asked == "state" else ("observation", SHOWN)
            )
            await socket.send_text(frame(kind, data))

    found = failures(RawProvider(serve), timeout_s=30.0)
    assert check_id in found, found.keys()
    assert "broke off" in found[check_id].evidence[0]


@pytest.mark.parametrize("schema", ["<html>", {}, {"action": [1], "observation": {}}])
def test_a_server_that_tells_no_actions_fails_where_no_plan_does_either(
    schema: Any, tmp_path: Any
) -> None:
    root = copied(tmp_path)
    (root / "validation" / "runtime.json").unlink()
    manifest = root / "openenv.yaml"
    text = manifest.read_text()
    assert "    probe_path: validation/runtime.json\n" in text
    manifest.write_text(text.replace("    probe_path: validation/runtime.json\n", ""))
    found = failures(RawProvider(always(frame("observation", SHOWN)), schema), root)
    assert found[SCHEMA_CHECK].remediation


def test_a_plan_that_cannot_be_read_fails_before_anything_is_run(tmp_path: Any) -> None:
    root = copied(tmp_path)
    (root / "validation" / "runtime.json").write_text("{")
    found = failures(ThreadProvider(), root)
    assert "runtime.json is not valid JSON" in found["static.manifest"].evidence[0]
    assert SCHEMA_CHECK not in found


def test_a_level_that_cannot_be_judged_is_not_collected() -> None:
    report = validate(
        GOOD, skip_build=True, provider=RawProvider(answering("reset", goes_away))
    ).report
    assert report.levels_run == [Level.STATIC, Level.RUNTIME]
    semantic = [one for one in report.results if one.check_id.startswith("semantic.")]
    assert {one.status for one in semantic} == {CheckStatus.SKIP}
    assert {one.evidence[0] for one in semantic} == {f"unmet dependency: {DETERMINISM} (fail)"}
