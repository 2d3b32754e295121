"""`Replicas`: clients that are opened together, each with its own server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from openenv._internal.timing import raise_first
from openenv.client import background

__all__ = ["Replicas"]

C = TypeVar("C", bound=Any)


class Replicas(Generic[C]):
    """Clients that are opened and closed together.

        provider = KubernetesProvider(image="coding-env", replicas=64)
        async with CodingEnv.with_provider(provider) as envs:
            await asyncio.gather(*(env.reset() for env in envs))

    ``with`` returns clients for synchronous use. If a client cannot be opened, all are closed.

    Args:
        make: Returns a client that starts its own server.
        count: The number of clients.

    Raises:
        ValueError: `count` is below 1.
    """

    def __init__(self, make: Callable[[], C], count: int) -> None:
        if count < 1:
            raise ValueError(f"replicas is {count!r}; it must be at least 1")
        self._clients = [make() for _ in range(count)]

    def __len__(self) -> int:
        return len(self._clients)

    async def __aenter__(self) -> list[C]:
        await _together([one.__aenter__ for one in self._clients], self._close)
        return list(self._clients)

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    async def _close(self) -> None:
        closing = [one.__aexit__(None, None, None) for one in self._clients]
        raise_first(await asyncio.gather(*closing, return_exceptions=True))

    def __enter__(self) -> list[C]:
        begin = [one._connect_async for one in self._clients]
        background.run(_together(begin, self._close_all))
        return list(self._clients)

    def __exit__(self, *exc: object) -> None:
        background.run(self._close_all())

    async def _close_all(self) -> None:
        closing = [one._close_async() for one in self._clients]
        raise_first(await asyncio.gather(*closing, return_exceptions=True))


async def _together(begin: list[Callable[[], Any]], undo: Callable[[], Any]) -> None:
    """Begin all; if one fails or the caller is canceled, call `undo`."""
    beginning = [asyncio.ensure_future(_awaited(one())) for one in begin]
    try:
        await asyncio.gather(*beginning)
    except BaseException:
        for task in beginning:
            task.cancel()
        await asyncio.gather(*beginning, return_exceptions=True)
        await asyncio.shield(asyncio.ensure_future(undo()))
        raise


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
