"""`render`: over every transport, in every lane, for every kind of client."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.dice import Dice, DiceEnv
from support.drawn import (
    GIF,
    SVG,
    AnyThreadEasel,
    AsyncEasel,
    Blank,
    Draw,
    Easel,
    EaselEnv,
    HalfAsyncEasel,
    InlineEasel,
)
from support.servers import serving

from openenv import (
    EnvironmentsFailed,
    ExecutionFailed,
    Limits,
    NotSupported,
    ServerError,
    SessionLost,
    VectorEnv,
    create_app,
)
from openenv.arrays import Picture
from openenv.errors import MessageTooLarge, ProtocolError
from openenv.execution.connections.base import COMMANDS
from openenv.execution.connections.v1 import connection as connection_v1

pytestmark = pytest.mark.anyio

TRANSPORTS = ["memory", "asgi", "server", "workers"]
EASELS = [Easel, AsyncEasel, HalfAsyncEasel, AnyThreadEasel, InlineEasel]
CODECS = ["openenv.v1.msgpack", "openenv.v1.json"]

Connect = Callable[..., EaselEnv]


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make clients of an environment, over the transport that the test is about."""
    transport = getattr(request, "param", "memory")
    with contextlib.ExitStack() as stack:

        def connect(cls: Any, client: Any = EaselEnv, **options: Any) -> Any:
            if transport == "memory" and not options:
                return client.local(cls)
            app = create_app(cls, workers=2 if transport == "workers" else None, **options)
            if transport == "asgi":
                return client.local(app)
            return client(stack.enter_context(serving(app)))

        yield connect


def same(one: Any, other: Any) -> bool:
    if isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


FORMS: dict[str, Any] = {
    "text": "steps: 1 ☃",
    "svg": SVG,
    "xml": f'<?xml version="1.0"?>{SVG}',
    "pixels": np.full((3, 2, 3), 1, np.uint8),
    "grey": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "alpha": np.full((2, 2, 4), 128, np.uint8),
    "gif": Picture("image/gif", GIF),
    "word": "one",
}


@pytest.mark.slow
@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
@pytest.mark.parametrize("cls", EASELS)
async def test_every_form_arrives_as_it_was_drawn(connect: Connect, cls: Any) -> None:
    async with connect(cls) as env:
        for what, expected in FORMS.items():
            await env.reset()
            await env.step(Draw(what=what))
            assert same(await env.render(), expected), what
            assert same(await env.render(), expected), what
            assert (await env.state()).step_count == 1


@pytest.mark.parametrize("subprotocol", CODECS)
async def test_every_form_crosses_either_encoding(subprotocol: str) -> None:
    with serving(create_app(Easel)) as url:
        env = EaselEnv(url)
        env._websocket = dataclasses.replace(env._websocket, subprotocols=(subprotocol,))
        async with env:
            for what, expected in FORMS.items():
                await env.reset()
                await env.step(Draw(what=what))
                assert same(await env.render(), expected), what


async def test_a_frame_that_came_stays_as_it_was(connect: Connect) -> None:
    async with connect(InlineEasel) as env:
        await env.reset()
        await env.step(Draw(what="pixels"))
        first: Any = await env.render()
        await env.step(Draw(what="pixels"))  # drawn into the same buffer
        second: Any = await env.render()
        assert (first.max(), second.max()) == (1, 2)


async def test_it_is_called_where_the_other_methods_are(connect: Connect) -> None:
    async with connect(Easel) as env:
        await env.reset()
        await env.step(Draw(what="threads"))
        assert await env.render() == "1"


@pytest.mark.slow
@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
async def test_an_environment_without_it_says_so(connect: Connect) -> None:
    async with connect(Dice, DiceEnv) as env:
        await env.reset(seed=1)
        with pytest.raises(NotSupported, match="Dice has no method 'render'") as no:
            await env.render()
        assert isinstance(no.value, ServerError)
        assert (no.value.code, no.value.feature) == ("NOT_SUPPORTED", "render")
        assert (await env.state()).step_count == 0  # the session goes on


async def test_what_is_no_method_is_none(connect: Connect) -> None:
    async with connect(Blank) as env:
        await env.reset()
        with pytest.raises(NotSupported, match="Blank has no method 'render'"):
            await env.render()


@pytest.mark.parametrize("connect", TRANSPORTS, indirect=True)
async def test_before_the_first_reset_there_may_be_nothing_to_see(connect: Connect) -> None:
    async with connect(Easel) as env:
        with pytest.raises(ExecutionFailed, match="nothing to see before the first reset"):
            await env.render()
        await env.reset()
        assert await env.render() == "steps: 0 ☃"


@pytest.mark.parametrize("connect", ["server", "workers"], indirect=True)
@pytest.mark.parametrize("cls", [Easel, AsyncEasel])
async def test_a_render_that_fails_harms_nothing(connect: Connect, cls: Any) -> None:
    async with connect(cls) as env:
        await env.reset()
        for what, error, words in (
            ("raise", ExecutionFailed, "OSError in render; incident"),
            ("nothing", ExecutionFailed, "render returned NoneType; it must return text, SVG"),
            ("floats", ExecutionFailed, r"ndarray of float64, shaped \(2, 2, 3\)"),
            ("surrogate", ExecutionFailed, "cannot be sent"),
            ("cannot", NotSupported, "no package to draw with"),
        ):
            await env.step(Draw(what=what))
            with pytest.raises(error, match=words) as caught:
                await env.render()
            assert "secret" not in str(caught.value)
        await env.step(Draw())
        assert await env.render() == "steps: 6 ☃"


@pytest.mark.slow
@pytest.mark.parametrize("connect", ["asgi", "server", "workers"], indirect=True)
async def test_one_that_is_too_large_is_refused(connect: Connect) -> None:
    async with connect(Easel, limits=Limits(max_message_bytes=2_000_000)) as env:
        await env.reset(what="large")
        with pytest.raises(MessageTooLarge, match="render takes 3000"):
            await env.render()
        await env.step(Draw())
        assert await env.render() == "steps: 1 ☃"


async def test_the_end_can_be_seen(connect: Connect) -> None:
    async with connect(Easel) as env:
        await env.reset()
        assert (await env.step(Draw(what="over"))).done
        assert await env.render() == "over"


async def test_an_episode_that_is_lost_is_not_drawn(connect: Connect) -> None:
    async with connect(Easel) as env:
        await env.reset()
        await env._session.end_episode("it is gone")
        with pytest.raises(SessionLost):
            await env.render()
        await env.reset()
        assert await env.render() == "steps: 0 ☃"


# ------------------------------------------------------------------ faces


def test_a_synchronous_client_gives_it_plainly() -> None:
    with EaselEnv.local(Easel).sync() as env:
        env.reset()
        assert env.render() == "steps: 0 ☃"
        assert env.render().startswith("steps")  # type: ignore[union-attr]
    with EaselEnv.local(Easel) as bare:
        bare.reset(what="grey")
        drawn: Any = bare.render()
        assert drawn.shape == (2, 3)


async def test_where_a_loop_runs_a_bare_client_gives_it_awaited_or_read() -> None:
    env = EaselEnv.local(Easel)
    await env.reset()
    pending = env.render()
    assert len(pending) == len("steps: 0 ☃")
    assert await env.render() == pending.result()
    await env.close()


# ------------------------------------------------------------------ servers that cannot


def without_render(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers be those of before it: they do not know the request, and do not name it."""
    named = [one for one in connection_v1.CAPABILITIES if one != "render"]
    monkeypatch.setattr(connection_v1, "CAPABILITIES", named)
    monkeypatch.delitem(COMMANDS, "render")


async def test_an_older_server_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    without_render(monkeypatch)
    with serving(create_app(Easel)) as url:
        async with EaselEnv(url) as env:
            with pytest.raises(NotSupported, match="too old") as no:
                await env.render()
            assert no.value.feature == "render" and not isinstance(no.value, ServerError)
            await env.reset()
        with VectorEnv(url, 2, client=EaselEnv) as envs:
            envs.reset()
            with pytest.raises(NotSupported, match="too old"):
                envs.render()


async def test_version_0_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_PROTOCOL", "0")
    with serving(create_app(Easel)) as url:
        async with EaselEnv(url) as env:
            await env.reset()
            with pytest.raises(NotSupported, match="version 0") as no:
                await env.render()
            assert not isinstance(no.value, ServerError)
            assert (await env.step(Draw())).observation.number == 1
        with VectorEnv(url, 2, client=EaselEnv) as envs:
            envs.reset()
            with pytest.raises(NotSupported, match="version 0"):
                envs.render()


# ------------------------------------------------------------------ many


@pytest.mark.parametrize("workers", [None, 2])
def test_many_environments_are_drawn_together(workers: int | None) -> None:
    with (
        serving(create_app(Easel, workers=workers)) as url,
        VectorEnv(url, 3, client=EaselEnv) as envs,
    ):
        envs.reset()
        envs.step([Draw(what="pixels"), Draw(what="svg"), Draw()])
        pixels, svg, text = envs.render()
        assert same(pixels, FORMS["pixels"]) and (svg, text) == (SVG, "steps: 1 ☃")


def test_those_that_cannot_be_drawn_are_named() -> None:
    with VectorEnv.local(Easel, 3, client=EaselEnv) as envs:
        with pytest.raises(EnvironmentsFailed) as early:
            envs.render()
        assert {type(error) for error in early.value.errors.values()} == {SessionLost}
        envs.reset()
        envs.step([Draw(), Draw(what="cannot"), Draw(what="nothing")])
        with pytest.raises(EnvironmentsFailed) as caught:
            envs.render()
        kinds = {i: type(error) for i, error in caught.value.errors.items()}
        assert kinds.keys() == {1, 2} and issubclass(kinds[1], NotSupported)
        assert caught.value.results == {0: "steps: 1 ☃"}
        assert envs.step([Draw()] * 3).observations["number"].tolist() == [2, 2, 2]  # type: ignore[attr-defined]


# ------------------------------------------------------------------ hostile servers


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"text": 3},
        {"array": [1, 2]},
        {"array": {"dtype": "<f8", "shape": [1], "data": "AAAAAAAAAAA="}},
        {"array": {"dtype": "|u1", "shape": [2, 2], "data": "AA=="}},
        {"media_type": "text/html", "bytes": b"<script>"},
        {"media_type": "image/png\r\nSet-Cookie: a=b", "bytes": b""},
        {"media_type": "image/png", "bytes": 3},
        {"media_type": "image/png", "bytes": "no base64!"},
        {"bytes": b""},
    ],
    ids=str,
)
async def test_what_is_no_rendering_is_none(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openenv.protocol.v1.codec.as_data", lambda _: data)
    with serving(create_app(Easel)) as url:
        async with EaselEnv(url) as env:
            await env.reset()
            with pytest.raises(ProtocolError, match="a rendering that is none"):
                await env.render()
