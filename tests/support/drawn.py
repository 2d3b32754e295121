"""Environments that draw where they stand, in each of the forms and ways that there are."""

from __future__ import annotations

import asyncio
import struct
import threading
import zlib
from enum import Enum
from typing import Any

import numpy as np

from openenv import Action, EnvClient, Environment, NotSupported, Observation, Refused, State
from openenv.arrays import Picture
from openenv.tools import MCPEnvironment, tool

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="2" height="2"/></svg>'
GIF = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff;"


class Draw(Action):
    """What `render` is to give from now on."""

    what: str = "text"


class Seen(Observation):
    number: int = 0


class Word(str, Enum):
    """A text that is not only text."""

    ONE = "one"


class Easel(Environment[Draw, Seen, State]):
    """Draws what the last action has said; nothing before the first reset."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.now: State | None = None
        self.what = "text"
        self.buffer = np.zeros((3, 2, 3), np.uint8)  # the same for every frame
        self.threads = {threading.get_ident()}

    def reset(self, seed: int | None = None, what: str = "text") -> Seen:  # type: ignore[override]
        self.now, self.what = State(), what
        return Seen()

    def step(self, action: Draw) -> Seen:  # type: ignore[override]
        if self.now is None:
            raise Refused("call reset first")
        self.now.step_count += 1
        self.what = action.what
        self.buffer[:] = self.now.step_count
        return Seen(number=self.now.step_count, reward=0.0, done=self.what == "over")

    @property
    def state(self) -> State:
        return self.now or State()

    def render(self) -> Any:
        self.threads.add(threading.get_ident())
        return self.drawn()

    def drawn(self) -> Any:
        """What `render` gives."""
        if self.now is None:
            raise Refused("there is nothing to see before the first reset")
        match self.what:
            case "text":
                return f"steps: {self.now.step_count} ☃"
            case "svg":
                return SVG
            case "xml":
                return f'<?xml version="1.0"?>{SVG}'
            case "pixels":
                return self.buffer
            case "grey":
                return np.arange(6, dtype=np.uint8).reshape(2, 3)
            case "alpha":
                return np.full((2, 2, 4), 128, np.uint8)[::-1]  # not contiguous
            case "gif":
                return Picture("image/gif", GIF)
            case "word":
                return Word.ONE
            case "large":
                return "x" * 3_000_000
            case "nothing":
                return None
            case "floats":
                return np.zeros((2, 2, 3))
            case "surrogate":
                return "\ud800"
            case "raise":
                raise OSError("the brush broke: secret")
            case "cannot":
                raise NotSupported("no package to draw with", feature="render")
            case "threads":
                return str(len(self.threads))
        return "over"


class AsyncEasel(Easel):
    async def step_async(self, action: Draw) -> Seen:  # type: ignore[override]
        return self.step(action)

    async def render(self) -> Any:
        await asyncio.sleep(0)
        return self.drawn()


class HalfAsyncEasel(AsyncEasel):
    """Its steps are coroutines, and its drawing is not."""

    def render(self) -> Any:
        return self.drawn()


class AnyThreadEasel(Easel):
    SUPPORTS_ANY_THREAD = True


class InlineEasel(Easel):
    NEVER_BLOCKS = True


class Blank(Easel):
    """Has something called render that draws nothing."""

    render = None  # type: ignore[assignment]


class Sketches(MCPEnvironment):
    """Has a tool that is called render, and draws nothing by itself."""

    @tool
    def render(self, colour: str) -> str:
        """Draw in a colour."""
        return f"drawn in {colour}"


class EaselEnv(EnvClient[Draw, Seen, State]):
    """The client of all easels."""


def read_png(data: bytes) -> np.ndarray[Any, Any]:
    """Read what `openenv.arrays.write_png` has written, by the letter of RFC 2083."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, rest = {}, data[8:]
    while rest:
        (length,), kind = struct.unpack(">I", rest[:4]), rest[4:8]
        content, (checksum,) = rest[8 : 8 + length], struct.unpack(">I", rest[8 + length :][:4])
        assert checksum == zlib.crc32(kind + content)
        chunks[kind], rest = content, rest[12 + length :]
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *others = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, others) == (8, [0, 0, 0])
    channels = {0: 1, 2: 3, 6: 4}[colour]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any(), "no line is filtered"
    return lines[:, 1:].reshape((height, width, channels) if channels > 1 else (height, width))
