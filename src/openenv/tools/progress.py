"""How far the call of a tool is, told from inside the tool."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

__all__ = ["REPORTER", "report_progress"]

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]

# Who wants to know, and the event loop of theirs; None where nobody does.
REPORTER: contextvars.ContextVar[tuple[OnProgress, asyncio.AbstractEventLoop] | None] = (
    contextvars.ContextVar("openenv.tools.reporter", default=None)
)


def report_progress(
    progress: float, total: float | None = None, message: str | None = None
) -> None:
    """Tell the agent how far the call is that this code serves; from any tool, plain or async.

    It returns at once. Nothing happens where the agent has not asked for it, or the environment
    lives in a worker process.

    Args:
        progress: How much is done; each time more than the last.
        total: How much there is to do, where that is known.
        message: What is going on.
    """
    known = REPORTER.get()
    if known is None:
        return
    report, loop = known
    asyncio.run_coroutine_threadsafe(_told(report, progress, total, message), loop)


async def _told(
    report: OnProgress, progress: float, total: float | None, message: str | None
) -> None:
    await report(progress, total, message)
