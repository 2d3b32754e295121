"""Pipes to other programs, read and written from an event loop that waits for neither."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

__all__ = ["reader_of", "write_all"]


async def reader_of(
    pipe: Any, limit: int, stack: contextlib.ExitStack | contextlib.AsyncExitStack
) -> asyncio.StreamReader:
    """A reader of a pipe, on the loop that runs.

    Args:
        pipe: A file of the pipe's end.
        limit: The most bytes that a line may have.
        stack: What closes it.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit, loop=loop)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe
    )
    stack.callback(transport.close)
    return reader


async def write_all(pipe: int, data: bytes) -> None:
    """Write all of `data` to a pipe, which is set not to block.

    Raises:
        OSError: Nobody reads it any more.
    """
    os.set_blocking(pipe, False)
    rest = memoryview(data)
    while rest:
        rest = rest[_written_at_once(pipe, rest) :]
        if rest:
            await _writable(pipe)


def _written_at_once(pipe: int, data: memoryview) -> int:
    try:
        return os.write(pipe, data)
    except BlockingIOError:
        return 0


async def _writable(pipe: int) -> None:
    loop = asyncio.get_running_loop()
    is_so = asyncio.Event()
    loop.add_writer(pipe, is_so.set)
    try:
        await is_so.wait()
    finally:
        loop.remove_writer(pipe)
